#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The matrix without a card: its page and how results become one, and one row on the simulated card. test_matrix.py --build DIR"""
import glob
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import matrix  # noqa: E402  (beside this file)
from matrix_rows import ROWS  # noqa: E402

BUILD = ""


def result(date, **rows):
    return {"date": date, "card": "a card", "rows": {key: {"same": matrix.cell(*value)} for key, value in rows.items()}}


class Page(unittest.TestCase):
    def test_the_committed_page_is_that_of_the_committed_results(self):
        with open(matrix.PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), matrix.page(matrix.load(sorted(glob.glob(matrix.RESULTS)))))

    def test_an_untested_cell_counts_as_failed_and_is_printed_so(self):
        page = matrix.page([])
        self.assertTrue(matrix.failed(matrix.UNTESTED))
        self.assertEqual(page.count("**UNTESTED**"), 3 * len(ROWS))
        self.assertIn(f"{3 * len(ROWS)} cells: 0 passed, 0 failed, {3 * len(ROWS)} untested.", page)

    def test_the_newest_measured_cell_wins(self):
        table = matrix.merge([result("2026-02", torch=("failed", "new")), result("2026-01", torch=("passed", "old")),
                              result("2026-03", torch=("untested", "no card"))])
        self.assertEqual((table["torch", "same"]["state"], table["torch", "same"]["text"]), ("failed", "new"))

    def test_each_row_has_a_program_and_a_key_of_its_own(self):
        self.assertEqual(len({row.key for row in ROWS}), len(ROWS))
        for row in ROWS:
            self.assertTrue(os.path.exists(os.path.join(HERE, row.program)), row.program)


class Overhead(unittest.TestCase):
    def test_a_slower_program_fails_and_an_equal_one_passes(self):
        alone = [1.0, 1.1, 0.9, 1.05, 1.0]
        self.assertEqual(matrix.overhead_cell(alone, alone)["state"], "passed")
        self.assertEqual(matrix.overhead_cell(alone, [1.1 * one for one in alone])["state"], "failed")

    def test_the_interval_holds_the_mean(self):
        mean, low, high = matrix.interval([1.0, 1.0, 1.0], [1.1, 1.0, 1.2])
        self.assertTrue(low <= mean <= high)


class OnTheSimulatedCard(unittest.TestCase):
    def test_a_row_is_run_unpatched_and_patched(self):
        row = next(one for one in ROWS if one.key == "ctypes")
        with tempfile.TemporaryDirectory() as card, matrix.Bench(BUILD, 120) as bench:
            bench.environment.update(SIMCUDA_CARD=card, LD_LIBRARY_PATH=os.path.join(BUILD, "tests", "simcuda"))
            alone, seconds = bench.run(row, False)
            self.assertEqual(matrix.same(bench, row, alone)["state"], "passed")
            self.assertGreater(seconds, 0)
            with self.assertRaises(matrix.Failure):
                matrix.same(bench, row, "result ctypes another")
            broken = row._replace(arguments=["none"])
            self.assertIn("exit 1", matrix.attempt(lambda: matrix.same(bench, broken, alone))["text"])

    def test_two_copies_are_moved_in_their_middle(self):
        row = next(one for one in ROWS if one.key == "ctypes")
        with tempfile.TemporaryDirectory() as card, matrix.Bench(BUILD, 120) as bench:
            bench.environment.update(SIMCUDA_CARD=card, LD_LIBRARY_PATH=os.path.join(BUILD, "tests", "simcuda"))
            self.addCleanup(setattr, matrix, "BALLAST_GIB", matrix.BALLAST_GIB)
            matrix.BALLAST_GIB = 0
            alone, _ = bench.run(row, False)
            self.assertRegex(matrix.moved(bench, row, alone)["text"], "two copies right, [0-9.]+ GiB moved out")
            with self.assertRaises(matrix.Failure):
                matrix.moved(bench, row, "result ctypes another")

    def test_without_a_card_all_is_untested(self):
        with tempfile.TemporaryDirectory() as folder:
            path, page = os.path.join(folder, "new.json"), os.path.join(folder, "page.md")
            self.addCleanup(setattr, sys, "argv", sys.argv)
            self.addCleanup(setattr, matrix, "cards_here", matrix.cards_here)
            matrix.cards_here = lambda: []
            sys.argv = ["matrix.py", "-k", "ctypes", "--json", path, "--page", page]
            self.assertTrue(matrix.main())
            with open(path, encoding="utf-8") as file:
                self.assertEqual({key: cells["same"]["state"] for key, cells in json.load(file)["rows"].items()}, {"ctypes": "untested"})


if __name__ == "__main__":
    place = sys.argv.index("--build")
    BUILD = os.path.abspath(sys.argv[place + 1])
    del sys.argv[place:place + 2]
    unittest.main(warnings="ignore")
