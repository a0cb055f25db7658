#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Very many clients, and a daemon without descriptors: callers are told, and others served.

usage: test_full.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from callers import CARD_BYTES, connect, drain, with_descriptors
from fake import GIB, MIB, PATIENCE, RUNNING, STATUS, WANT, Daemon, Program, hello, message, wait_for

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))


class FullTest(unittest.TestCase):
    def test_without_descriptors_callers_are_told_and_others_served(self):
        daemon = Daemon(with_descriptors(self, LOCKD, 64))
        self.addCleanup(daemon.process.kill)
        first = Program(daemon.path, total=CARD_BYTES)
        first.say(demand=MIB, flags=WANT)
        first.settle(lambda p: p.flags & RUNNING)
        crowd, told = [], 0
        for _ in range(150):
            caller = connect(daemon.path)
            crowd.append(caller)
            try:
                caller.send(hello("crowd"))
            except OSError:
                pass
        for caller in crowd[60:]:
            told += "no file descriptor left" in (drain(caller) or "")
        self.assertGreater(told, 80)
        first.say(demand=8 * GIB)  # beyond the last target: must be answered
        self.assertIsNotNone(first.hear(PATIENCE))
        for caller in crowd:
            caller.close()

        def serves():
            late = Program(daemon.path, total=CARD_BYTES)
            try:
                late.say(demand=MIB)
                return late.hear() is not None
            except (OSError, EOFError):  # refused: not all of them have gone
                return False
        wait_for(serves, PATIENCE, "it to serve again")
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)

    def test_without_any_descriptor_it_listens_again_when_there_are_some(self):
        daemon = Daemon(LOCKD)
        self.addCleanup(daemon.process.kill)
        first = Program(daemon.path, total=CARD_BYTES)
        first.say(demand=MIB)
        self.assertIsNotNone(first.hear(PATIENCE))  # it has started: what it needs for that is there
        first.close()
        pid, limits = daemon.process.pid, resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))  # not even for its reserve
        caller = connect(daemon.path)
        time.sleep(0.3)  # nobody is connected whose end would wake it
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        late = Program(daemon.path, total=CARD_BYTES)
        late.say(demand=MIB)
        self.assertIsNotNone(late.hear(PATIENCE))
        caller.close()
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)

    def test_whoever_asks_and_hangs_up_at_once_holds_up_nobody(self):
        daemon = Daemon(LOCKD)
        self.addCleanup(daemon.process.kill)
        first = Program(daemon.path, total=CARD_BYTES)  # alone: the next connection follows it in the daemon's list
        first.say(demand=MIB, flags=WANT)
        first.settle(lambda p: p.flags & RUNNING)
        for kind, body in ((23, struct.pack("<Q", 10**9)), (STATUS, b"")):  # a trace, the status
            daemon.process.send_signal(signal.SIGSTOP)  # question and end arrive together
            caller = connect(daemon.path)
            caller.send(message(kind, body))
            caller.close()
            daemon.process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
            first.say(demand=first.demand + 2 * GIB)  # beyond the last target: must be answered
            self.assertIsNotNone(first.hear(PATIENCE), "the daemon does not answer any more")
            first.obey()
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)

    def cpu(self, process):
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, process):
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))

    def test_thousand_programs(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        daemon = Daemon(LOCKD)
        self.addCleanup(daemon.process.kill)
        asan = "libasan" in open(f"/proc/{daemon.process.pid}/maps", encoding="ascii").read()
        empty = self.memory(daemon.process)
        crowd = []
        began = time.monotonic()
        for i in range(1000):
            program = Program(daemon.path, f"crowd-{i}", total=80 * GIB)
            program.say(demand=MIB)
            crowd.append(program)
        for program in crowd:
            self.assertIsNotNone(program.hear())
        took = time.monotonic() - began
        for program in crowd:
            while program.hear(0) is not None:
                pass
            program.say()
        time.sleep(0.5)
        each = (self.memory(daemon.process) - empty) / 1000
        answer = json.loads(subprocess.run([CTL, "--socket", daemon.path, "status", "--json"], capture_output=True, text=True,
                                           timeout=PATIENCE, check=True).stdout)
        self.assertEqual(len(answer["devices"][0]["programs"]), 1000)
        idle, end = 1, time.monotonic() + PATIENCE
        while idle >= 0.02 and time.monotonic() < end:  # it may be late with what was said
            before, since = self.cpu(daemon.process), time.monotonic()
            time.sleep(3)
            idle = (self.cpu(daemon.process) - before) / (time.monotonic() - since)
        print(f"1000 programs: connected and answered in {took:.2f} s, {each:.0f} bytes each, idle {100 * idle:.2f} % CPU")
        if not asan:
            self.assertLess(each, 4096)
        self.assertLess(idle, 0.02)  # the clock ticks are 10 ms: a finer figure is printed by hand over minutes
        for program in crowd:
            program.close()
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
