#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A holder that does not stop, with `stuck = checkpoint`: the simulated driver moves it out, others run, and it goes on
where it was; also when the daemon or the program is killed meanwhile.

usage: test_checkpoint.py BUILD-FOLDER [unittest options]"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import MIB, PATIENCE, can_connect, wait_for

BUILD = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.socket = self.folder + "/lockd.sock"
        self.environment = {**os.environ, "GPUSHARE_SOCKET": self.socket, "SIMCUDA_CARD": self.folder + "/card",
                            "SIMCUDA_MEMORY": "64MiB", "SIMCUDA_KERNEL_NS": "2000000", "PYTHONPATH": os.path.join(HERE, ".."),
                            "LD_LIBRARY_PATH": BUILD + "/tests/simcuda", "SIMCUDA_KERNELS": BUILD + "/samples/hog_standin.so"}
        self.hog = self.folder + "/hog"
        shutil.copy(BUILD + "/samples/hog", self.hog)
        subprocess.run([BUILD + "/rewriter/gpushare-patch", "-q", "--runtime", BUILD + "/runtime/libgpushare.so.1", self.hog],
                       check=True, timeout=PATIENCE)
        self.log = self.folder + "/log"

    def daemon(self, stuck="checkpoint"):
        with open(self.log, "ab") as log:
            process = subprocess.Popen([BUILD + "/lockd/gpushare-lockd", "--quantum", "300", "--stuck", stuck],
                                       env=self.environment, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for(lambda: can_connect(self.socket), PATIENCE, "the daemon")
        return process

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def stubborn(self):
        self.out = self.folder + "/stubborn"
        with open(self.out, "wb") as out:
            process = subprocess.Popen([sys.executable, HERE + "/stuck.py", str(36 * MIB)], env=self.environment, stdout=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(lambda: self.reads() > 2, PATIENCE, "the stubborn program to compute")
        return process

    def reads(self):
        with open(self.out, encoding="ascii") as out:
            words = out.read().split()
        return int(words[-1]) if "read" in words and words[-1].isdigit() else 0

    def start_hog(self, seconds="1.5"):
        process = subprocess.Popen([self.hog, "--share", "0.6", "--rounds", "100000", "--seconds", seconds, "--chunk", "8MiB",
                                    "--quiet"], stdout=subprocess.PIPE, text=True, env=self.environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def card(self):
        return subprocess.run([BUILD + "/tests/simcuda/simcuda-card"], env=self.environment, capture_output=True, text=True,
                              check=True).stdout

    def ctl(self, *arguments):
        return subprocess.run([BUILD + "/lockd/gpusharectl", *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE, check=True).stdout

    def checkpoint(self):
        """A stubborn program that stays checkpointed: it is suspended, and does not stop."""
        stubborn = self.stubborn()
        self.ctl("suspend", str(stubborn.pid))
        wait_for(lambda: self.program(stubborn).get("checkpointed"), PATIENCE, "the checkpoint")
        self.assertRegex(self.card(), rf"pid {stubborn.pid} .* 0 B ")
        before = self.reads()
        time.sleep(0.3)
        self.assertLessEqual(self.reads(), before + 1)
        return stubborn

    def program(self, process):
        time.sleep(0.05)  # it is asked for in loops, on machines with two cores
        devices = json.loads(self.ctl("status", "--json"))["devices"]
        return next((p for d in devices for p in d["programs"] if p["pid"] == process.pid), {})

    def assert_goes_on(self, stubborn):
        at = self.reads()
        wait_for(lambda: self.reads() > at + 5, PATIENCE, "the stubborn program to go on")
        self.assertIsNone(stubborn.poll())

    def test_others_run_and_it_goes_on_where_it_was(self):
        daemon = self.daemon()
        stubborn = self.stubborn()
        hog = self.start_hog()
        out, _ = hog.communicate(timeout=PATIENCE)
        self.assertEqual(hog.returncode, 0)
        self.assertIn("ok ", out)
        self.assertIn("will checkpoint it", self.said())
        self.assert_goes_on(stubborn)
        wait_for(lambda: self.program(stubborn)["state"] == "runs", PATIENCE, "it to be shown as running")
        daemon.terminate()
        self.assertEqual(daemon.wait(PATIENCE), 0)

    def test_suspended_until_it_is_resumed_whatever_happens_to_its_guard(self):
        self.daemon()
        stubborn = self.checkpoint()
        program = self.program(stubborn)
        self.assertEqual((program["state"], program["resident"]), ("paused", 0))
        self.assertIn("checkpointed", self.ctl("status"))
        os.kill(self.guard_of(stubborn), signal.SIGKILL)
        wait_for(lambda: "was killed" in self.said(), PATIENCE, "the daemon to say so")
        self.assertTrue(self.program(stubborn)["checkpointed"])
        self.ctl("resume", str(stubborn.pid))
        self.assert_goes_on(stubborn)
        wait_for(lambda: not self.program(stubborn)["checkpointed"], PATIENCE, "it to be shown so")

        self.ctl("suspend", str(stubborn.pid))  # and now its guard is killed at once
        wait_for(lambda: self.said().count("will checkpoint it") == 2, PATIENCE, "the guard")
        os.kill(self.guard_of(stubborn), signal.SIGKILL)
        wait_for(lambda: self.program(stubborn)["checkpointed"], PATIENCE, "another guard")
        guard = self.guard_of(stubborn)
        stubborn.kill()
        stubborn.wait()
        wait_for(lambda: not os.path.exists(f"/proc/{guard}"), PATIENCE, "the guard of a dead program to end")
        wait_for(lambda: self.program(stubborn) == {}, PATIENCE, "it to be gone")

    def test_daemon_killed_meanwhile_its_guard_brings_the_program_back(self):
        for how in (signal.SIGKILL, signal.SIGTERM):
            daemon = self.daemon()
            stubborn = self.checkpoint()
            daemon.send_signal(how)
            daemon.wait(PATIENCE)
            self.assert_goes_on(stubborn)
            stubborn.kill()
            stubborn.wait()

    def test_no_room_to_come_back_is_tried_again(self):
        self.daemon()
        stubborn = self.checkpoint()
        taker = subprocess.Popen([BUILD + "/samples/hog", "--share", "0.8", "--rounds", "1000000", "--seconds", "600", "--quiet",
                                  "--chunk", "8MiB"], env=self.environment, stdout=subprocess.DEVNULL)  # it is not prepared
        self.addCleanup(taker.wait)
        self.addCleanup(taker.kill)
        wait_for(lambda: f"pid {taker.pid} " in self.card() and " 5" in self.card().split(f"pid {taker.pid} ")[1], PATIENCE,
                 "the other one to take the card")
        self.ctl("resume", str(stubborn.pid))
        wait_for(lambda: "cannot be brought back yet" in self.said(), PATIENCE, "the driver to have no room")
        self.assertTrue(self.program(stubborn)["checkpointed"])
        taker.kill()
        self.assert_goes_on(stubborn)

    def guard_of(self, process):
        """Its guard's process id, as soon as there is one."""
        found = []

        def look():
            found[:] = subprocess.run(["pgrep", "-f", f"gpushare-lockd --guard {process.pid}$"], capture_output=True,
                                      text=True).stdout.split()
            return found
        wait_for(look, PATIENCE, "a guard")
        return int(found[0])

    def test_it_is_off_by_default(self):
        self.daemon("wait")
        stubborn = self.stubborn()
        self.ctl("suspend", str(stubborn.pid))
        wait_for(lambda: self.program(stubborn)["state"] == "stuck", PATIENCE, "the stubborn program to be stuck")
        time.sleep(1.5)
        self.assertNotIn("checkpoint", self.said())
        self.assert_goes_on(stubborn)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
