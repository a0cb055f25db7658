#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl top against a real daemon: on a terminal, and as JSON.

usage: test_ctl_top.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import pty
import select
import struct
import subprocess
import time
import unittest

from ctl_case import CTL, CtlCase  # first: it leads to the folders above
from fake import GIB, PATIENCE


class TopTest(CtlCase):
    def test_top_draws_on_a_terminal(self):
        main, other = pty.openpty()
        import fcntl
        import termios
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
        top = subprocess.Popen([CTL, "--socket", self.daemon.path, "top", "--interval", "0.2"], stdin=other, stdout=other,
                               stderr=other, env={**os.environ, "TERM": "xterm"})
        os.close(other)
        seen = b""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not (b"train" in seen and b"waits" in seen and b"#---" in seen.replace(b"#" * 2, b"#")):
            if select.select([main], [], [], 0.5)[0]:
                seen += os.read(main, 65536)
            if b"q quit" in seen and b"train" in seen:
                break
        self.assertIn(b"train", seen)
        self.assertIn(b"[##############......]", seen)  # 7 of 10 GiB on the card
        self.assertIn(b"[-------...]", seen)  # ... on the host
        self.assertIn(b"leases", seen)
        os.write(main, b"q")
        end = time.monotonic() + PATIENCE
        while top.poll() is None and time.monotonic() < end:
            if select.select([main], [], [], 0.1)[0]:
                try:
                    os.read(main, 65536)
                except OSError:
                    break
        self.assertEqual(top.wait(PATIENCE), 0)
        os.close(main)

    def test_top_json_has_rates(self):
        watcher = subprocess.Popen([CTL, "--socket", self.daemon.path, "top", "--json", "--interval", "0.5"],
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(watcher.stdout.close)
        self.addCleanup(watcher.kill)
        rates = sorted(r["moved_out_per_s"] for r in json.loads(watcher.stdout.readline())["rates"])
        self.assertEqual(rates, [0, 0])
        self.one.moved_out = 4 * GIB
        self.one.say()
        until = time.monotonic() + PATIENCE
        while rates == [0, 0] and time.monotonic() < until:
            answer = json.loads(watcher.stdout.readline())
            rates = sorted(r["moved_out_per_s"] for r in answer["rates"])
        self.assertEqual(rates[0], 0)
        self.assertAlmostEqual(rates[1] * answer["interval_ns"] / 1e9, 4 * GIB, delta=GIB / 100)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
