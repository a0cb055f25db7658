# SPDX-License-Identifier: Apache-2.0
"""A daemon with two programs, and what the tests of gpusharectl ask it."""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import GIB, PATIENCE, RUNNING, WANT, Daemon, Program  # noqa: E402  (in the folder above)

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))


class CtlCase(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD, "--quantum", "60000")
        self.addCleanup(self.daemon.process.kill)
        self.one = Program(self.daemon.path, "train", total=10 * GIB)
        self.one.say(flags=WANT, demand=7 * GIB)
        self.one.settle(lambda p: p.flags & RUNNING)
        self.two = Program(self.daemon.path, "infer \x1b[31m", total=10 * GIB)
        self.two.say(flags=WANT, demand=7 * GIB)
        self.two.hear()
        self.two.obey()
        while self.one.hear(0.2):
            self.one.obey()

    def tearDown(self):
        self.one.close()
        self.two.close()
        self.assertEqual(self.daemon.end(), 0)
        self.assertNotIn("Sanitizer", self.daemon.said())
        shutil.rmtree(self.daemon.folder)

    def ctl(self, *arguments, code=0, environment=None):
        result = subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path, **(environment or {})})
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertNotIn("Sanitizer", result.stderr)
        # on a busy machine a remark that NVML has not answered in time comes beside the JSON
        return result.stdout if "--json" in arguments and code == 0 else result.stdout + result.stderr

    def status(self):
        return json.loads(self.ctl("status", "--json"))

    def programs(self):
        return {p["name"]: p for p in self.status()["devices"][0]["programs"]}
