#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl top on a pseudo terminal: what its keys do, and that nothing happens to a program without a yes.

usage: test_top.py GPUSHARE_LOCKD GPUSHARECTL FOLDER-OF-THE-FAKE-NVML [unittest options]"""
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../.."), HERE]
from fake import GIB, PATIENCE, RUNNING, WANT, Daemon, Program, settle_all
from screen import Screen

LOCKD, CTL, NVML = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
CARD = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
VICTIM = """import sys; sys.path.insert(0, sys.argv[1])
from fake import *
program = Program(sys.argv[2], "victim"); program.say(flags=WANT, demand=GIB); program.hear()
print("!", flush=True); sys.stdin.read()"""


class TopTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(shutil.rmtree, self.daemon.folder)
        self.addCleanup(self.daemon.end)
        self.environment = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", "LC_ALL": "C.UTF-8",
                            "GPUSHARE_SOCKET": self.daemon.path, "LD_LIBRARY_PATH": NVML, "GPUSHARE_NVML_WAIT": "60"}

    def programs(self, *wishes):
        programs = []
        for name, demand in wishes:
            programs.append(Program(self.daemon.path, name, total=64 * GIB))
            programs[-1].say(flags=WANT, demand=demand * GIB)
            self.addCleanup(programs[-1].close)
        settle_all(programs, lambda: all(p.flags & RUNNING for p in programs))
        return programs

    def victim(self):
        process = subprocess.Popen([sys.executable, "-c", VICTIM, os.path.join(HERE, "../.."), self.daemon.path],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"!\n")
        return process

    def top(self, rows=30, columns=80, **environment):
        screen = Screen([CTL, "top", "--interval", "0.1"], {**self.environment, **environment}, rows, columns)
        self.addCleanup(screen.close)
        screen.wait(lambda text: "q quit" in text, PATIENCE, "the first screen")
        return screen

    def press(self, screen, keys, *wanted):
        screen.press(keys)
        return screen.wait(lambda text: all(word in text for word in wanted), PATIENCE, f"{wanted} after {keys!r}")

    def paused(self):
        answer = subprocess.run([CTL, "status", "--json"], env=self.environment, capture_output=True, check=True).stdout
        return json.loads(answer)["devices"][0]["programs"][0]["paused"]

    def order(self, text):
        return re.findall(r"^ +\d+ \S+ +(small|large|medium) ", text, re.M)

    def test_help_lists_the_keys_and_goes_away(self):
        self.programs(("one", 1))
        top = self.top()
        text = self.press(top, "?", "SIGTERM", "any key: back", "busy ")
        for word in ("pause the chosen program", "show one user's programs", "quit", "allowed ", "capacity ", "quantum "):
            self.assertIn(word, text)
        self.assertNotIn("gpushare-lockd", text)
        self.press(top, "x", "q quit", "gpushare-lockd")
        top.press("q")
        self.assertEqual(top.process.wait(PATIENCE), 0)

    def test_orders(self):
        self.programs(("medium", 2), ("small", 1), ("large", 3))
        top = self.top()
        for key, name, wanted in (("M", "memory", ["large", "medium", "small"]),
                                  ("r", "memory, reversed", ["small", "medium", "large"])):
            self.press(top, key, f"o order ({name})")
            top.wait(lambda text, wanted=wanted: self.order(text) == wanted, PATIENCE, f"the order {wanted}")
        for key, name in (("P", "process"), ("U", "user"), ("V", "moved"), ("A", "allowed"), ("B", "busy"), ("W", "wait")):
            self.press(top, key, f"o order ({name}, reversed)")
        self.press(top, "o", "o order (process, reversed)")  # the next one after the last

    def test_filter_by_user(self):
        self.programs(("medium", 2))
        top = self.top()
        self.press(top, "u", "user, by name or number")
        self.press(top, "nobodx", ": nobodx_")
        self.press(top, "\x7fy", ": nobody_")
        self.press(top, "\r", "only programs of nobody", "q quit")
        top.wait(lambda text: self.order(text) == [], PATIENCE, "nobody's programs")
        self.press(top, "k", "there is no program to choose")
        self.press(top, f"u{os.getuid()}\r", f"only programs of {pwd.getpwuid(os.getuid()).pw_name}", " medium ")
        self.press(top, "unosuchuser\r", "there is no user 'nosuchuser'")
        top.press("u\r")
        top.wait(lambda text: "only programs" not in text and " medium " in text, PATIENCE, "all programs")

    def test_pause_only_after_a_yes(self):
        self.programs(("one", 1))
        top = self.top()
        self.press(top, "p", f"pause one (process {os.getpid()} of {pwd.getpwuid(os.getuid()).pw_name})? (y: yes")
        self.press(top, "n", "nothing was done")
        self.assertFalse(self.paused())
        self.press(top, "p", "pause one")
        self.press(top, "y", "paused 1 program")
        self.assertTrue(self.paused())
        top.wait(lambda text: re.search(r"one +(paused|stopping)", text), PATIENCE, "the new state")
        self.press(top, "p", "resume one (process")
        self.press(top, "y", "resumed 1 program")
        self.assertFalse(self.paused())

    def test_kill_only_after_a_yes(self):
        victim = self.victim()
        top = self.top()
        self.press(top, "k", f"end with SIGTERM victim (process {victim.pid} of {pwd.getpwuid(os.getuid()).pw_name})?")
        self.press(top, "q", "nothing was done")  # q is no yes, and no quit either
        self.assertIsNone(victim.poll())
        self.press(top, "k", "end with SIGTERM")
        self.press(top, "y", "sent SIGTERM")
        self.assertEqual(victim.wait(PATIENCE), -signal.SIGTERM)

    def test_arrows_choose_the_program(self):
        self.programs(("small", 1))
        victim = self.victim()
        top = self.top()
        self.press(top, "P")
        first = min(os.getpid(), victim.pid)
        self.press(top, "k", f"(process {first} of")
        self.press(top, "n", "nothing")
        self.press(top, "\x1b[B" if "\x1b[?1h" not in top.raw else "\x1bOB")
        self.press(top, "K", "kill with SIGKILL", f"(process {max(os.getpid(), victim.pid)} of")
        self.press(top, "n", "nothing")

    def test_chosen_program_stays_on_a_small_screen(self):
        self.programs(*((f"p{i}", 1) for i in range(20)))
        top = self.top(rows=12)
        for _ in range(19):
            top.press("\x1bOB")
        top.wait(lambda text: " p19 " in text and "gpushare-lockd" not in text, PATIENCE, "the last program")
        top.press("\x1b[5~" * 3)
        top.wait(lambda text: "gpushare-lockd" in text, PATIENCE, "the first lines")

    def test_graphs(self):
        self.programs(("one", 1))
        top = self.top(FAKE_NVML=f"{CARD}:57")
        text = top.wait(lambda text: re.search(r"^  busy .*[▁▂▃▄▅▆▇█]{3} +57 %$", text, re.M), PATIENCE, "the graph of busy")
        self.assertRegex(text, r"(?m)^  allowed .*[▁▂▃▄▅▆▇█].* \d+ %$")
        self.assertRegex(text, r"(?m)^  moved .* 0 B/s$")
        top.press("g")
        top.wait(lambda text: "  allowed " not in text, PATIENCE, "no graph")
        plain = self.top(FAKE_NVML=f"{CARD}:57", LC_ALL="C")
        plain.wait(lambda text: re.search(r"^  busy .*[=+]{3} +57 %$", text, re.M), PATIENCE, "the graph in ASCII")

    def test_colours(self):
        self.programs(("one", 1), ("two", 1))  # the first one is chosen: it is shown in reverse, without a colour
        for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            top = self.top(**environment)
            top.wait(lambda text: "runs" in text, PATIENCE, "a program")
            self.assertEqual(re.search(r"\x1b\[(\d+;)*3[0-7]m", top.raw) is not None, coloured)

    def test_daemon_that_goes_away_is_told(self):
        top = self.top()
        self.daemon.process.terminate()
        top.wait(lambda text: "no gpushare-lockd is running" in text, PATIENCE, "the reason")
        self.assertIsNone(top.process.poll())


if __name__ == "__main__":
    unittest.main(warnings="ignore")
