#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In whose account a connection counts, and which container a process is of, for a daemon without privileges: as its service it may not
ask for the namespaces of other users' processes. Containers are control groups of version 1 and 2 with pid namespaces; users have uids
of their own, ranges of /etc/subuid, and user namespaces. Needs root. test_accounts.py GPUSHARE_LOCKD [unittest options]"""
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.dirname(os.path.dirname(HERE))]
import other_user  # noqa: E402
from fake import CONTROL, END, GIB, PATIENCE, RUNNING, STATUS, WANT, Program, header, message, wait_for  # noqa: E402

LOCKD = ""
LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000
BIND, PRIVATE = 0x1000, 0x44000
PAUSE = 4
DAEMON, GROUP, USER, FIRST = 54001, 54000, 54321, 700000  # uids; USER has 65536 uids from FIRST on
LIMIT = 12  # connections of an account
TREES = {"version 1": ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd"], "version 2": ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]}
VICTIM, HOSTILE = "a" * 64, "b" * 64


def tree_of(version):
    """The top of a hierarchy of that version in which groups can be made, or None."""
    for path in TREES[version]:
        if not os.path.exists(os.path.join(path, "cgroup.procs")):
            continue
        if (version == "version 2") == os.path.exists(os.path.join(path, "cgroup.controllers")):
            return path
    return None


def check(code):
    if code != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def say(fd, what):
    os.write(fd, (json.dumps(what) + "\n").encode())


def take_identity(fd, group, pid_ns, uid, inside):
    """Becomes a process of that control group, pid namespace, uid, and uid inside of a user namespace, whose map the parent writes."""
    if group:
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write("0")
    if pid_ns:
        check(LIBC.unshare(NEWPID))
        child = os.fork()
        if child != 0:
            os.waitpid(child, 0)
            os._exit(0)
        LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(GROUP, GROUP, GROUP)
    os.setresuid(uid, uid, uid)
    if inside is not None:
        check(LIBC.unshare(NEWUSER))
        say(fd, "map")
        os.read(0, 1)
        os.setresuid(inside, inside, inside)


class Actor:
    """A process that does act(path, *words) and tells its result; it then stays until the test is over."""

    def __init__(self, case, path, act, *words, group=None, pid_ns=False, uid=0, user_ns=None, inside=None):
        hear, tell = os.pipe()
        wait, self.go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(hear)
                os.close(self.go)
                os.dup2(wait, 0)
                take_identity(tell, group, pid_ns, uid, inside)
                result, kept = act(path, *words)
                say(tell, result)
                os.read(0, 1)
                kept.clear()
            except BaseException as error:  # pylint: disable=broad-except
                say(tell, f"failed: {error!r}")
            os._exit(0)  # without a word about sockets that are open
        os.close(tell)
        os.close(wait)
        case.addCleanup(self.end)
        self.said = os.fdopen(hear)
        self.result = json.loads(self.said.readline())
        if self.result == "map":
            with open(f"/proc/{self.pid}/uid_map", "w", encoding="ascii") as file:
                file.write(user_ns)
            os.write(self.go, b"\n")
            self.result = json.loads(self.said.readline())

    def end(self):
        if self.pid is None:
            return
        os.close(self.go)
        os.waitpid(self.pid, 0)
        self.said.close()
        self.pid = None


def connect_many(path, count):
    """How many of so many connections were accepted."""
    kept = []
    for _ in range(count):
        each = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        each.settimeout(PATIENCE)
        each.connect(path)
        try:
            each.send(header(STATUS, 16))  # its first answer is no END
            answer = each.recv(65536)
        except ConnectionError:
            continue
        if len(answer) > 8 and answer[6] != END:
            kept.append(each)
    return len(kept), kept


def run_program(path):
    program = Program(path, "victim")
    program.say(flags=WANT, demand=GIB)
    program.settle(lambda each: each.flags & RUNNING)
    return "runs", [program]


def ask_for_memory(path):
    program = Program(path, "greedy")
    program.say(flags=WANT, demand=2 * GIB)
    return "asks", [program]


def be_refused(path):
    """Why the daemon does not take another program."""
    program = Program(path, "third")
    try:
        return program.hear() and "accepted", []
    except EOFError as error:
        return str(error), []


def pause(path, pid):
    """Whether that process could be paused: the code of the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.settimeout(PATIENCE)
        caller.connect(path)
        caller.send(message(CONTROL, struct.pack("<IiQ", PAUSE, pid, 0)))
        return struct.unpack("<i", caller.recv(4096)[16:20])[0], []


