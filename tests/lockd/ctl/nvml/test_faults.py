#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl beside a libnvidia-ml.so.1 that hangs, crashes, answers late or answers garbage: everything else is shown.

usage: test_faults.py GPUSHARE_LOCKD GPUSHARECTL FOLDER-OF-THE-LIBRARY [unittest options]"""
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../top"))
from fake import GIB, PATIENCE, RUNNING, WANT, Daemon, Program
from page import serve_page
from screen import Screen

LOCKD, CTL, NVML = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
CARD = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


class FaultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-nvml-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.started, self.released = os.path.join(self.folder, "started"), os.path.join(self.folder, "released")
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.process.kill)
        self.program = Program(self.daemon.path, "train", total=160 * GIB)
        self.program.say(flags=WANT, demand=GIB)
        self.program.settle(lambda p: p.flags & RUNNING)

    def tearDown(self):
        self.program.close()
        self.assertEqual(self.daemon.end(), 0)
        shutil.rmtree(self.daemon.folder)
        end = time.monotonic() + PATIENCE
        while any(self.lives(pid) for pid in self.askers()):
            self.assertLess(time.monotonic(), end, "a process that asks NVML is left")
            time.sleep(0.02)

    def askers(self):
        if not os.path.exists(self.started):
            return []
        with open(self.started, encoding="ascii") as file:
            return [int(line) for line in file]

    @staticmethod
    def lives(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def environment(self, fault, **more):
        clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FAKE_NVML")}
        return {**clean, "GPUSHARE_SOCKET": self.daemon.path, "LD_LIBRARY_PATH": NVML, "TERM": "xterm", "LC_ALL": "C.UTF-8",
                "FAKE_NVML": f"{CARD}:17,{os.getpid()}:13", "FAKE_NVML_FAULT": fault, "FAKE_NVML_STARTED": self.started, **more}

    def ctl(self, fault, *arguments, code=0, **environment):
        result = subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=self.environment(fault, **environment))
        self.assertEqual(result.returncode, code, result)
        return result.stdout, result.stderr

    def busy(self, out):
        device = json.loads(out)["devices"][0]
        return device["busy_percent"], device["programs"][0]["busy_percent"]

    def expect_remark(self, said, what):
        self.assertRegex(said, f"^gpusharectl: NVML {what}: BUSY and other processes are not known\n$")

    def test_status_and_metrics_show_the_rest(self):
        for fault, what in (("hang", "did not answer within [0-9.]+ s"), ("hang-asked", "did not answer within [0-9.]+ s"),
                            ("late:/nowhere", "did not answer within [0-9.]+ s"), ("crash", r"crashed \(Segmentation fault\)"),
                            ("crash-asked", r"crashed \(Segmentation fault\)"), ("exit", "ended the process that asked it")):
            with self.subTest(fault):
                wait = "60" if "hang" not in fault and "late" not in fault else "0.2"
                out, said = self.ctl(fault, "status", "--json", GPUSHARE_NVML_WAIT=wait)
                self.assertEqual(self.busy(out), (None, None))
                self.expect_remark(said, what)
                out, said = self.ctl(fault, "status", GPUSHARE_NVML_WAIT=wait)
                self.assertRegex(out, r"train.* +-\n")
                self.assertNotIn("the library prints", out)
                self.expect_remark(said, what)
                out, said = self.ctl(fault, "metrics", GPUSHARE_NVML_WAIT=wait)
                self.assertIn("gpushare_program_", out)
                self.assertNotIn("busy_ratio{", out)
                self.expect_remark(said, what)

    def test_garbage_is_unknown(self):
        for arguments in (("status", "--json"), ("top", "--json", "--count", "1", "--interval", "0.05")):
            out, said = self.ctl("garbage", *arguments, GPUSHARE_NVML_WAIT="60")
            self.assertEqual(self.busy(out), (None, None))
            self.assertEqual(said, "")

    def test_a_second_is_all_that_it_may_take(self):
        begun = time.monotonic()
        self.assertRegex(self.ctl("hang", "status")[1], r"did not answer within 1(\.\d+)? s")
        self.assertLess(time.monotonic() - begun, PATIENCE / 2)  # the remark has the limit; this is only no minute

    def test_no_pipe_is_kept_open(self):
        """A process that the kernel holds (here: a stopped one) must not keep the reader of our output waiting."""
        reading, writing = os.pipe()
        process = subprocess.Popen([CTL, "status"], stdout=writing, stderr=writing, env=self.environment("hang", GPUSHARE_NVML_WAIT="3600"))
        os.close(writing)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        end = time.monotonic() + PATIENCE
        held = {}
        while len(held) != 2 and time.monotonic() < end:  # it closes what it has inherited, and opens /dev/null
            time.sleep(0.02)
            for asker in self.askers():
                try:
                    held = {os.readlink(f"/proc/{asker}/fd/{number}") for number in os.listdir(f"/proc/{asker}/fd")}
                except FileNotFoundError:
                    continue
        asker, = self.askers()
        self.assertNotEqual(asker, process.pid)
        self.assertEqual(len(held), 2, held)  # /dev/null, and the socket by which it is asked
        self.assertEqual({name.partition(":")[0] for name in held}, {"/dev/null", "socket"})
        self.assertNotEqual(os.getsid(asker), os.getsid(process.pid))
        process.kill()  # the asker ends with it
        self.assertTrue(select.select([reading], [], [], PATIENCE)[0])
        self.assertEqual(os.read(reading, 1), b"")
        os.close(reading)

    def test_move_by_number(self):
        pid = str(os.getpid())
        for fault, what in (("hang", "did not answer within"), ("hang-asked", "did not answer within"), ("crash-asked", "crashed"), ("garbage", "")):
            _, said = self.ctl(fault, "move", pid, "0", code=1, GPUSHARE_NVML_WAIT="0.2" if "hang" in fault else "60")
            self.assertIn(what, said)
            self.assertIn("GPU 0 is not known", said)
        self.assertNotIn("is not known", self.ctl("", "move", pid, "0", code=1, GPUSHARE_NVML_WAIT="60")[1])

    def test_top_has_keys_while_it_hangs(self):
        top = Screen([CTL, "top", "--interval", "0.1"], self.environment("hang-asked", GPUSHARE_NVML_WAIT="0.2"))
        self.addCleanup(top.close)
        top.wait(lambda text: "train" in text, PATIENCE, "the program")
        top.press("?")
        top.wait(lambda text: "any key" in text.lower() or "help" in text.lower(), PATIENCE, "the help")
        top.press("??")  # the second page, and back
        top.wait(lambda text: "did not answer within" in text, PATIENCE, "the remark")
        self.assertIn("BUSY and other proc", top.text())  # the rest is cut in 80 columns
        top.press("q")
        self.assertEqual(top.process.wait(PATIENCE), 0)

    def test_top_shows_what_comes_late(self):
        for fault in ("late", "late-asked"):
            self.assertFalse(os.path.exists(self.released))
            top = Screen([CTL, "top", "--interval", "0.05"], self.environment(f"{fault}:{self.released}", GPUSHARE_NVML_WAIT="0.2"))
            top.wait(lambda text: "train" in text, PATIENCE, "the program")
            with open(self.released, "w", encoding="ascii"):
                pass
            top.wait(lambda text: re.search(r"busy .* 17 %", text), PATIENCE, "how busy the card is")
            top.press("q")
            top.process.wait(PATIENCE)
            top.close()
            os.unlink(self.released)
        self.assertEqual(len(self.askers()), 2)  # one for each run, for all of its refreshes

    def test_page_is_served_while_it_hangs(self):
        for fault in ("hang", "hang-asked", "crash", "crash-asked"):
            with self.subTest(fault):
                self.look_at_page(fault)

    def look_at_page(self, fault):
        server, get = serve_page(self, CTL, self.environment(fault, GPUSHARE_NVML_WAIT="0.2" if "hang" in fault else "60"),
                                 stderr=subprocess.PIPE)
        try:
            for _ in range(3):
                self.assertEqual(self.busy(get("/status.json")), (None, None))
                time.sleep(0.15)  # more than for how long an answer is shown again
        finally:
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(PATIENCE), 0)
            said = server.stderr.read()
            server.stderr.close()
        if "crash" in fault:
            self.expect_remark(said, r"crashed \(Segmentation fault\)")

    def test_page_keeps_one_asker(self):
        server, get = serve_page(self, CTL, self.environment("", GPUSHARE_NVML_WAIT="60"))
        end = time.monotonic() + PATIENCE
        while self.busy(get("/status.json")) != (17, 13):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        for _ in range(3):  # recordings are processes too: more of them than may run at once
            self.assertIn("traceEvents", get("/trace.json?seconds=1"))
        while self.busy(get("/status.json")) != (17, 13):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        asker, = self.askers()
        os.kill(asker, signal.SIGKILL)
        while self.busy(get("/status.json")) != (None, None):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        server.kill()


if __name__ == "__main__":
    unittest.main(warnings="ignore")
