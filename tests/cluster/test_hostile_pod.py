#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Root in a pod that has the programs' socket tries what it must not: to control others, to get their memory, to use up their
quota, to join their group, to be another process. Pods are control groups as kubelet names them, with namespaces of their own.
test_hostile_pod.py --build DIR"""
import json
import os
import shutil
import select
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "lockd")]
import kit  # noqa: E402
from fake import GIB, GIVE, PATIENCE, RUNNING, WANT, Daemon, Program, hello, open_message, state, wait_for  # noqa: E402

ROOTS = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
TOKEN = b"0123456789abcdef"
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
        self.daemon = Daemon(os.path.join(self.build, "lockd", "gpushare-lockd"), "--log-level", "info", "--max-memory", "8GiB")
        self.addCleanup(shutil.rmtree, self.daemon.folder)
        self.addCleanup(self.daemon.process.wait)
        self.addCleanup(self.daemon.process.kill)

    def enter(self, name, *words):
        """A process of this script in the pod: its root."""
        process = subprocess.Popen(
            ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.groups[name], *self.spaces, sys.executable, __file__,
             "--build", self.build, "--inside", name, "--socket", self.daemon.path, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def ctl(self, *words):
        done = subprocess.run([os.path.join(self.build, "lockd", "gpusharectl"), "--socket", self.daemon.path, *words],
                              capture_output=True, text=True, check=True, timeout=PATIENCE)
        return done.stdout

    def programs(self):
        return {each["name"]: each for device in json.loads(self.ctl("status", "--json"))["devices"] for each in device["programs"]}

    def test_nothing_works_and_all_is_logged(self):
        host = Program(self.daemon.path, "host", say_hello=False)  # root of the machine, as the pods' root is: uid 0
        self.addCleanup(host.close)
        host.socket.send(hello("host", group="job"))
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
        hostile = self.enter("hostile", "--victim", str(pid), "--host", str(os.getpid()))
        out, err = hostile.communicate(timeout=PATIENCE)
        self.assertEqual(hostile.returncode, 0, err)
        found = json.loads(out)
        log = self.daemon.said()
        for words, (code, text) in found["control"].items():
            with self.subTest(words):
                self.assertEqual(code, 1, text)
                self.assertIn("a process in a container", text)
        self.assertGreaterEqual(log.count(", container "), len(found["control"]), log)
        with self.subTest("memory of others"):
            self.assertEqual(found["memory"], ["refused"] * 2)
            self.assertEqual(log.count("which belongs to another user or container: refused"), 2, log)
        with self.subTest("a false process id"):
            self.assertNotEqual(found["as"], pid)
            self.assertIn(f"says that it is process {pid}: that does not count", log)
        with self.subTest("hand-over"):
            self.assertEqual(found["gifts"], 0)
        with self.subTest("quota and group of others"):
            # the hostile pod had all that a user may have, and named the host's group
            self.assertEqual(found["gang"], 0)
            victim.stdin.write("more\n")
            victim.stdin.flush()
            self.assertEqual(victim.stdout.readline().strip(), "runs", log)
            self.assertNotIn("(victim): held back", self.daemon.said())
            self.assertIn("(hostile): held back", self.daemon.said())
        self.assertFalse(self.programs()["host"].get("paused"))
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
    return subprocess.run([ctl, "--socket", path, *words], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


def named(status, name):
    return next(each for device in status["devices"] for each in device["programs"] if each["name"] == name)


def be_hostile(path, build, victim, host):
    ctl = os.path.join(build, "lockd", "gpusharectl")
    control = {}
    for words in ([name, str(pid)] for name in ("pause", "evict", "suspend") for pid in (victim, host)):
        control[" ".join(words)] = words
    for words in (["pause", "all"], ["set", "weight", str(victim), "1"], ["set", "class", str(victim), "batch"],
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
    program.say(flags=WANT, demand=8 * GIB)
    gifts = 0

    def hear(each):
        nonlocal gifts
        gifts += each.target.gifts + bool(each.target.flags & GIVE) if each.target else 0
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
    own = named(json.loads(run_ctl(ctl, path, "status", "--json")), "hostile")
    assert own["weight"] <= 100 and own["priority"] <= 0, own
    # more than a user may have is held back, for this pod alone
    program.socket.send(state(seq=program.target.seq, flags=WANT, demand=9 * GIB, resident=program.resident, total=program.total))
    wait_for(lambda: "held back" in run_ctl(ctl, path, "status"), PATIENCE, "the quota")
    program.say(demand=8 * GIB)
    print(json.dumps({"control": control, "memory": memory, "as": named(lied, "hostile")["pid"], "gifts": gifts,
                      "gang": own["gang_programs"]}))


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
