#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a process in a container may ask of the daemon, also when it is root there: namespaces made by unshare(1).

usage: test_contained.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import glob
import json
import os
import pwd
import shutil
import subprocess
import sys
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of lockd
FAKE = os.path.dirname(next(iter(glob.glob(os.path.join(TESTS, "fake.py")) + glob.glob(os.path.join(TESTS, "*", "fake.py")))))
sys.path.insert(0, FAKE)
from fake import GIB, PATIENCE, RUNNING, WANT, Daemon, Program, control_group  # noqa: E402

LOCKD, CTL = "", ""

# the containers: a pid namespace of its own (as root of the machine), or a user namespace with a root of its own
CONTAINERS = {"pid namespace": ["unshare", "--pid", "--fork", "--mount-proc"], "user namespace": ["unshare", "--user", "--map-root-user"]}
REFUSED = "a process in a container may"

# a program in a container, and gpusharectl beside it
INSIDE = """
import json, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from fake import GIB, WANT, RUNNING, Program, hello
path, ctl = sys.argv[2:]
program = Program(path, "inside", say_hello=False)
program.socket.send(hello("inside", weight=10000))
program.say(flags=WANT, demand=GIB)
program.settle(lambda p: p.flags & RUNNING)
def run(*words):
    done = subprocess.run([ctl, "--socket", path, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
status = json.loads(run("status", "--json")[1])
own = next(p for device in status["devices"] for p in device["programs"] if p["name"] == "inside")
print(json.dumps({"pause": run("pause", str(own["pid"])), "limit": run("set", "weight", str(own["pid"]), "7"),
                  "weight": own["weight"]}))
"""


# a program in the control group that is its first argument
IN_GROUP = """
import os, subprocess, sys
with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as file:
    file.write(str(os.getpid()))
sys.path.insert(0, sys.argv[2])
from fake import GIB, WANT, RUNNING, Program
program = Program(sys.argv[3], "inside")
program.say(flags=WANT, demand=GIB)
program.settle(lambda p: p.flags & RUNNING)
sys.exit(subprocess.run(sys.argv[4:], check=False).returncode)
"""


class ContainedTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD, "--log-level", "info")
        self.addCleanup(shutil.rmtree, self.daemon.folder)
        self.addCleanup(self.daemon.process.kill)
        self.program = Program(self.daemon.path, "train", total=10 * GIB)
        self.addCleanup(self.program.close)
        self.program.say(flags=WANT, demand=7 * GIB)
        self.program.settle(lambda p: p.flags & RUNNING)

    def run_in(self, name, *command):
        done = subprocess.run([*CONTAINERS[name], *command], capture_output=True, text=True, check=False, timeout=PATIENCE)
        if "unshare failed" in done.stderr or "unshare:" in done.stderr:
            self.skipTest(done.stderr.strip())
        return done.returncode, done.stdout, done.stderr

    def ctl(self, name, *words):
        return self.run_in(name, CTL, "--socket", self.daemon.path, *words)

    def test_nothing_of_others_is_changed(self):
        pid = str(os.getpid())
        for name in CONTAINERS:
            for words in (["pause", pid], ["resume", pid], ["evict", pid], ["suspend", pid], ["set", "weight", pid, "1"],
                          ["set", "quantum", "100"], ["reload"], ["pause", "all"]):
                with self.subTest(name=name, words=words):
                    code, out, err = self.ctl(name, *words)
                    self.assertEqual((code, out), (1, ""), err)
                    self.assertIn(REFUSED, err)
            with self.subTest(name=name, words="trace"):
                code, _, err = self.ctl(name, "trace", "--seconds", "0.1", "-o", os.path.join(self.daemon.folder, "trace"))
                self.assertEqual(code, 1)
                self.assertIn("a process in a container gets no trace", err)
        self.assertFalse(json.loads(self.ctl("pid namespace", "status", "--json")[1])["devices"][0]["programs"][0].get("paused"))
        self.daemon.end()
        self.assertIn(", container", self.daemon.said())

    def test_status_is_shown(self):
        for name in CONTAINERS:
            with self.subTest(name):
                code, out, err = self.ctl(name, "status")
                self.assertEqual((code, err), (0, ""))
                self.assertIn("train", out)

    def test_own_container_is_steered(self):
        for name in CONTAINERS:
            with self.subTest(name):
                code, out, err = self.run_in(name, sys.executable, "-c", INSIDE, FAKE, self.daemon.path, CTL)
                self.assertEqual((code, err), (0, ""), out)
                said = json.loads(out)
                self.assertEqual(said["pause"][0], 0, said)
                self.assertIn("paused", said["pause"][1])
                self.assertEqual(said["limit"][0], 1, said)  # a program's weight belongs to those outside
                self.assertEqual(said["weight"], 100, said)  # more than the usual one is not granted

    def test_names_of_control_groups_are_shown(self):
        """As kubelet names them: the pod, in it the container."""
        pod, container = "0a1b2c3d-4e5f-6789-abcd-ef0123456789", "0123456789abcdef" * 4
        try:
            group = control_group(self, "kubepods", "pod" + pod, container)
        except OSError as error:
            self.skipTest(f"no control group can be made: {error}")
        def ask(*command):
            done = subprocess.run([sys.executable, "-c", IN_GROUP, group, FAKE, self.daemon.path, *command], capture_output=True, text=True,
                                  check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        programs = json.loads(ask(CTL, "--socket", self.daemon.path, "status", "--json"))["devices"][0]["programs"]
        inside, outside = (next(p for p in programs if p["name"] == name) for name in ("inside", "train"))
        self.assertEqual((inside["pod"], inside["container"]), (pod, container))
        self.assertIsNone(outside["pod"])
        self.assertEqual(inside["user"], pwd.getpwuid(os.geteuid()).pw_name)
        self.assertEqual([inside[name] for name in ("pod_name", "pod_namespace", "container_name")], [None] * 3)

        # kubelet's folders, seen by gpusharectl alone
        kubelet = ("mount -t tmpfs none /var/log && mkdir -p /var/log/pods/team_train-7d9c_" + pod + " /var/log/containers && "
                   "ln -s /nonexistent /var/log/containers/train-7d9c_team_worker-0-" + container + ".log && exec \"$@\"")
        in_pod = ["unshare", "--mount", "sh", "-c", kubelet, "sh", CTL, "--socket", self.daemon.path]
        if subprocess.run([*in_pod[:3], "-c", "mount -t tmpfs none /var/log"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no folder can be mounted")
        programs = json.loads(ask(*in_pod, "status", "--json"))["devices"][0]["programs"]
        inside, outside = (next(p for p in programs if p["name"] == name) for name in ("inside", "train"))
        self.assertEqual((inside["pod_name"], inside["pod_namespace"], inside["container_name"]), ("train-7d9c", "team", "worker-0"))
        self.assertIsNone(outside["pod_name"])
        self.assertIn("container worker-0, pod team/train-7d9c", ask(*in_pod, "status"))
        labels = (f'container="{container}",container_name="worker-0",pod="{pod}",pod_name="train-7d9c",pod_namespace="team"')
        series = [line for line in ask(*in_pod, "metrics").splitlines() if line.startswith("gpushare_program_") and 'name="inside"' in line]
        self.assertEqual([line for line in series if labels not in line], [])
        self.assertGreater(len(series), 20)

    def test_outside_steers_what_is_inside(self):
        """The machine's user does what it could before."""
        done = subprocess.run([CTL, "--socket", self.daemon.path, "pause", str(os.getpid())], capture_output=True, text=True,
                              check=False, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
