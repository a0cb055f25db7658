#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl trace against a real daemon: a timeline of turns and moves.

usage: test_ctl_trace.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import re
import signal
import subprocess
import time
import unittest

from ctl_case import CTL, CtlCase  # first: it leads to the folders above
from fake import MOVING, PATIENCE, RUN, RUNNING, WANT, wait_for


class TraceTest(CtlCase):
    def turns(self, count):
        """Both programs run so many times, and say when they copy."""
        end = time.monotonic() + PATIENCE
        runs, before = {self.one: 0, self.two: 0}, {}
        while min(runs.values()) < count:
            self.assertLess(time.monotonic(), end, "turns are taken")
            for program in (self.one, self.two):
                if program.hear(0.02) is not None:
                    out = program.target.budget < program.resident
                    program.say(flags=(program.flags & (WANT | (0 if out else RUNNING))) | MOVING)
                    time.sleep(0.02)
                    program.obey()
                runs[program] += program.flags & RUNNING > before.get(program, RUNNING)
                before[program] = program.flags & RUNNING

    def record(self, *arguments):
        """A recording that is under way: it is ready to be interrupted, and has asked the daemon."""
        recording = subprocess.Popen([CTL, "--socket", self.daemon.path, "trace", "--seconds", "600", *arguments],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(recording.kill)

        def is_connected():
            folder = f"/proc/{recording.pid}/fd/"
            try:
                return any(os.readlink(folder + fd).startswith("socket:") for fd in os.listdir(folder))
            except FileNotFoundError:  # it has just closed a file
                return False
        wait_for(is_connected, PATIENCE, "gpusharectl to connect")
        self.wait_for_events(recording)
        return recording

    def wait_for_events(self, recording):
        """It sleeps after the daemon has answered others twice: it has asked, and has read what there was for it until now."""
        def sleeps():
            with open(f"/proc/{recording.pid}/status", encoding="ascii") as file:
                return re.search(r"^State:\s*S", file.read(), re.MULTILINE)
        for _ in range(2):
            wait_for(sleeps, PATIENCE, "gpusharectl to wait for events")
            self.ctl("status")
        wait_for(sleeps, PATIENCE, "gpusharectl to wait for events")

    def recorded(self, recording):
        self.wait_for_events(recording)
        recording.send_signal(signal.SIGINT)
        out, said = recording.communicate(timeout=PATIENCE)
        self.assertEqual(recording.returncode, 0, said)
        return out, said

    def test_trace_is_a_timeline(self):
        path = os.path.join(self.daemon.folder, "trace.json")
        self.ctl("set", "quantum", "100")
        began = time.monotonic()
        recording = self.record("-o", path)
        self.turns(3)
        self.assertIn("2 tracks", self.recorded(recording)[1])
        took = time.monotonic() - began
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        self.assertEqual(names, {"train", "infer ?[31m"})
        for track in (1, 2):
            spans = [e for e in events if e["ph"] == "X" and e["tid"] == track]
            self.assertLessEqual({"compute", "wait"}, {e["name"] for e in spans})
            self.assertTrue({"copy_out", "copy_in"} & {e["name"] for e in spans})
            self.assertTrue(all(e["dur"] > 0 for e in spans))
            ends = [e["ts"] + e["dur"] for e in spans]
            self.assertTrue(all(a <= b["ts"] + 0.01 for a, b in zip(ends, spans[1:])), "spans of one track overlap")
            self.assertLess(max(ends), took * 1e6)
        computing = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["name"] == "compute")
        self.assertTrue(all(a[1] <= b[0] + 0.01 for a, b in zip(computing, computing[1:])), "both computed at once")

    def test_trace_counts_from_the_order_to_move_out(self):
        recording = self.record()
        self.ctl("evict", str(os.getpid()))
        while self.one.target.budget:
            self.assertIsNotNone(self.one.hear())
            if self.one.target.flags & RUN == 0:
                self.one.say(flags=WANT)  # stopped, and says nothing of moving: it makes room first
        time.sleep(0.5)
        out, _ = self.recorded(recording)
        spans = {e["name"]: e["dur"] for e in json.loads(out)["traceEvents"] if e["ph"] == "X" and e["tid"] == 1}
        self.assertGreater(spans.get("copy_out", 0), 300e3, spans)

    def test_trace_ends_when_interrupted(self):
        out, _ = self.recorded(self.record())
        self.assertIn("compute", {e["name"] for e in json.loads(out)["traceEvents"]})


if __name__ == "__main__":
    unittest.main(warnings="ignore")
