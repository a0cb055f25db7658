#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs on several simulated cards: one lock for each UUID, whatever CUDA_VISIBLE_DEVICES calls the card, and for
each MIG instance.

usage: test_devices.py BUILD-FOLDER [unittest options]"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import PATIENCE, can_connect, wait_for

BUILD = os.path.abspath(sys.argv.pop(1))
LOCKD, CTL = BUILD + "/lockd/gpushare-lockd", BUILD + "/lockd/gpusharectl"
UUIDS = ["51585f66-6d74-7b82-8990-979ea5acb3%02x" % card for card in range(3)]  # as tests/simcuda/ledger.c makes them


class DevicesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, "GPUSHARE_SOCKET": self.folder + "/lockd.sock", "SIMCUDA_CARD": self.folder + "/card",
                            "SIMCUDA_MEMORY": "128MiB", "SIMCUDA_DEVICES": "3", "SIMCUDA_KERNEL_NS": "2000000",
                            "LD_LIBRARY_PATH": BUILD + "/tests/simcuda", "SIMCUDA_KERNELS": BUILD + "/samples/hog_standin.so"}
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)
        self.hog = self.folder + "/hog"
        shutil.copy(BUILD + "/samples/hog", self.hog)
        subprocess.run([BUILD + "/rewriter/gpushare-patch", "-q", "--runtime", BUILD + "/runtime/libgpushare.so.1", self.hog],
                       check=True, timeout=PATIENCE)
        daemon = subprocess.Popen([LOCKD, "--quantum", "200"], env=self.environment, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        wait_for(lambda: can_connect(self.folder + "/lockd.sock"), PATIENCE, "the daemon")  # else programs start another one

    def start(self, visible, seconds=5, **more):
        process = subprocess.Popen([self.hog, "--share", "0.6", "--rounds", "100000", "--seconds", str(seconds), "--chunk", "16MiB",
                                    "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env={**self.environment, "CUDA_VISIBLE_DEVICES": visible, **more})
        self.addCleanup(process.kill)
        return process

    def at_once(self, visible, crowded, **more):
        """(programs that see these devices and are there at the same time, what devices() says of them)."""
        for seconds in (5, 20, 80):  # on a busy machine one may be over before another has begun
            programs = [self.start(each, seconds, **more) for each in visible]
            found = self.devices(len(programs), crowded, programs)
            if found is not None:
                return programs, found
            for program in programs:
                program.kill()
                program.communicate()
        self.fail(f"not {len(visible)} programs at once")

    def devices(self, count, crowded=(), programs=()):
        """{UUID: {process: ...}}, as soon as so many programs have memory, and take turns on the crowded devices; None if one of
        the programs has ended."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            over = any(program.poll() is not None for program in programs)
            answer = json.loads(subprocess.run([CTL, "status", "--json"], env=self.environment, capture_output=True, text=True,
                                               timeout=PATIENCE, check=True).stdout)
            found = {d["uuid"]: {p["pid"]: p for p in d["programs"] if p["demand"]} for d in answer.get("devices", [])}
            turns = {d["uuid"] for d in answer.get("devices", []) if d["mode"] == "leases"}
            if sum(map(len, found.values())) == count and turns == {"GPU-" + uuid for uuid in crowded}:
                return found
            if over:
                return None
            time.sleep(0.05)
        self.fail(f"not {count} programs, but {answer}")

    def assert_right(self, programs):
        for program in programs:
            out, _ = program.communicate(timeout=PATIENCE)
            self.assertEqual(program.returncode, 0)
            self.assertIn("ok ", out)

    def test_programs_meet_by_the_card_and_not_by_its_number(self):
        programs, found = self.at_once(["1", "0,1", "GPU-" + UUIDS[1], "2,1"], crowded=[UUIDS[1]])
        pids = [p.pid for p in programs]
        self.assertEqual({uuid: set(found.get("GPU-" + uuid, {})) for uuid in UUIDS},
                         {UUIDS[0]: {pids[1]}, UUIDS[1]: {pids[0], pids[2]}, UUIDS[2]: {pids[3]}})
        self.assert_right(programs)

    def status(self):
        return [subprocess.run([CTL, "status", *more], env=self.environment, capture_output=True, text=True, timeout=60,
                               check=True).stdout for more in ((), ("--json",))]

    def test_group_larger_than_its_card_takes_turns_and_says_so(self):
        fits = [self.start("1", GPUSHARE_GROUP="small"), self.start("2", GPUSHARE_GROUP="small")]
        programs = [self.start("0", GPUSHARE_GROUP="large") for _ in range(2)]
        self.devices(4, crowded=[UUIDS[0]])
        text, answer = self.status()
        shown = {p["pid"]: p["group_apart"] for d in json.loads(answer)["devices"] for p in d["programs"]}
        self.assertEqual(shown, {p.pid: p in programs for p in programs + fits})
        self.assertEqual(text.count("group large (apart)"), 2, text)
        self.assertNotIn("group small (apart)", text)
        notes = [n for n in json.loads(answer)["notes"] if n["name"] == "group large"]
        self.assertEqual(len(notes), 1, answer)
        self.assertIn("so they take turns separately", notes[0]["text"])
        self.assert_right(programs + fits)

    def test_each_mig_instance_is_a_device(self):
        programs, found = self.at_once(["MIG-" + UUIDS[0], "MIG-" + UUIDS[1], "1,2"], crowded=[UUIDS[1]], SIMCUDA_MIG="1")
        pids = [p.pid for p in programs]
        self.assertEqual({uuid: set(found.get("GPU-" + uuid, {})) for uuid in UUIDS[:2]},
                         {UUIDS[0]: {pids[0]}, UUIDS[1]: {pids[1], pids[2]}})
        self.assert_right(programs)

    def test_program_that_sees_no_card_is_nobodys(self):
        for visible in ("", "-1", "7", "1,1", "GPU-515", "MIG-" + UUIDS[0]):
            program = self.start(visible)
            program.communicate(timeout=PATIENCE)
            self.assertNotEqual(program.returncode, 0, visible)
        self.assertEqual(self.devices(0), {})


if __name__ == "__main__":
    unittest.main(warnings="ignore")