class AccountsTest(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be several users")
        binary, = other_user.copy_for_others(self, LOCKD)
        self.folder = other_user.make_folder()
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o755)
        self.path = os.path.join(self.folder, "lockd.sock")
        self.start(binary)

    def start(self, binary):
        """As systemd starts the service: the socket is root's, the daemon has a uid of its own and no capabilities."""
        subuid = os.path.join(self.folder, "subuid")
        with open(subuid, "w", encoding="ascii") as file:
            file.write(f"{USER}:{FIRST}:65536\n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.path)
            os.chown(self.path, 0, GROUP)
            os.chmod(self.path, 0o660)
            listener.listen(128)
            log = os.open(os.path.join(self.folder, "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
            self.addCleanup(os.close, log)
            pid = os.fork()
            if pid == 0:
                try:
                    check(LIBC.unshare(NEWNS))
                    check(LIBC.mount(b"none", b"/", None, PRIVATE, None))
                    if os.path.exists("/etc/subuid"):
                        check(LIBC.mount(subuid.encode(), b"/etc/subuid", None, BIND, None))
                    os.dup2(log, 2)
                    os.dup2(listener.fileno(), 3)
                    os.set_inheritable(3, True)
                    os.setgroups([])
                    os.setresgid(GROUP, GROUP, GROUP)
                    os.setresuid(DAEMON, DAEMON, DAEMON)
                    os.execve(binary, [binary, "--socket", self.path, "--max-connections", str(LIMIT), "--max-memory", "3GiB", "--max-programs", "2"],
                              {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
                finally:
                    os._exit(1)  # not a second runner of tests
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)

    def control_group(self, version, *parts):
        path = tree_of(version)
        if path is None:
            self.skipTest(f"no control groups of {version} here")
        for part in (f"kubepods-gs{os.getpid()}", *parts):
            path = os.path.join(path, part)
            if not os.path.isdir(path):
                try:
                    os.mkdir(path)
                except OSError as error:
                    self.skipTest(f"no control group can be made: {error}")
                self.addCleanup(lambda path=path: wait_for(lambda: remove(path), PATIENCE, path + " to be empty"))
        return path

    def said(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            return log.read()

    def count(self, *args, **more):
        actor = Actor(self, self.path, connect_many, *args, **more)
        self.assertIsInstance(actor.result, int, actor.result)
        return actor.result

    def victim(self, **more):
        """A program, and its process id as the daemon sees it."""
        actor = Actor(self, self.path, run_program, **more)
        self.assertEqual(actor.result, "runs")
        if not more.get("pid_ns"):
            return actor.pid
        with open(f"/proc/{actor.pid}/task/{actor.pid}/children", encoding="ascii") as file:
            return int(file.read())

    def pause(self, pid, **more):
        return Actor(self, self.path, pause, pid, **more).result

    # --- accounts ---

    def test_uids_that_a_user_was_given_are_one_account(self):
        if not os.path.exists("/etc/subuid"):
            self.skipTest("no /etc/subuid here to put another in its place")
        self.assertEqual(self.count(LIMIT - 4, uid=USER), LIMIT - 4)
        self.assertEqual(self.count(3, uid=FIRST + 1), 3)
        self.assertEqual(self.count(3, uid=FIRST + 65535), 1)
        self.assertEqual(self.count(3, uid=FIRST + 65536), 3)  # of nobody else

    def test_user_namespace_counts_for_its_owner(self):
        self.assertGreater(self.count(LIMIT + 1, uid=USER, user_ns=f"0 {USER} 1", inside=0), 0)
        self.assertEqual(self.count(1, uid=USER, user_ns=f"0 {USER} 1\n1 {FIRST} 100", inside=0), 0)
        self.assertEqual(self.count(1, uid=USER), 0)
        self.assertEqual(self.count(1, uid=USER, user_ns=f"0 {USER} 1\n1 {FIRST} 100", inside=7), 0)
        self.assertEqual(self.count(1, uid=USER + 1), 1)

    def test_container_is_one_account_whatever_its_uids(self):
        for version in TREES:
            with self.subTest(version):
                hostile = HOSTILE[1:] + version[-1]  # the last version's processes are still there
                one, other = (self.control_group(version, "pod1", name) for name in (VICTIM, hostile))
                below = self.control_group(version, "pod1", hostile, "user.slice")
                deep = self.control_group(version, "pod1", hostile, "user.slice", "c" * 64)
                accepted = sum(self.count(5, group=group, pid_ns=True, uid=uid) for uid, group in
                               enumerate((other, below, deep, other, other)))
                self.assertEqual(accepted, LIMIT)
                self.assertEqual(self.count(3, group=one, pid_ns=True), 3)
                self.assertEqual(self.count(3, uid=2), 3)

    def test_containers_without_id_are_one_account(self):
        self.assertEqual(sum(self.count(5, pid_ns=True, uid=uid) for uid in range(4)), LIMIT)
        self.assertEqual(self.count(3, uid=1), 3)

    def test_memory_and_programs_count_in_the_account(self):
        group = self.control_group(next(filter(tree_of, TREES), "version 2"), "pod1", VICTIM)
        for own in ({"uid": USER}, {"uid": FIRST + 7}), ({"group": group, "pid_ns": True}, {"group": group, "pid_ns": True, "uid": 7}):
            with self.subTest(own):
                before = self.said()
                for which in own:
                    self.assertEqual(Actor(self, self.path, ask_for_memory, **which).result, "asks")
                wait_for(lambda before=before: "(greedy): held back" in self.said()[len(before):], PATIENCE, "max-memory to be kept")
                self.assertIn("raise max-programs", Actor(self, self.path, be_refused, **own[1]).result)

    # --- control ---

    def test_own_container_is_steered(self):
        for version in TREES:
            with self.subTest(version):
                group = self.control_group(version, "pod1", VICTIM)
                self.assertEqual(self.pause(self.victim(group=group, pid_ns=True), group=group, pid_ns=True), 0)

    def test_other_container_is_refused_whatever_name_its_group_has(self):
        for version in TREES:
            with self.subTest(version):
                pid = self.victim(group=self.control_group(version, "pod1", VICTIM), pid_ns=True)
                hostile = [self.control_group(version, "pod2", HOSTILE), self.control_group(version, "pod2", HOSTILE, VICTIM),
                           self.control_group(version, "pod2", HOSTILE, VICTIM, VICTIM)]
                for group in hostile:
                    self.assertEqual(self.pause(pid, group=group, pid_ns=True), -1, group)

    def test_containers_without_id_do_not_steer_each_other(self):
        for version in TREES:
            with self.subTest(version):
                pid = self.victim(group=self.control_group(version, "one"), pid_ns=True)
                self.assertEqual(self.pause(pid, group=self.control_group(version, "other"), pid_ns=True), -1)
                self.assertEqual(self.pause(pid), 0)  # from the machine

    def test_user_namespaces_do_not_steer_each_other(self):
        pid = self.victim(uid=USER, user_ns=f"0 {USER} 1", inside=0)
        self.assertEqual(self.pause(pid, uid=USER, user_ns=f"0 {USER} 1", inside=0), -1)
        self.assertEqual(self.pause(pid, uid=USER), 0)


def remove(folder):
    try:
        os.rmdir(folder)
    except OSError:
        return not os.path.exists(folder)
    return True


if __name__ == "__main__":
    LOCKD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2, warnings="ignore")
