#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Status tells that a program's process is stopped, by a signal or in a debugger.

usage: test_halted.py --build BUILD [unittest options]"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runtime"))
from card import BuildTest, Card, Told, main  # noqa: E402
from kit import DETACH, INTERRUPT, SEIZE, resume, trace  # noqa: E402

ALL_CHILDREN = 0x40000000  # __WALL of waitpid(2)


class HaltedTest(BuildTest):
    def test_stopped_program(self):
        with Card(self.build, memory="64MiB", **Told.SMALL_CONTEXTS) as card:
            one = Told(card)
            one.say("zero 40")
            one.arrived(40 << 20)
            os.kill(one.child.pid, signal.SIGSTOP)
            one.until(lambda entry: entry["state"] == "stopped")
            self.assertEqual(one.entry()["state"], "stopped")
            resume(one.child.pid)
            one.until(lambda entry: entry["state"] != "stopped")
            self.assertNotEqual(one.entry()["state"], "stopped")

    def test_program_in_a_debugger(self):
        with Card(self.build, memory="64MiB", **Told.SMALL_CONTEXTS) as card:
            one = Told(card)
            one.say("zero 40")
            one.arrived(40 << 20)
            threads = [int(name) for name in os.listdir(f"/proc/{one.child.pid}/task")]
            if trace(SEIZE, one.child.pid) != 0:
                self.skipTest("ptrace is not allowed here")
            for thread in threads:
                if thread != one.child.pid:
                    trace(SEIZE, thread)
                trace(INTERRUPT, thread)
                os.waitpid(thread, ALL_CHILDREN)
            entry = one.until(lambda entry: entry["state"] == "in debugger")
            self.assertEqual(entry["state"], "in debugger")
            for thread in threads:
                trace(DETACH, thread)
            entry = one.until(lambda entry: entry["state"] != "in debugger")
            self.assertNotEqual(entry["state"], "in debugger")


if __name__ == "__main__":
    main()
