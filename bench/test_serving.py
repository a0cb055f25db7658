#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs serving_bench.py on the simulated card, with a stub instead of PyTorch: the cases, the result and its picture, and that
nothing of it stays behind, also when it is ended early.

usage: test_serving.py --build DIR [-v] [NAME...]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "tests")]
import kit  # noqa: E402
import plot  # noqa: E402
import serving  # noqa: E402
import serving_bench  # noqa: E402

PATIENCE = 300  # seconds, on a machine that is busy with other things


def processes_of(folder):
    """Those whose command line names a file in it: the daemon, patched copies."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if entry.isdigit() and folder.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


class ByTurns(unittest.TestCase):
    """What one card can do for several servers."""

    def test_each_keeps_the_card_until_it_has_nothing_left(self):
        self.assertEqual(serving.by_turns([[0, 5], [1, 2]], [10, 3], 4), [[14, 19], [30, 32]])

    def test_the_longest_waiting_is_next_and_training_has_none(self):
        self.assertEqual(serving.by_turns([[0], [3], [], [2]], [10, 10, 10, 10], 1), [[11], [30], [], [20]])

    def test_an_idle_card_stays_with_the_last(self):
        self.assertEqual(serving.by_turns([[0, 100], [50]], [10, 10], 5), [[15, 15], [15]])
        self.assertEqual(serving.by_turns([[0, 100]], [10], 5), [[15, 10]])


class Fits(unittest.TestCase):
    """Which points of the frontier there is time for."""

    def test_all_of_them_or_the_first_classes_or_the_high_rates(self):
        classes, rates = ["default", "interactive", "batch"], [0.1, 0.2, 0.4]
        for seconds, first, lowest in ((3600, 3, 0.1), (200, 1, 0.1), (50, 1, 0.2), (20, 1, 0.4), (5, 0, 1)):
            cells = serving_bench.fit_cells(classes, rates, seconds, 2)
            self.assertEqual(cells, [(name, rate) for name in classes[:first] for rate in rates if rate >= lowest], seconds)
            for at, (_, rate) in enumerate(cells):
                took = serving_bench.window(rate, cells[at:], seconds, 2)
                self.assertGreaterEqual(took * rate, serving_bench.FEWEST)
                seconds -= (took + 2) * serving_bench.SLACK
            self.assertGreaterEqual(seconds, -1e-6)


class Serving(kit.BuildTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gs-serving-")
        self.addCleanup(folder.cleanup)
        self.json = os.path.join(folder.name, "result.json")
        self.folder = os.path.join(folder.name, "tmp")
        self.traces = os.path.join(folder.name, "traces")
        os.mkdir(self.folder)
        os.mkdir(self.traces)

    def start(self, *words):
        environment = {**os.environ, "TMPDIR": self.folder, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, os.path.join(HERE, "serving_bench.py"), "--self-check", "--build", self.build, "--json", self.json, *words]
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def run_cases(self, *words):
        """(exit status, what it said, its result or None)"""
        child = self.start("--budget", str(PATIENCE), *words)
        said = child.stdout.read()
        child.wait(timeout=PATIENCE)
        return child.returncode, said, self.result()

    def result(self):
        if not os.path.exists(self.json):
            return None
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)

    def assert_nothing_is_left(self):
        until = time.monotonic() + PATIENCE
        while processes_of(self.folder) and time.monotonic() < until:
            time.sleep(0.02)
        self.assertEqual(processes_of(self.folder), [])
        self.assertEqual(os.listdir(self.folder), [])

    def test_beside_training_and_the_frontier(self):
        status, said, result = self.run_cases("--case", "server", "--case", "frontier", "--rates", "0.4", "--classes", "default,background", "--trace", self.traces)
        self.assertEqual(status, 0, said)
        training, server = result["cases"]["server"]["programs"]
        self.assertGreater(training["moved_out"] + server["moved_out"], 0, "they fit: nothing was shared")
        self.assertGreater(result["cases"]["server"]["missing_bytes"], 0)
        self.assertEqual(len(server["latencies_s"]), server["requests"])
        self.assertTrue(all(mine > 0 for mine in server["latencies_s"] + server["ideal_s"]))
        self.assertEqual([each["name"] for each in result["rows"]], ["server: training keeps", *(f"server: server, {part}{words}" for part in ("p50", "p99") for words in ("", ", with its processor time"))])
        self.assertEqual([each["class"] for each in result["frontier"]], ["default", "background"])
        table = [line for line in said.splitlines() if line.startswith(("server ", "frontier "))]
        self.assertEqual(len(table), 5, said)
        self.assertEqual(len(os.listdir(self.traces)), 3)
        with open(os.path.join(self.traces, "trace-0.json"), encoding="utf-8") as file:
            self.assertTrue(json.load(file))
        self.assertIn("p99 of the requests", plot.draw(result).svg())
        self.assert_nothing_is_left()

    def test_disposable_memory_and_programs_that_fit(self):
        status, said, result = self.run_cases("--case", "pressure", "--case", "resident")
        self.assertEqual(status, 0, said)
        self.assertEqual(set(result["cases"]["pressure"]), {"without", "on_pressure", "discard"})
        self.assertGreater(result["cases"]["pressure"]["without"]["bytes"], 0)
        ways = ["without gpushare", "gpushare"]
        self.assertEqual([name for name in result["cases"]["resident"] if name != "MPS"], ways)
        self.assertIn("pressure: discard, bytes a request", plot.draw(result).svg())
        self.assert_nothing_is_left()

    def test_another_system(self):
        """Without a library in its environment that is the driver alone; the card is too small for both, which is said in words."""
        status, said, _ = self.run_cases("--case", "two", "--system", "the driver", "--environment", "X=1")
        self.assertEqual(status, 1, said)
        self.assertIn("CUDA error 2", said)
        self.assert_nothing_is_left()

    def test_a_budget_that_is_too_small_is_kept(self):
        status, said, _ = self.run_cases("--case", "notebook", "--budget", "14")
        self.assertEqual(status, 1, said)
        self.assertRegex(said, "not measured|the budget was spent")
        self.assert_nothing_is_left()

    def test_the_budget_interrupts_what_runs(self):
        budget = serving.Budget(serving.AT_THE_END + 0.1)
        self.addCleanup(budget.stop)
        with self.assertRaises(serving.OutOfTime):
            time.sleep(PATIENCE)

    def test_it_is_ended_early(self):
        child = self.start("--case", "notebook")
        for line in child.stdout:
            if "notebook has" in line:
                break
        self.assertTrue(processes_of(self.folder))
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(timeout=PATIENCE), 128 + signal.SIGTERM)
        self.assertEqual(self.result()["cases"], {})
        self.assert_nothing_is_left()

    def test_what_cannot_be_asked_for(self):
        for words, answer in ((("--classes", "idle"), "there are default, interactive, batch, background"), (("--rates", "0.1,x"), "write numbers above 0"),
                              (("--rates", "-1"), "write numbers above 0"), (("--limit", "0"), "--limit is a number above 0"),
                              (("--trace", "/nonexistent"), "is no folder"), (("--environment", "A=1"), "for --system"), (("--system", "x", "--environment", "A"), "KEY=VALUE")):
            with self.subTest(words=words):
                status, said, result = self.run_cases(*words)
                self.assertEqual((status, result), (1, None))
                self.assertIn(answer, said)


if __name__ == "__main__":
    kit.main()
