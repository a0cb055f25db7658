#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl doctor against a real daemon, and of a running program.

usage: test_ctl_doctor.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import signal
import subprocess
import time
import unittest

from ctl_case import CTL, CtlCase  # first: it leads to the folders above
from fake import GIB, PATIENCE, WANT, Program, wait_for
from kit import INTERRUPT, SEIZE, trace
from other_user import AS_OTHER_USER, copy_for_others


class DoctorTest(CtlCase):
    def findings(self, *arguments, code=None, environment=None):
        result = subprocess.run([CTL, "doctor", "--json", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path, **(environment or {})})
        if code is not None:
            self.assertEqual(result.returncode, code, result.stdout)
        answer = json.loads(result.stdout)
        return answer, {f["check"]: f for f in answer["findings"]}

    def test_doctor_names_what_is_in_the_way(self):
        answer, found = self.findings(code=0)
        self.assertEqual(found["daemon.reachable"]["level"], "ok")
        self.assertIn(answer["verdict"], ("ok", "info", "warn"))
        for environment, check in (({"GPUSHARE_DISABLE": "1"}, "environment.disable"),
                                   ({"CUDA_VISIBLE_DEVICES": ""}, "environment.devices"),
                                   ({"GPUSHARE_LOCKD": "/nowhere"}, "environment.lockd")):
            answer, found = self.findings(environment=environment, code=1)
            self.assertEqual((answer["verdict"], found[check]["level"]), ("fail", "fail"))
            self.assertTrue(found[check]["advice"])
        _, found = self.findings("/etc/passwd", code=1)
        self.assertIn("no program", found["file.kind"]["text"])
        _, found = self.findings("/nowhere/x", code=1)
        self.assertIn("No such file", found["file.read"]["text"])
        _, found = self.findings("/bin/true", code=1)
        self.assertEqual(found["file.prepared"]["level"], "fail")

    def test_doctor_examines_a_running_program(self):
        sleeper = subprocess.Popen(["sleep", "600"], env={**os.environ, "GPUSHARE_SOCKET": "/elsewhere/lockd.sock"})
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        wait_for(lambda: os.readlink(f"/proc/{sleeper.pid}/exe").endswith(("sleep", "coreutils", "busybox")), PATIENCE, "exec")
        _, found = self.findings(str(sleeper.pid), code=1)
        self.assertIn("/elsewhere", found["environment.socket"]["text"])
        for check in ("process.library", "process.cuda", "program.connected", "file.prepared"):
            self.assertEqual(found[check]["level"], "fail", check)
        _, found = self.findings("4194300", code=1)
        self.assertEqual(found["process.there"]["level"], "fail")
        self.ctl("pause", str(os.getpid()))
        _, found = self.findings(str(os.getpid()), code=1)
        self.assertEqual(found["program.connected"]["level"], "ok")
        self.assertEqual(found["program.paused"]["level"], "fail")

    def test_doctor_names_a_stopped_program(self):
        sleeper = subprocess.Popen(["sleep", "600"])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        _, found = self.findings(str(sleeper.pid), code=1)
        self.assertNotIn("process.stopped", found)
        sleeper.send_signal(signal.SIGSTOP)
        os.waitpid(sleeper.pid, os.WUNTRACED)
        _, found = self.findings(str(sleeper.pid), code=1)
        self.assertEqual((found["process.stopped"]["level"], found["process.stopped"]["command"]), ("fail", f"kill -CONT {sleeper.pid}"))

    def test_doctor_names_a_program_in_a_debugger(self):
        sleeper = subprocess.Popen(["sleep", "600"])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        if trace(SEIZE, sleeper.pid) != 0:
            self.skipTest("ptrace is not allowed here")
        _, found = self.findings(str(sleeper.pid), code=1)
        self.assertEqual(found["process.traced"]["level"], "info")
        self.assertIn(f"watched by process {os.getpid()} ", found["process.traced"]["text"])
        self.assertEqual(trace(INTERRUPT, sleeper.pid), 0)
        os.waitpid(sleeper.pid, 0)
        _, found = self.findings(str(sleeper.pid), code=1)
        self.assertEqual(found["process.traced"]["level"], "fail")
        self.assertIn(f"stopped by process {os.getpid()} ", found["process.traced"]["text"])
        self.assertIn("debugger", found["process.traced"]["advice"])

    def test_doctor_names_background_and_host_memory(self):
        own = str(os.getpid())
        _, found = self.findings(own)
        self.assertNotIn("program.background", found)
        self.assertNotIn("program.host", found)
        self.ctl("set", "class", own, "background")
        self.ctl("set", "host", "1GiB")
        program = Program(self.daemon.path, "greedy")
        self.addCleanup(program.close)
        program.say(flags=WANT, demand=GIB, host_used=GIB)
        wait_for(lambda: json.loads(self.ctl("status", "--json"))["daemon"]["host_used"] >= GIB, PATIENCE, "the report")
        _, found = self.findings(own)
        self.assertIn("background", found["program.background"]["text"])
        self.assertEqual(found["program.host"]["level"], "warn")

    @unittest.skipIf(os.geteuid(), "needs root, to become another user")
    def test_user_who_is_not_in_the_group_is_told(self):
        ctl, = copy_for_others(self, CTL)
        environment = {"GPUSHARE_SOCKET": self.daemon.path, "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        os.chmod(os.path.dirname(self.daemon.path), 0o755)
        for mode in (0o660, 0o666):  # kept out by the socket, and refused by the daemon
            os.chmod(self.daemon.path, mode)
            done = subprocess.run([ctl, "doctor", "--json"], env=environment, cwd="/", capture_output=True, text=True, timeout=PATIENCE,
                                  check=False, **AS_OTHER_USER)
            found = {f["check"]: f for f in json.loads(done.stdout)["findings"]}["daemon.reachable"]
            self.assertEqual(found["level"], "fail", found)
            self.assertIn("ask an administrator to add you to its group", found["advice"])
            self.assertEqual(found["command"], 'sudo usermod -aG gpushare "$USER"')

    def test_stopped_daemon_is_told_within_its_time(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            _, found = self.findings(code=1)
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        self.assertIn("no answer within 3 s", found["daemon.reachable"]["text"])
        self.assertLess(time.monotonic() - began, PATIENCE)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
