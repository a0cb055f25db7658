#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpusharectl shows of the machine beside the daemon's own programs: GPUs without programs, and processes on GPUs that are not
prepared. Two simulated cards with their libnvidia-ml.so.1.

usage: test_machine.py --build BUILD [unittest options]"""
import json
import os
import pwd
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../runtime"), os.path.join(HERE, "../top")]
from card import MIB, PATIENCE, BuildTest, Card, main, wait_for  # noqa: E402
from screen import Screen  # noqa: E402

USER = pwd.getpwuid(os.getuid()).pw_name


class MachineTest(BuildTest):
    def setUp(self):
        self.card = self.enterContext(Card(self.build, memory="256MiB", SIMCUDA_DEVICES="2", SIMCUDA_CONTEXT_MEMORY="4MiB",
                                           SIMCUDA_KERNELS=os.path.join(self.build, "samples", "hog_standin.so")))

    def seeing(self, **more):
        return {**self.card.environment, "GPUSHARE_NVML_WAIT": "60", "LC_ALL": "C.UTF-8",
                "LD_LIBRARY_PATH": os.path.join(self.build, "tests", "simcuda", "nvml"), **more}

    def ctl(self, *words, **more):
        code, out, err = self.card.run([os.path.join(self.build, "lockd", "gpusharectl"), *words], **self.seeing(**more))
        self.assertEqual((code, err), (0, ""), out)
        return out

    def gpus(self):
        return json.loads(self.ctl("status", "--json"))["gpus"]

    def hog(self, name, share, prepared, card=0):
        """A program of that name on one of the cards."""
        path = os.path.join(self.card.folder, name)
        shutil.copy(os.path.join(self.build, "samples", "hog"), path)
        if prepared:
            self.card.run([os.path.join(self.build, "rewriter", "gpushare-patch"), "-q", path])
        return self.card.start([path, "--share", str(share), "--rounds", "1000000", "--seconds", "600", "--cpu-ms", "5", "--quiet"],
                               CUDA_VISIBLE_DEVICES=str(card))

    def both(self):
        """An unprepared program with half of card 1, and a prepared one there; the gpus then."""
        other = self.hog("jupyter", 0.5, False, 1)
        self.assertTrue(wait_for(lambda: any((p["memory"] or 0) > 100 * MIB for p in self.gpus()[1]["other_processes"])))
        program = self.hog("train", 0.25, True, 1)
        self.assertTrue(wait_for(lambda: json.loads(self.ctl("status", "--json"))["devices"]))
        return other, program, self.gpus()

    def test_json_has_all_gpus_and_their_other_processes(self):
        other, program, gpus = self.both()
        self.assertEqual([g["index"] for g in gpus], [0, 1])
        self.assertEqual([g["total"] for g in gpus], [256 * MIB] * 2)
        self.assertEqual(gpus[0]["other_processes"], [])  # a card without programs is there, too
        self.assertEqual(gpus[1]["uuid"], json.loads(self.ctl("status", "--json"))["devices"][0]["uuid"])
        found, = gpus[1]["other_processes"]  # not the prepared one
        self.assertEqual((found["pid"], found["user"], found["name"], found["why"]), (other.pid, USER, "jupyter", "unprepared"))
        self.assertGreater(found["memory"], 128 * MIB)
        self.assertLess(found["memory"], 140 * MIB)
        for gpu in gpus:
            self.assertGreater(gpu["temperature_c"], 20)
            self.assertEqual(gpu["power_limit_w"], 350)
        self.assertNotIn(program.pid, [found["pid"]])

    def test_cards_that_nobody_uses_are_shown(self):
        self.assertEqual([g["total"] for g in self.gpus()], [256 * MIB] * 2)
        text = self.ctl("status")
        self.assertEqual(re.findall(r"(?m)^GPU (\d)  Simulated GPU  GPU-\S+  256\.0 MiB$", text), ["0", "1"])
        self.assertEqual(text.count("\n  no programs\n"), 2)

    def test_status_and_top_show_the_machine(self):
        other, program, _ = self.both()
        rows = self.ctl("status", COLUMNS="80").splitlines()
        self.assertEqual([row for row in rows if len(row) > 80], [])
        self.assertIn("  no programs", rows)
        self.assertTrue(any(re.match(r"  \d+ C, \d+ of 350 W, busy \d+ % of the last second$", row) for row in rows), rows)
        grey, = [row for row in rows if f" {other.pid} " in row]
        self.assertRegex(grey, rf"{USER} +jupyter +unprepared[- ]+ 13\d\.\d MiB ")
        external = rf"(?m)^ +{program.pid} {USER} +train +\w+ .* 4\.0 MiB "  # its context, once its memory is reported as NVML shows it
        self.assertTrue(wait_for(lambda: re.search(external, self.ctl("status", COLUMNS="80"))))
        top = Screen([os.path.join(self.build, "lockd", "gpusharectl"), "top", "--interval", "0.1"], self.seeing(TERM="xterm-256color"), 30, 80)
        self.addCleanup(top.close)
        text = top.wait(lambda text: "unprepared" in text and "no programs" in text and "q quit" in text, PATIENCE, "all of it")
        self.assertRegex(text, r"GPU 0  Simulated GPU  \d+ C, \d+ of 350 W  GPU-")
        self.assertRegex(text, rf"(?m)^ +{other.pid} {USER} +jupyter +unprepared[- ]+ 13\d\.\d MiB")
        top.wait(lambda text: "\x1b[38;5;243m" in top.raw, PATIENCE, "the grey")

    def test_prepared_program_of_another_daemon_is_elsewhere(self):
        with Card(self.build, SIMCUDA_DEVICES="2") as second:
            self.card.environment["GPUSHARE_SOCKET"] = second.socket
            self.hog("other", 0.25, True)
            self.card.environment["GPUSHARE_SOCKET"] = self.card.socket
            self.assertTrue(wait_for(lambda: [p["why"] for p in self.gpus()[0]["other_processes"]] == ["elsewhere"]))


if __name__ == "__main__":
    main()
