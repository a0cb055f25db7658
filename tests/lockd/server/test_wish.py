#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program asks for by itself (WISH): what the daemon does, and what it refuses.

usage: test_wish.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import GIB, PATIENCE, RUN, RUNNING, WANT, WISH, Daemon, Program, message, wait_for, wish  # noqa: E402  (in the folder above)

LOCKD = CTL = None
CLASS, SUSPEND = 1, 2


class WishTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.end)

    def ctl(self, *words):
        done = subprocess.run([CTL, "--socket", self.daemon.path, *words], capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout

    def entry(self):
        status = json.loads(self.ctl("status", "--json"))
        return status["devices"][0]["programs"][0] if status["devices"] else None

    def running(self):
        program = Program(self.daemon.path)
        program.say(flags=WANT, demand=GIB)
        while program.target is None or not program.target.flags & RUN or program.target.budget < GIB:
            self.hear(program)
        program.say(flags=WANT | RUNNING, resident=GIB)
        return program

    def hear(self, program):
        self.assertIsNotNone(program.hear())

    def is_refused(self, program, data):
        program.socket.send(data)
        try:
            while program.hear() is not None:
                pass
        except EOFError:
            return True
        return False

    def test_suspended_by_its_own_wish_and_resumed(self):
        program = self.running()
        for _ in range(2):
            program.socket.send(wish(SUSPEND))
            program.socket.send(wish(SUSPEND | CLASS, 2))  # says it again, and more
            while program.target.flags & RUN:
                self.hear(program)
            self.assertTrue(self.entry()["paused"])
            program.say(flags=WANT)
            while program.target.budget != 0:
                self.hear(program)
            program.say(resident=0)
            program.socket.send(wish(CLASS, 2))
            while not (program.target.flags & RUN and program.target.budget >= GIB):
                self.hear(program)
            program.say(flags=WANT | RUNNING, resident=GIB)
            self.assertFalse(self.entry()["paused"])

    def test_memory_that_is_heard_of_later_leaves_too_and_never_runs(self):
        """A program says that it suspends itself before its state: it had no daemon, or has just allocated."""
        program = Program(self.daemon.path)
        program.socket.send(wish(SUSPEND))
        for demand in (GIB, 2 * GIB):
            program.say(flags=WANT, demand=demand, resident=demand)
            while program.target is None or program.target.budget != 0:
                self.hear(program)
                self.assertFalse(program.target.flags & RUN)
            program.say(resident=0)
        program.socket.send(wish(0))
        while not (program.target.flags & RUN and program.target.budget >= 2 * GIB):
            self.hear(program)

    def test_a_person_resumes_it_and_its_old_wish_does_not_count_again(self):
        program = self.running()
        program.socket.send(wish(SUSPEND))
        wait_for(lambda: self.entry()["paused"], PATIENCE, "it to be paused")
        self.ctl("resume", str(os.getpid()))
        self.assertFalse(self.entry()["paused"])
        program.socket.send(wish(SUSPEND | CLASS, 1))
        program.socket.send(wish(SUSPEND | CLASS, 3))
        program.say(flags=WANT | RUNNING, demand=2 * GIB)
        while program.target.budget < 2 * GIB:
            self.hear(program)
        self.assertFalse(self.entry()["paused"])

    def test_what_a_person_paused_a_wish_does_not_resume(self):
        program = self.running()
        self.ctl("pause", str(os.getpid()))
        program.socket.send(wish(SUSPEND))
        program.socket.send(wish(0))
        program.say()
        self.assertTrue(self.entry()["paused"])

    def test_wrong_wishes_end_the_connection_and_no_other(self):
        other = self.running()
        for data in (wish(4), wish(0xffffffff), wish(CLASS, 4), wish(CLASS, 0xffffffff), wish(0, 1), wish(SUSPEND, 2),
                     message(WISH, struct.pack("<I", 0)), message(WISH, struct.pack("<III", 0, 0, 0)), message(WISH, b"")):
            self.assertTrue(self.is_refused(Program(self.daemon.path), data), data)
        early = Program(self.daemon.path, say_hello=False)
        self.assertTrue(self.is_refused(early, wish(0)))
        other.say()
        self.assertEqual(self.entry()["state"], "runs")


if __name__ == "__main__":
    LOCKD, CTL = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
