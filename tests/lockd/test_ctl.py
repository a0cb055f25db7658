#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl against a real daemon: what it prints, its JSON, its exit codes.

usage: test_ctl.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import shutil
import subprocess
import sys
import unittest

from fake import GIB, PAUSED, RUN, RUNNING, WANT, Daemon, Program, note, settle_all

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))


class CtlTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD, "--quantum", "60000")
        self.addCleanup(self.daemon.process.kill)
        self.one = Program(self.daemon.path, "train", total=10 * GIB)
        self.one.say(flags=WANT, demand=7 * GIB)
        self.one.settle(lambda p: p.flags & RUNNING)
        self.two = Program(self.daemon.path, "infer \x1b[31m", total=10 * GIB)
        self.two.say(flags=WANT, demand=7 * GIB)
        self.two.hear()
        while self.one.hear(0.2):
            self.one.obey()

    def tearDown(self):
        self.one.close()
        self.two.close()
        self.assertEqual(self.daemon.end(), 0)
        self.assertNotIn("Sanitizer", self.daemon.said())
        shutil.rmtree(self.daemon.folder)

    def ctl(self, *arguments, code=0, environment=None):
        result = subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=20,
                                env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path, **(environment or {})})
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertNotIn("Sanitizer", result.stderr)
        return result.stdout + result.stderr

    def status(self):
        return json.loads(self.ctl("status", "--json"))

    def programs(self):
        return {p["name"]: p for p in self.status()["devices"][0]["programs"]}

    def test_status_text_names_everybody(self):
        text = self.ctl("status")
        self.assertIn("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", text)
        self.assertRegex(text, rf"{os.getpid()}  train +runs +7.0 GiB +7.0 GiB +0 B")
        self.assertRegex(text, r"infer \?\[31m +waits +7.0 GiB +0 B +7.0 GiB")  # no escape sequence reaches a terminal
        self.assertIn("leases: capacity 10.0 GiB, demand 14.0 GiB, resident 7.0 GiB, quantum 60.0 s, 1 waiting", text)
        self.assertNotIn("\x1b", text)

    def test_status_json_has_the_schema(self):
        answer = self.status()
        self.assertEqual(answer["running"], True)
        self.assertEqual(answer["daemon"]["quantum_ns"], 60 * 10**9)
        device = answer["devices"][0]
        self.assertEqual((device["mode"], device["waiting"], device["total"]), ("leases", 1, 10 * GIB))
        one = self.programs()["train"]
        self.assertEqual((one["state"], one["demand"], one["resident"], one["lease"]), ("runs", 7 * GIB, 7 * GIB, True))
        self.assertEqual(answer["notes"], [])

    def test_note_of_an_ended_program_is_kept(self):
        last = Program(self.daemon.path, say_hello=False)
        for _ in range(2):
            last.socket.send(note(1, "nothing was routed", name="prog", pid=4242))
        last.close()
        notes = self.status()["notes"]
        self.assertEqual(len(notes), 1)
        self.assertEqual((notes[0]["text"], notes[0]["kind"], notes[0]["count"]), ("nothing was routed", "unrouted", 2))
        self.assertIn("nothing was routed", self.ctl("status"))

    def test_pause_and_resume_one_program(self):
        # both have this process's id: a pause concerns both
        self.assertIn("paused 2 programs", self.ctl("pause", str(os.getpid())))
        while not self.one.target.flags & PAUSED:
            self.one.hear()
        self.assertFalse(self.one.target.flags & RUN)
        self.one.obey()
        self.assertIn(self.programs()["train"]["state"], ("paused", "stopping"))
        self.assertIn("resumed 2 programs", self.ctl("resume", "all"))
        settle_all([self.one, self.two], lambda: (self.one.flags | self.two.flags) & RUNNING)

    def test_set_quantum_takes_effect_at_once(self):
        self.ctl("set", "quantum", "1")
        self.assertEqual(self.status()["devices"][0]["quantum_ns"], 10**6)
        while self.one.target.flags & RUN:
            self.assertIsNotNone(self.one.hear(5))
        self.ctl("set", "quantum", "auto")
        self.assertIsNone(self.status()["daemon"]["quantum_ns"])

    def test_set_reserve_lowers_the_capacity(self):
        self.ctl("set", "reserve", "1GiB")
        self.assertEqual(self.status()["devices"][0]["capacity"], 9 * GIB)

    def test_wrong_usage_says_what(self):
        for arguments, code, said in ((["frob"], 2, "unknown command"), ([], 2, "no command"), (["set"], 2, "usage"),
                                      (["set", "quantum", "0"], 2, "outside"), (["set", "quantum", "soon"], 2, "number"),
                                      (["set", "colour", "3"], 2, "no such setting"), (["pause", "-1"], 2, "process id"),
                                      (["pause"], 2, "needed"), (["pause", "99999999999"], 2, "process id"),
                                      (["resume", "1"], 1, "no program with process id 1"),
                                      (["status", "--frob"], 2, "unknown option"), (["status", "x"], 2, "no argument")):
            self.assertIn(said, self.ctl(*arguments, code=code))

    def test_no_daemon_is_told(self):
        nowhere = {"GPUSHARE_SOCKET": self.daemon.path + ".not"}
        for command in (["status"], ["pause", "all"], ["set", "idle", "10"]):
            self.assertIn("no gpushare-lockd is running", self.ctl(*command, code=3, environment=nowhere))
        self.assertEqual(json.loads(self.ctl("status", "--json", environment=nowhere)),
                         {"running": False, "socket": nowhere["GPUSHARE_SOCKET"]})

    def test_help_lists_all_commands(self):
        text = self.ctl("--help")
        for command in ("status", "set", "pause", "resume", "exit codes"):
            self.assertIn(command, text)
        self.assertIn("gpusharectl ", self.ctl("--version"))


if __name__ == "__main__":
    unittest.main()
