#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a group's programs have used (ACCOUNT): those that are connected, and those that have ended in any way.

usage: test_account.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import END, GIB, MIB, PATIENCE, RUN, RUNNING, WANT, Daemon, Program, Refused, hello, message  # noqa: E402  (in the folder above)

LOCKD = CTL = None
ACCOUNT = 28
SLOTS = 512  # LOCKD_ACCOUNTS


class AccountTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.end)

    def ctl(self, *words):
        return subprocess.run([CTL, "--socket", self.daemon.path, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)

    def account(self, group):
        done = self.ctl("account", "--json", group)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def program(self, group, uuid=bytes(16), **state):
        program = Program(self.daemon.path, say_hello=False, uuid=uuid)
        program.socket.send(hello(group=group))
        program.say(**state)
        self.assertIsNotNone(program.hear())
        program.obey()
        return program

    def test_programs_of_a_group_are_added_up_also_after_their_end(self):
        one = self.program("job-1", moved_out=10 * MIB, moved_in=4 * MIB)
        other = self.program("job-1", moved_out=3 * MIB, moved_in=MIB)
        self.addCleanup(self.program("job-2", moved_out=7 * MIB).close)
        both = self.account("job-1")
        self.assertEqual([both[key] for key in ("group", "programs", "connected", "moved_out", "moved_in")],
                         ["job-1", 2, 2, 13 * MIB, 5 * MIB])
        one.close()
        one = self.account("job-1")
        self.assertEqual([one[key] for key in ("programs", "connected", "moved_out", "moved_in")], [2, 1, 13 * MIB, 5 * MIB])
        self.assertRegex(self.ctl("account", "job-1").stdout, r"^2 programs, 1 connected, moved out 13\.0 MiB, moved in 5\.0 MiB, ran for ")
        other.close()
        none = self.account("job-1")
        self.assertEqual([none[key] for key in ("programs", "connected", "moved_out", "moved_in")], [2, 0, 13 * MIB, 5 * MIB])
        self.program("job-1", moved_out=MIB).close()  # another step of the same name goes on counting
        self.assertEqual(self.account("job-1")["moved_out"], 14 * MIB)

    def test_time_counts(self):
        runner = self.program("run", flags=WANT, demand=12 * GIB)
        runner.settle(lambda program: program.flags & RUNNING)
        waiter = self.program("wait", flags=WANT, demand=12 * GIB)
        self.assertGreater(self.account("run")["gpu_ns"], 0)
        waiter.close()
        waited, again = self.account("wait"), self.account("wait")
        self.assertGreater(waited["wait_ns"], 0)
        self.assertEqual(waited["wait_longest_ns"], waited["wait_ns"])
        self.assertEqual(waited["gpu_ns"], 0)
        self.assertEqual(again, waited)  # nothing counts on after the end
        self.assertTrue(runner.target.flags & RUN)

    def test_a_group_that_nobody_named(self):
        done = self.ctl("account", "nothing")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("has named the group 'nothing'", done.stderr)
        self.assertEqual(self.ctl("account").returncode, 2)
        self.assertIn("at most 31 characters", self.ctl("account", "x" * 32).stderr)

    def test_old_accounts_make_way(self):
        for number in range(SLOTS + 1):
            self.program(f"g{number}", moved_out=number).close()
            if number % 32 == 0:
                self.assertEqual(self.account(f"g{number}")["moved_out"], number)
        self.assertIsNone(self.account("g0"))
        self.assertEqual(self.account("g1")["moved_out"], 1)

    def test_wrong_questions_end_the_connection(self):
        for body in (struct.pack("<32sII5Q", b"", 0, 0, 0, 0, 0, 0, 0), struct.pack("<32sII5Q", b"job", 0, 1, 0, 0, 0, 0, 0), b"job"):
            asker = Program(self.daemon.path, say_hello=False)
            asker.socket.send(message(ACCOUNT, body))
            with self.assertRaises(EOFError) as caught:
                asker.hear()
            self.assertNotIsInstance(caught.exception, Refused)

    def test_what_the_question_says_is_not_the_answer(self):
        asker = Program(self.daemon.path, say_hello=False)
        asker.socket.send(message(ACCOUNT, struct.pack("<32sII5Q", b"job", 9, 0, 9, 9, 9, 9, 9)))
        self.assertEqual(struct.unpack("<IHHII", asker.socket.recv(4096)[:16])[2], END)


if __name__ == "__main__":
    LOCKD, CTL = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2, warnings="ignore")
