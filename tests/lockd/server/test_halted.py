#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Status tells that a program's process is stopped.

usage: test_halted.py --build BUILD [unittest options]"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runtime"))
from card import BuildTest, Card, Told, main  # noqa: E402


class HaltedTest(BuildTest):
    def test_stopped_program(self):
        with Card(self.build, memory="64MiB", **Told.SMALL_CONTEXTS) as card:
            one = Told(card)
            one.say("zero 40")
            one.arrived(40 << 20)
            os.kill(one.child.pid, signal.SIGSTOP)
            one.until(lambda entry: entry["state"] == "stopped")
            self.assertEqual(one.entry()["state"], "stopped")
            os.kill(one.child.pid, signal.SIGCONT)
            one.until(lambda entry: entry["state"] != "stopped")
            self.assertNotEqual(one.entry()["state"], "stopped")


if __name__ == "__main__":
    main()
