#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests plot.py: what it draws of results, what it refuses, and that the pictures in docs/plots are those of docs/results.

usage: test_plot.py [-v] [NAME...]
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(HERE, "..", "docs")
sys.path.insert(0, HERE)
import plot  # noqa: E402

ROWS = {"benchmark": "handoff", "date": "2026-11-21", "card": "NVIDIA X", "driver": 580,
        "rows": [{"name": "both ways", "value": 80.5, "unit": "GB/s", "ceiling": 101, "ratio": 0.797},
                 {"name": "a < b & c", "value": 55, "unit": "GB/s"}]}


def texts(picture):
    return [element.text for element in tree.fromstring(picture.svg()).iter() if element.tag.endswith("text") and element.text]


def boxes(picture):
    return [(float(element.get("x")), float(element.get("width"))) for element in tree.fromstring(picture.svg()).iter()
            if element.tag.endswith("rect") and element.get("x")]


class Bars(unittest.TestCase):
    def test_lengths_are_in_proportion(self):
        (_, first), (_, second) = boxes(plot.draw(ROWS))
        self.assertAlmostEqual(first / second, 80.5 / 55, places=2)

    def test_values_ceilings_and_names_are_written(self):
        words = " ".join(texts(plot.draw(ROWS)))
        for part in ("both ways", "a < b & c", "80.5 GB/s", "ceiling 101, 0.797", "NVIDIA X", "2026-11-21", "driver 580"):
            self.assertIn(part, words)

    def test_different_units_are_drawn_as_parts_of_their_ceilings(self):
        rows = [{"name": "x", "value": 5, "unit": "s", "ceiling": 10}, {"name": "y", "value": 300, "unit": "GB/s", "ceiling": 400}]
        (_, first), (_, second) = boxes(plot.draw({**ROWS, "rows": rows}))
        self.assertAlmostEqual(first / second, 0.5 / 0.75, places=2)

    def test_gate_and_patch_results_are_understood(self):
        self.assertIn("gate alone", " ".join(texts(plot.draw({"benchmark": "gate", "bare_ns": 30.1, "gated_ns": 33.2, "gate_ns": 3.1}))))
        row = {"file": "lib", "cp_s": 1, "patch_no_sync_s": 1.5, "cp_and_sync_s": 2, "patch_s": 1.8}
        self.assertIn("lib: patch", texts(plot.draw([row])))

    def test_overheads_are_drawn_as_percents_with_their_limit(self):
        row = {"name": "job: routed", "value": 1.001, "low": 0.999, "high": 1.0015, "ratios": [1.0, 1.002]}
        words = " ".join(texts(plot.draw({"benchmark": "solo", "pairs": 2, "limit": 0.002, "rows": [row]})))
        self.assertIn("+0.100 % (-0.100 to +0.150)", words)
        self.assertIn("at most +0.2 %", words)

    def test_what_nothing_can_be_below_is_drawn_in_proportion(self):
        rows = [{"name": "x", "value": 0.9, "unit": "of serial", "ceiling": 0.6, "at_least": 0.45}, {"name": "y", "value": 1, "unit": "s", "ceiling": 1}]
        picture = plot.draw({**ROWS, "rows": rows})
        (_, first), _ = boxes(picture)
        dashed = [element for element in tree.fromstring(picture.svg()).iter() if element.get("stroke-dasharray")]
        self.assertEqual(len(dashed), 1)
        self.assertAlmostEqual((float(dashed[0].get("x1")) - 250) / first, 0.5, places=2)

    def test_allocations_are_drawn_against_what_is_asked_for(self):
        row = {"bytes": 2 << 20, "way": "fresh", "ratio": 1.2}
        words = " ".join(texts(plot.draw({"benchmark": "alloc", "results": [row]})))
        self.assertIn("2 MiB, fresh", words)
        self.assertIn("at most 1.1, 1.091", words)

    def test_the_frontier_has_a_line_for_each_class_and_the_ideal(self):
        cells = [{"class": name, "rate": rate, "kept": 0.5, "p50": 1.5, "p99": 3, "ideal_p50": 1, "ideal_p99": 2, "ideal_kept": 0.7}
                 for name in ("default", "another") for rate in (0.1, 0.2)]
        result = {"benchmark": "serving", "title": "x", "rows": [], "frontier": cells}
        picture = tree.fromstring(plot.draw(result).svg())
        lines = [element for element in picture.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), 2 * 3)
        self.assertEqual(sum(element.get("stroke-dasharray") is not None for element in lines), 2)
        self.assertIn("another", texts(plot.draw(result)))
        for bad in ({"p50": 0}, {"kept": float("nan")}, {"ideal_p99": "1"}):
            with self.subTest(bad=bad), self.assertRaises(plot.Wrong):
                plot.draw({**result, "frontier": [{**cells[0], **bad}]})

    def test_what_cannot_be_drawn_is_refused(self):
        for result in (None, 3, [], {}, {"benchmark": 3}, {"benchmark": "handoff"}, {"benchmark": "handoff", "rows": []},
                       {"benchmark": "handoff", "rows": [3]}, {"benchmark": "handoff", "rows": [{"value": 3}]},
                       {"benchmark": "handoff", "rows": [{"name": "x", "value": -1}]}, {"benchmark": "thesis"},
                       {"benchmark": "handoff", "rows": [{"name": "x", "value": float("nan")}]}, {"benchmark": "gate"},
                       {"benchmark": "handoff", "rows": [{"name": "x", "value": 1, "unit": "a"}, {"name": "y", "value": 1}]},
                       {"benchmark": "thesis", "old": [], "ours": []}, {"benchmark": "solo", "rows": [{"name": "x"}]}):
            with self.subTest(result=result), self.assertRaises(plot.Wrong):
                plot.draw(result)


