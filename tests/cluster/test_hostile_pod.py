#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Root in a pod that has the programs' socket tries what it must not: to control others, to get their memory, to use up their
quota, connections, descriptors and remarks, to join their group or their job, to be another process, to replace the socket. Pods are
control groups as kubelet names them, with namespaces of their own, the capabilities that a container has, and a read-only mount of the
socket's folder. test_hostile_pod.py --build DIR"""
import errno
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "lockd")]
import kit  # noqa: E402
from fake import (CARD, END, GIB, GIVE, PATIENCE, RUNNING, WANT, Daemon, Program, hello, message, note, open_message,  # noqa: E402
                  share_message, state, wait_for)

ROOTS = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
TOKEN = b"0123456789abcdef"
KIN, OTHER = 11, 3  # messages, and a kind of note
MASTER = struct.pack("<QII", 0x1234, 2, 0)  # the key of a job: what its programs have in common
REMARKS = 16  # that the daemon keeps
CAPABILITIES = "+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
POD = {"victim": "11111111-2222-3333-4444-555555555555", "hostile": "66666666-7777-8888-9999-000000000000"}


def make_pod(case, name):
    """The control group of a container in a pod, or the reason why there is none."""
    for root in ROOTS:
        if not os.path.exists(os.path.join(root, "cgroup.procs")):
            continue
        top = os.path.join(root, f"kubepods-gs{os.getpid()}{name}")
        path = os.path.join(top, "pod" + POD[name], name.encode().hex().ljust(64, "0"))
        try:
            os.makedirs(path)
        except OSError:
            continue

        def remove():
            for folder in (path, os.path.dirname(path), top):
                wait_for(lambda folder=folder: try_remove(folder), PATIENCE, folder + " to be empty")

        case.addCleanup(remove)
        return path
    raise unittest.SkipTest("no control group can be made here: only root can")


def try_remove(folder):
    try:
        os.rmdir(folder)
    except OSError:
        return not os.path.exists(folder)
    return True


def obey(program, stop):
    """Does what the targets say until stop() is true: others wait for that."""
    while not stop():
        if select.select([program.socket], [], [], 0.05)[0]:
            program.hear()
            program.obey()


