#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpusharectl status shows to people: users, the real use of the card (by a fake libnvidia-ml.so.1), 80 columns, colours.

usage: test_people.py GPUSHARE_LOCKD GPUSHARECTL FOLDER-OF-THE-LIBRARY [unittest options]"""
import fcntl
import json
import os
import pty
import pwd
import re
import shutil
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from fake import GIB, MIB, PATIENCE, RUNNING, WANT, Daemon, Program
from page import serve_page

LOCKD, CTL, NVML = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
CARD = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
PID = os.getpid()


class PeopleTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.process.kill)
        self.program = Program(self.daemon.path, "a rather long name of a program", total=160 * GIB)
        self.program.say(flags=WANT, demand=70 * GIB + 300 * MIB)
        self.program.settle(lambda p: p.flags & RUNNING)

    def tearDown(self):
        self.program.close()
        self.assertEqual(self.daemon.end(), 0)
        shutil.rmtree(self.daemon.folder)

    def environment(self, **more):
        clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FAKE_NVML")}
        return {**clean, "GPUSHARE_SOCKET": self.daemon.path, "LD_LIBRARY_PATH": NVML, "TERM": "xterm", "LC_ALL": "C.UTF-8",
                "GPUSHARE_NVML_WAIT": "60", **more}

    def ctl(self, *arguments, **environment):
        result = subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                                env=self.environment(**environment), check=True)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def on_terminal(self, columns, *arguments, **environment):
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([CTL, *arguments], stdin=other, stdout=other, stderr=other, env=self.environment(**environment))
        os.close(other)
        seen = b""
        try:
            while more := os.read(main, 65536):
                seen += more
        except OSError:  # all of it was read, and the process has ended
            pass
        os.close(main)
        self.assertEqual(process.wait(PATIENCE), 0)
        return seen.decode().replace("\r\n", "\n")

    def json(self, **environment):
        device = json.loads(self.ctl("status", "--json", **environment))["devices"][0]
        return device["busy_percent"], device["programs"][0]["busy_percent"]

    def row(self, text):
        return next(line for line in text.splitlines() if "a rather" in line)

    def test_user_is_named(self):
        self.assertRegex(self.ctl("status"), rf" {PID} {pwd.getpwuid(os.getuid()).pw_name} +a rather long name of a program ")
        program = json.loads(self.ctl("status", "--json"))["devices"][0]["programs"][0]
        self.assertEqual((program["uid"], program["user"]), (os.getuid(), pwd.getpwuid(os.getuid()).pw_name))

    def test_real_use_stands_beside_the_permission(self):
        busy = {"FAKE_NVML": f"{CARD}:17,{PID}:13,1:4"}
        self.assertEqual(self.json(**busy), (17, 13))
        text = self.ctl("status", **busy)
        self.assertIn("busy 17 % of the last second", text)
        self.assertRegex(text, r"ALLOWED +BUSY")
        self.assertRegex(self.row(text), r" \d+ % +13 %$")
        watched = json.loads(self.ctl("top", "--json", "--count", "1", "--interval", "0.05", **busy))
        self.assertEqual(watched["devices"][0]["busy_percent"], 17)

    def test_metrics_have_the_real_use(self):
        def ratios(**environment):
            return re.findall(r"^gpushare_(device|program)_busy_ratio\{.*\} (\S+)$", self.ctl("metrics", **environment), re.M)

        self.assertEqual(ratios(FAKE_NVML=f"{CARD}:100,{PID}:7"), [("device", "1.00"), ("program", "0.07")])
        self.assertEqual(ratios(FAKE_NVML=f"{CARD}:5", FAKE_NVML_OLD="1"), [("device", "0.05")])
        self.assertEqual(ratios(), [])
        self.assertIn("# TYPE gpushare_program_busy_ratio gauge", self.ctl("metrics"))

    def test_page_has_the_real_use(self):
        _, get = serve_page(self, CTL, self.environment(FAKE_NVML=f"{CARD}:17,{PID}:13"))
        device = json.loads(get("/status.json"))["devices"][0]
        self.assertEqual((device["busy_percent"], device["programs"][0]["busy_percent"]), (17, 13))
        self.assertIn("\ngpushare_device_busy_ratio{", get("/metrics"))

    def test_idle_program_is_zero_and_what_is_unknown_a_dash(self):
        self.assertEqual(self.json(FAKE_NVML=f"{CARD}:5"), (5, 0))
        self.assertEqual(self.json(FAKE_NVML=f"{CARD}:5,1:5"), (5, 0))
        self.assertEqual(self.json(FAKE_NVML=f"{CARD}:5,{PID}:5", FAKE_NVML_OLD="1"), (5, None))
        for nothing in ({"FAKE_NVML": "GPU-another:50"}, {}, {"LD_LIBRARY_PATH": ""}):
            self.assertEqual(self.json(**nothing), (None, None))
            self.assertRegex(self.row(self.ctl("status", **nothing)), r"% +-$")

    def test_80_columns_are_enough(self):
        self.ctl("set", "weight", str(PID), "250")
        text = self.on_terminal(80, "status", NO_COLOR="1", FAKE_NVML=f"{CARD}:100,{PID}:100")
        self.assertNotIn("\x1b", text)
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        # the name is whole, and the place of the memory and BUSY are there; the rest has no room
        self.assertRegex(self.row(text), r"a rather long name of a program runs +70\.3 GiB +0 B +100 %$")
        self.assertIn("\n          weight 250\n", text)
        self.assertNotIn("MOVED OUT", text)
        self.assertIn("MOVED OUT", self.on_terminal(144, "status"))
        self.assertIn("MOVED OUT", self.ctl("status"))
        self.assertNotIn("MOVED OUT", self.ctl("status", COLUMNS="80"))

    def test_columns_leave_before_names_are_cut(self):
        other = Program(self.daemon.path, "small", total=160 * GIB)
        other.say(flags=WANT, demand=GIB, pinned=186 * MIB)
        other.settle(lambda p: p.flags & RUNNING)
        pinned = r" small +runs .* 186\.0 MiB "
        seen = {}
        for columns in (70, 80, 100, 120, 140):
            text = self.on_terminal(columns, "status", NO_COLOR="1", FAKE_NVML=f"{CARD}:100,{PID}:100")
            if columns >= 80:
                self.assertEqual([line for line in text.splitlines() if len(line) > columns], [])
            seen[columns] = next(line for line in text.splitlines() if " PID " in line).split()
            self.assertIn("a rather long name of a program", self.row(text))
            if columns >= 100:  # pinned memory is not hidden behind what is resident
                self.assertRegex(text, pinned)
        self.assertEqual([len(seen[c]) for c in seen], sorted(len(seen[c]) for c in seen))
        self.assertIn("RESIDENT", seen[70])
        narrow = self.row(self.on_terminal(47, "status", NO_COLOR="1"))
        self.assertLessEqual(len(narrow), 47)
        self.assertIn("… runs", narrow)  # a cut is marked
        other.close()

    def test_many_notes_are_broken_between_two(self):
        for setting, value in (("weight", "250"), ("priority", "-7"), ("limit", "100GiB")):
            self.ctl("set", setting, str(PID), value)
        for columns in (20, 30, 47, 80):
            text = self.on_terminal(columns, "status", NO_COLOR="1")
            notes = text[text.index(f" {PID} "):].split("\n")[1:-1]
            self.assertEqual(" ".join(line.strip() for line in notes), "weight 250, priority -7, limit 100.0 GiB")
            self.assertEqual(len(notes), 3 if columns < 35 else 2 if columns == 47 else 1, notes)

    def test_units_stand_below_each_other(self):
        other = Program(self.daemon.path, "small", total=160 * GIB)
        other.say(flags=WANT, demand=512)  # "512 B" below "70.3 GiB"
        other.settle(lambda p: p.flags & RUNNING)
        rows = [line for line in self.ctl("status").splitlines() if re.match(rf" +{PID} ", line)]
        self.assertEqual(len(rows), 2)
        starts = [[match.start(1) for match in re.finditer(r"\d ([KMGT]i)?B", row)] for row in rows]
        ends = [[match.start() for match in re.finditer(r"(?<=\d) (?=[KMGT]?i?B)", row)] for row in rows]
        self.assertEqual(ends[0], ends[1], rows)
        self.assertEqual(len(starts[0]), 6)
        other.close()

    def test_colours_only_where_they_are_wanted(self):
        self.assertIn("\x1b[32mruns", self.on_terminal(80, "status"))
        for without in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", self.on_terminal(80, "status", **without))
        self.assertIn("\x1b[32mruns", self.on_terminal(80, "status", NO_COLOR=""))  # no-color.org: when not empty
        self.assertNotIn("\x1b", self.ctl("status"))


if __name__ == "__main__":
    unittest.main(warnings="ignore")