class Program(unittest.TestCase):
    def call(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(HERE, "plot.py"), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            with open(path, "w") as file:
                json.dump(ROWS, file)
            self.assertEqual(self.call("--check", "-o", folder, path).returncode, 1)
            self.assertEqual(self.call("-o", folder, path).returncode, 0)
            self.assertEqual(self.call("--check", "-o", folder, path).returncode, 0)
            with open(path, "w") as file:
                json.dump({**ROWS, "card": "another"}, file)
            result = self.call("--check", "-o", folder, path)
            self.assertEqual(result.returncode, 1)
            self.assertIn("x.svg is older", result.stderr)
            with open(path, "w") as file:
                file.write("{")
            self.assertEqual(self.call("-o", folder, path, "/nonexistent").returncode, 1)


class Documents(unittest.TestCase):
    def test_pictures_are_those_of_the_results(self):
        pictures = glob.glob(os.path.join(DOCS, "plots", "*.svg"))
        self.assertTrue(pictures)
        for picture in pictures:
            with self.subTest(picture=picture):
                result = os.path.join(DOCS, "results", os.path.basename(picture)[:-4] + ".json")
                with open(result) as file, open(picture) as drawn:
                    self.assertEqual(plot.draw(json.load(file)).svg(), drawn.read(),
                                     f"older than {result}: bench/plot.py -o docs/plots {result}")

    def test_the_table_is_that_of_the_results(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "page.py"), "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_newer_result_makes_the_table_old(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(DOCS, "results"), os.path.join(folder, "results"))
            shutil.copy(os.path.join(DOCS, "benchmarks.md"), folder)
            with open(os.path.join(folder, "results", "gate-h100-2030-01-01.json"), "w") as file:
                json.dump({"benchmark": "gate", "bare_ns": 30, "gated_ns": 36, "gate_ns": 6}, file)
            call = [sys.executable, os.path.join(HERE, "page.py"), os.path.join(folder, "benchmarks.md")]
            done = subprocess.run([*call, "--check"], capture_output=True, text=True)
            self.assertIn("older than docs/results", done.stderr)
            subprocess.run(call, check=True)
            with open(call[-1]) as file:
                self.assertIn("**the gate alone: 6 ns (goal 5)**", file.read())

    def test_the_page_shows_what_there_is(self):
        with open(os.path.join(DOCS, "benchmarks.md")) as file:
            page = file.read()
        for path in re.findall(r"\]\(((?:plots|results)/[^)]+)\)", page):
            self.assertTrue(os.path.exists(os.path.join(DOCS, path)), path)
        for picture in glob.glob(os.path.join(DOCS, "plots", "*.svg")):
            self.assertIn("plots/" + os.path.basename(picture), page)
        self.assertLessEqual(page.count("\n"), 200)


if __name__ == "__main__":
    unittest.main()