class HostilePod(kit.BuildTest):
    spaces = ["unshare", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child"]

    def setUp(self):
        self.groups = {name: make_pod(self, name) for name in POD}
        self.daemon = Daemon(os.path.join(self.build, "lockd", "gpushare-lockd"), "--log-level", "info", "--max-memory", "8GiB",
                             "--max-connections", "64")
        self.addCleanup(shutil.rmtree, self.daemon.folder)
        self.addCleanup(self.daemon.process.wait)
        self.addCleanup(self.daemon.process.kill)

    def enter(self, name, *words):
        """A process of this script in the pod: its root."""
        process = subprocess.Popen(
            ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.groups[name], *self.spaces, "sh", "-c",
             'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"', self.daemon.folder, "setpriv", "--inh-caps=-all",
             "--bounding-set=-all," + CAPABILITIES, sys.executable, __file__, "--build", self.build, "--inside", name, "--socket", self.daemon.path, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def ctl(self, *words):
        done = subprocess.run([os.path.join(self.build, "lockd", "gpusharectl"), "--socket", self.daemon.path, *words],
                              capture_output=True, text=True, check=True, timeout=PATIENCE)
        return done.stdout

    def ctl_of(self, name, *words):
        """The exit status of gpusharectl in another process of a pod."""
        return subprocess.run(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.groups[name],
                               os.path.join(self.build, "lockd", "gpusharectl"), "--socket", self.daemon.path, *words],
                              capture_output=True, check=False, timeout=PATIENCE).returncode

    def programs(self):
        return {each["name"]: each for device in json.loads(self.ctl("status", "--json"))["devices"] for each in device["programs"]}

    def test_nothing_works_and_all_is_logged(self):
        host = Program(self.daemon.path, "host", say_hello=False)  # root of the machine, as the pods' root is: uid 0
        self.addCleanup(host.close)
        host.socket.send(hello("host", group="job"))
        host.socket.send(message(KIN, MASTER))
        host.socket.send(note(OTHER, "the host's remark", name="host"))
        host.say(flags=WANT, demand=GIB)
        host.settle(lambda program: program.flags & RUNNING)
        stop = threading.Event()
        obeys = threading.Thread(target=obey, args=(host, stop.is_set))
        obeys.start()
        self.addCleanup(lambda: (stop.set(), obeys.join()))
        victim = self.enter("victim")
        said = victim.stdout.readline()
        if "ready" not in said:
            self.skipTest(f"no pod can be made here: {victim.communicate()[1].strip()}")
        time.sleep(5.1)  # a daemon that has just started lets memory be asked for by those who come back
        pid = self.programs()["victim"]["pid"]
        inode = os.stat(self.daemon.path).st_ino
        hostile = self.enter("hostile", "--victim", str(pid), "--host", str(os.getpid()))
        if hostile.stdout.readline().strip() != "full":
            self.fail(hostile.communicate()[1] + self.daemon.said())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:  # while the hostile pod has all that it can get
            other.connect(self.daemon.path)
            other.send(hello("other"))
            other.settimeout(0.5)
            try:
                others = "ended" if other.recv(4096)[6] == END else "connects"
            except socket.timeout:
                others = "connects"  # nothing to tell it
        self.ctl("status")
        out, err = hostile.communicate(others + "\n", timeout=PATIENCE)
        self.assertEqual(hostile.returncode, 0, err)
        found = json.loads(out)
        log = self.daemon.said()
        for words, (code, text) in found["control"].items():
            with self.subTest(words):
                self.assertEqual(code, 1, text)
                self.assertIn("a process in a container", text)
        self.assertGreaterEqual(log.count(", container "), len(found["control"]), log)
        with self.subTest("moves of others"):
            self.assertEqual(log.count(f": move, process {pid}: Operation not permitted"), 1, log)
            self.assertEqual(found["move"][0], 1, found["move"])
        with self.subTest("answers to what others ask"):
            self.assertEqual(found["odd"], len(ODD))
        with self.subTest("memory of others"):
            self.assertEqual(found["memory"], ["refused"] * 2)
            self.assertEqual(log.count("which belongs to another user or container: refused"), 2, log)
        with self.subTest("a false process id"):
            self.assertNotEqual(found["as"], pid)
            self.assertIn(f"claims to be process {pid}: the claim is ignored", log)
        with self.subTest("hand-over"):
            self.assertEqual(found["handed"], 0)
        with self.subTest("quota and group of others"):
            # the hostile pod had all that a user may have, and named the host's group
            self.assertEqual(found["gang"], 0)
            victim.stdin.write("more\n")
            victim.stdin.flush()
            self.assertEqual(victim.stdout.readline().strip(), "runs", log)
            self.assertNotIn("(victim): held back", self.daemon.said())
            self.assertIn("(hostile): held back", self.daemon.said())
        self.assertFalse(self.programs()["host"].get("paused"))
        with self.subTest("remarks"):
            remarks = json.loads(self.ctl("status", "--json"))["notes"]
            self.assertIn("the host's remark", [each["text"] for each in remarks])
            self.assertNotIn(pid, [each["pid"] for each in remarks])
            self.assertNotIn("\nforged", log)
            self.assertNotIn("\x1b", log)
        with self.subTest("connections and descriptors"):
            self.assertGreater(found["refused"], 0)
            self.assertEqual(found["others"], "connects")
            wait_for(lambda: len(os.listdir(f"/proc/{self.daemon.process.pid}/fd")) < 40, PATIENCE, "the daemon to close what it was sent")
        with self.subTest("the log"):
            # some thousand refusals, claims and breaks of the protocol; the victim is none of those of whom lines are left out
            self.assertLess(len(log), 200000)
            self.assertRegex(log, r"user 0, container \w+: there are too many lines about it, and some are left out")
            asked = self.ctl_of("victim", "pause", str(os.getpid()))
            self.assertEqual(asked, 1)
            wait_for(lambda: ": pause, process %d, value 0: Operation not permitted" % os.getpid() in self.daemon.said()[len(log):], PATIENCE,
                     "a line about another pod")
        with self.subTest("the socket"):
            self.assertEqual(found["socket"], ["refused"] * len(found["socket"]))
            self.assertEqual(os.stat(self.daemon.path).st_ino, inode)
        with self.subTest("what the host's group has used"):
            self.assertEqual(json.loads(self.ctl("account", "--json", "job"))["programs"], 1)


# --- inside of a pod ---

def be_victim(path):
    program = Program(path, "victim", say_hello=False)
    program.socket.send(hello("victim", pid=os.getpid()))
    program.say(flags=WANT, demand=GIB)
    program.settle(lambda each: each.flags & RUNNING)
    print("ready", flush=True)
    obey(program, lambda: select.select([sys.stdin], [], [], 0)[0])
    sys.stdin.readline()
    program.say(flags=WANT, demand=7 * GIB)
    program.settle(lambda each: each.resident == 7 * GIB and each.flags & RUNNING)
    print("runs", flush=True)
    sys.stdin.readline()


def run_ctl(ctl, path, *words):
    done = subprocess.run([ctl, "--socket", path, *words], capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"gpusharectl {words}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def named(status, name):
    return next(each for device in status["devices"] for each in device["programs"] if each["name"] == name)


def use_up(path, victim):
    """Remarks in the victim's name, descriptors that nobody wants, and more connections than a user may have."""
    noisy = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    noisy.connect(path)
    noisy.send(hello("noisy", pid=os.getpid()))
    for i in range(2 * REMARKS):
        noisy.send(note(OTHER, f"remark {i}\nforged: line\x1b[2J", name="victim", pid=victim))
        time.sleep(0.05)  # else it is slowed down for it, and the rest is still under way at the end
    noisy.close()
    with open(os.devnull, "rb") as null:
        for _ in range(20):
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sender.connect(path)
            try:
                sender.sendmsg([hello("sender", pid=os.getpid())],
                               [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("200i", *[null.fileno()] * 200))])
            except OSError as error:  # the kernel keeps them from the daemon, which has asked for that (SO_PASSRIGHTS, Linux 6.16), or the
                if error.errno not in (errno.EPERM, errno.ETOOMANYREFS):  # daemon has not thrown away as many yet as a user may have open
                    raise
            sender.close()
    held, refused = [], 0
    for _ in range(100):
        each = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        each.settimeout(PATIENCE)
        try:
            each.connect(path)
            each.send(hello("many", pid=os.getpid()))
            held.append(each)
        except OSError:
            refused += 1
            each.close()
    wait_for(lambda: refused + sum(has_ended(each) for each in held) != 0, PATIENCE, "one too many to be refused")
    refused += sum(has_ended(each) for each in held)
    print("full", flush=True)
    others = sys.stdin.readline().strip()  # the host tries meanwhile
    for each in held:
        each.close()
    return refused, others


# messages of which nobody has asked for one, or that end the connection
MOVE, SEES, STATUS, CONTROL = 13, 12, 16, 17
ODD = [message(MOVE, CARD + CARD[::-1] + struct.pack("<IIiIQ160s", 1, step, 0, 0, GIB, b"\x1b[2Jforged")) for step in (1, 2, 3, 4, 99)] + [
    message(SEES, struct.pack("<16sQII64s", CARD, GIB, i, 64, b"card")) for i in (0, 1, 63, 64)] + [
    share_message(7), message(KIN, struct.pack("<QII", 1, 99, 0)), message(KIN, struct.pack("<QII", 0x1234, 7, 0)), message(STATUS, b""),
    message(200, b"x" * 100), b"short", hello("again")[:40]]


def say_odd_things(path):
    """One connection each: the daemon goes on, whatever it answers."""
    done = 0
    for data in ODD:
        each = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        each.connect(path)
        each.send(hello("odd", pid=os.getpid()))
        each.send(data)
        each.close()
        done += 1
    return done


def fill_log(path, victim):
    """Refusals without end on one connection, and a new connection for each of some hundred claims and breaks of the protocol."""
    pause = message(CONTROL, struct.pack("<IiQ", 4, victim, 0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.connect(path)
        one.settimeout(PATIENCE)
        for _ in range(2000):
            one.send(pause)
            one.recv(4096)
    for _ in range(300):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as each:
            each.connect(path)
            try:
                each.send(hello("claims", pid=victim))
                each.send(b"no message")
            except OSError:
                pass


def has_ended(connection):
    connection.setblocking(False)
    try:
        return connection.recv(4096, socket.MSG_PEEK) is not None  # the reason, or nothing
    except BlockingIOError:
        return False
    except OSError:
        return True


def replace_socket(path):
    """The folder is mounted read-only: what each attempt came to."""
    def remount():
        subprocess.run(["mount", "-o", "remount,bind,rw", os.path.dirname(path)], check=True, stderr=subprocess.DEVNULL)

    outcome = []
    for attempt in (lambda: os.unlink(path), lambda: os.rename(path, path + ".old"), lambda: os.chmod(path, 0o777),
                    lambda: os.close(os.open(path + ".new", os.O_CREAT | os.O_WRONLY)), remount):
        try:
            attempt()
            outcome.append("done")
        except (OSError, subprocess.CalledProcessError):
            outcome.append("refused")
    return outcome


def be_hostile(path, build, victim, host):
    # a sanitizer may not look at other threads here, and would fail for that
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    ctl = os.path.join(build, "lockd", "gpusharectl")
    control = {}
    for words in ([name, str(pid)] for name in ("pause", "resume", "evict", "suspend") for pid in (victim, host)):
        control[" ".join(words)] = words
    for words in (["pause", "all"], ["resume", "all"], ["evict", "all"],
                  ["set", "weight", str(victim), "1"], ["set", "class", str(victim), "batch"],
                  ["set", "quantum", "100"], ["reload"], ["trace", "--seconds", "0.1", "-o", "/dev/null"]):
        control[" ".join(words)] = words
    for name, words in control.items():
        done = subprocess.run([ctl, "--socket", path, *words], capture_output=True, text=True, check=False, timeout=PATIENCE)
        control[name] = [done.returncode, done.stdout + done.stderr]
    program = Program(path, "hostile", say_hello=False)
    program.socket.send(hello("hostile", pid=victim, weight=10000, priority=100, group="job"))
    program.say(flags=WANT, demand=GIB)
    lied = json.loads(run_ctl(ctl, path, "status", "--json"))
    program.close()
    program = Program(path, "hostile", say_hello=False)
    program.socket.send(hello("hostile", pid=os.getpid(), weight=10000, priority=100, group="job"))
    program.socket.send(message(KIN, MASTER))
    program.socket.send(share_message(0))  # an answer that nobody has asked for
    program.say(flags=WANT, demand=8 * GIB)
    handed = 0

    def hear(each):
        nonlocal handed
        handed += each.target.handed + bool(each.target.flags & GIVE) if each.target else 0
        return each.flags & RUNNING

    program.settle(hear)
    memory = []
    for number, pid in enumerate((victim, host)):
        other = Program(path, "opener", say_hello=False)
        other.socket.send(hello("opener", pid=os.getpid()))
        other.socket.send(open_message(TOKEN, pid, number))
        other.socket.settimeout(PATIENCE)
        answer = other.socket.recv(4096)
        memory.append("refused" if int.from_bytes(answer[36:40], "little", signed=True) < 0 else answer.hex())
        other.close()
    done = subprocess.run([ctl, "--socket", path, "move", str(victim), "GPU-" + CARD[::-1].hex()], capture_output=True, text=True, check=False, timeout=PATIENCE)
    odd = say_odd_things(path)
    refused, others = use_up(path, victim)
    own = named(json.loads(run_ctl(ctl, path, "status", "--json")), "hostile")
    assert own["weight"] <= 100 and own["priority"] <= 0, own
    # more than a user may have is held back, for this pod alone
    program.socket.send(state(seq=program.target.seq, flags=WANT, demand=9 * GIB, resident=program.resident, total=program.total))
    wait_for(lambda: "held back" in run_ctl(ctl, path, "status"), PATIENCE, "the quota")
    program.say(demand=8 * GIB)
    fill_log(path, victim)
    print(json.dumps({"control": control, "move": [done.returncode, done.stdout + done.stderr], "odd": odd, "memory": memory, "as": named(lied, "hostile")["pid"], "handed": handed,
                      "gang": own["gang_programs"], "refused": refused, "others": others, "socket": replace_socket(path)}))


def main():
    if "--inside" not in sys.argv:
        kit.main()
        return
    words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    if words["--inside"] == "victim":
        be_victim(words["--socket"])
    else:
        be_hostile(words["--socket"], words["--build"], int(words["--victim"]), int(words["--host"]))


main()
