#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what the benchmarks make of times: rounds, shares and waits, ideal latencies, lower bounds, intervals.

usage: test_figures.py [-v] [NAME...]
"""
import argparse
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402
import interactive_bench  # noqa: E402
import many_bench  # noqa: E402
import serving  # noqa: E402
import serving_bench  # noqa: E402
import solo_bench  # noqa: E402
import thesis_bench  # noqa: E402

MS = 1000000


def in_turn(lengths, rounds, apart=1 * MS):
    """Turns of programs that run one after the other, each so many batches of a ms."""
    ends, at = [[] for _ in lengths], 0
    for _ in range(rounds):
        for mine, batches in zip(ends, lengths):
            for _ in range(batches):
                at += MS
                mine.append(at)
            at += apart
    return [many_bench.Turns.of_ends(each, MS, 3 * MS) for each in ends]


class Many(unittest.TestCase):
    def test_turns_are_told_apart(self):
        first, second = in_turn([10, 5], 3)
        self.assertEqual([round((to - since) / MS) for since, to in first.spans], [10, 10, 10])
        self.assertEqual(len(second.spans), 3)
        self.assertEqual(first.longest_wait(), 7 * MS)

    def test_rounds_are_whole_and_the_first_three_are_left_out(self):
        turns = in_turn([10, 5], 6)
        since, to, rounds = many_bench.whole_rounds(turns)
        self.assertEqual(rounds, 2)
        self.assertEqual([each.done((since, to)) for each in turns], [20, 10])
        self.assertEqual([each.had((since, to)) for each in turns], [20 * MS, 10 * MS])
        self.assertIsNone(many_bench.whole_rounds(in_turn([10, 5], 4)))

    def test_shares_are_by_weight(self):
        jain, off = many_bench.shares([20, 40], [100, 200])
        self.assertAlmostEqual(jain, 1)
        self.assertAlmostEqual(off, 0)
        jain, off = many_bench.shares([20, 40], [100, 100])
        self.assertAlmostEqual(jain, 30 ** 2 / (2 * (10 ** 2 + 20 ** 2)))
        self.assertAlmostEqual(off, 1 / 3)

    def test_what_is_weighed_is_time_and_not_batches(self):
        turns = in_turn([10, 10], 6)
        turns[0].marks = turns[0].marks[::2]  # where its memory lies, a batch takes twice as long
        rows = many_bench.judge("x", turns, turns, [100] * 2, MS, 11 * MS, {})
        self.assertAlmostEqual(rows[1]["value"], 1)
        self.assertAlmostEqual(rows[0]["by_batches"]["weights_off"], 1 / 3)

    def test_throughput_and_wait_are_judged(self):
        turns = in_turn([10, 10, 10], 5)
        rows = many_bench.judge("x", turns, turns, [100] * 3, MS, 2 * 11 * MS, {})
        self.assertAlmostEqual(rows[0]["value"], 10 / 11)
        self.assertFalse(rows[0]["met"])
        self.assertTrue(rows[1]["met"])
        self.assertAlmostEqual(rows[2]["value"], 23 / 22)  # a pause before and after each of the two others


class Interactive(unittest.TestCase):
    def test_quantiles(self):
        values = list(range(100, 0, -1))
        self.assertEqual(interactive_bench.quantile(values, 0.5), 50)
        self.assertEqual(interactive_bench.quantile(values, 0.99), 99)
        self.assertEqual(interactive_bench.quantile([7], 0.99), 7)

    def test_requests_wait_for_each_other_and_bring_in_what_is_missing(self):
        # the second comes while the first is served, the third long after
        latencies, brought = interactive_bench.ideal([0, 50, 1000], [120, 220, 1120], [100, 60, 100], 20, 30)
        self.assertEqual(latencies, [120, 130, 120])
        self.assertEqual(brought, 2)

    def test_arrivals_are_poisson_and_the_same_each_time(self):
        times = interactive_bench.arrivals(5, 0.1, 1000)
        self.assertEqual(times, interactive_bench.arrivals(5, 0.1, 1000))
        self.assertAlmostEqual(len(times) / 10000, 1, delta=0.05)
        gaps = [(after - before) / 1e9 for before, after in zip(times, times[1:])]
        mean = sum(gaps) / len(gaps)
        self.assertAlmostEqual(sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean ** 2, 1, delta=0.1)


class Serving(unittest.TestCase):
    def test_what_is_brought_in_is_lost_in_both_directions(self):
        # two of three requests find their memory away: of 10 s, three requests of 1 s and four times 0.5 s
        times = [0, 1500 * MS, 6000 * MS]
        said = serving.judge(times, [1600 * MS, 2800 * MS, 7600 * MS], 1000 * MS, 500 * MS, 1600 * MS, 10)
        self.assertEqual(said["brought"], 2)
        self.assertAlmostEqual(said["ideal_kept"], 0.5)
        self.assertEqual(said["latencies_s"], [1.6, 1.3, 1.6])
        self.assertEqual(said["ideal_s"], [1.5, 1.0, 1.5])
        self.assertEqual((said["p50"], said["ideal_p50"], said["p99"]), (1.6, 1.5, 1.6))

    def test_the_ideal_takes_as_much_processor_time_as_the_requests_took(self):
        said = serving.judge([0, 5000 * MS], [1600 * MS, 6900 * MS], 1000 * MS, 500 * MS, 1600 * MS, 10, [0, 400 * MS])
        self.assertEqual(said["ideal_s"], [1.5, 1.5])
        self.assertEqual((said["own_p50"], said["own_p99"]), (1.5, 1.9))

    def test_what_is_asked_for(self):
        found = [{"kind": "train", "name": "training", "kept": 0.39},
                 {"kind": "serve", "name": "server", "p50": 1.19, "ideal_p50": 1.0, "own_p50": 1.1, "p99": 2.62, "ideal_p99": 2.0, "own_p99": 2.1}]
        self.assertEqual([each.get("met") for each in serving_bench.rows_of("server", found)], [False, True, None, False, None])
        self.assertEqual([each.get("met") for each in serving_bench.rows_of("notebook", found)], [None] * 5)

    def merged(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, f"{at}.json") for at in range(len(results))]
            for path, result in zip(paths, results):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(result, file)
            out = os.path.join(folder, "out.json")
            serving_bench.merge(argparse.Namespace(merge=paths, json=out))
            with open(out, encoding="utf-8") as file:
                return json.load(file)

    def test_merging_keeps_the_newest_of_each(self):
        first = {"card": "X", "driver": 1, "limit_gib": 4, "job": "stub", "bus": {}, "cases": {"two": 1}, "rows": [{"name": "a", "value": 1}],
                 "frontier": [{"class": "default", "rate": 0.2, "p50": 1}, {"class": "default", "rate": 0.1, "p50": 1}]}
        second = {**first, "cases": {"three": 2}, "rows": [{"name": "a", "value": 2}, {"name": "b", "value": 3}],
                  "frontier": [{"class": "default", "rate": 0.2, "p50": 5}]}
        result = self.merged(first, second)
        self.assertEqual([each["value"] for each in result["rows"]], [2, 3])
        self.assertEqual(result["cases"], {"two": 1, "three": 2})
        self.assertEqual([(cell["rate"], cell["p50"]) for cell in result["frontier"]], [(0.1, 1), (0.2, 5)])
        with self.assertRaises(harness.Failed):
            self.merged(first, {**second, "limit_gib": 5})


class Thesis(unittest.TestCase):
    def test_bounds(self):
        mix = thesis_bench.Mix(0.9, 10, 1e6)
        self.assertAlmostEqual(mix.at_least(1, 0), 0.95)
        self.assertAlmostEqual(mix.at_least(10, 0), 0.905)
        self.assertAlmostEqual(mix.at_least(1, 0.1), 1.04)
        self.assertAlmostEqual(thesis_bench.Mix(0.5, 10, 1e6).at_least(10, 0), 0.525)

    def test_the_parts_are_what_was_asked_for(self):
        words = thesis_bench.Mix(0.9, 10, 1e6).line(10).split()
        self.assertEqual(words[0:2], ["phases", "10"])
        self.assertAlmostEqual(int(words[2]), 900, delta=8)
        self.assertEqual(int(words[3]), 100 * MS)


class Solo(unittest.TestCase):
    def test_the_ratio_is_of_pairs(self):
        turns = {"plain": [1.0, 2.0, 4.0], "routed": [1.001, 2.002, 4.1]}
        one, = solo_bench.judge("gemm", 5, turns, 0.002)
        self.assertAlmostEqual(one["value"], 1.001)
        self.assertTrue(one["met"])
        one, = solo_bench.judge("gemm", 5, {**turns, "routed": [1.003, 2.006, 4.0]}, 0.002)
        self.assertFalse(one["met"])

    def test_intervals_hold_the_figure(self):
        low, high = harness.bootstrap([1.0] * 10 + [1.1] * 10 + [1.05] * 21)
        self.assertTrue(1.0 <= low <= 1.05 <= high <= 1.1)


if __name__ == "__main__":
    unittest.main()
