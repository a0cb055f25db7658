#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios of gpushare-sim and compares them with what they expect.

usage: scenarios.py GPUSHARE_SIM [--json FILE] [SCENARIO.ini...]      default: all in scenarios/ that expect something

Prints a line for each expectation; exit status 1 if one is not met. The JSON is what bench/plot.py draws.
"""
import argparse
import datetime
import glob
import json
import os
import subprocess
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios")
WORDS = {"throughput": "throughput over serial", "jain": "Jain index", "weights": "off the weights by", "longest_wait":
         "longest wait", "latency_p50": "latency p50", "latency_p99": "latency p99", "finished": "jobs finished", "switch_cost":
         "time for switches"}


def run(simulator, path):
    result = subprocess.run([simulator, "--json", path], stdout=subprocess.PIPE)
    if result.returncode not in (0, 1) or not result.stdout:
        sys.exit(f"{simulator} {path}: status {result.returncode}")
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    rows, missed = [], 0
    for path in options.scenarios or sorted(glob.glob(os.path.join(FOLDER, "*.ini"))):
        name = os.path.splitext(os.path.basename(path))[0]
        for expect in run(options.simulator, path)["expected"]:
            missed += not expect["met"]
            value = "none" if expect["value"] is None else f"{expect['value']:.5g}"
            print(f"{'met' if expect['met'] else 'NOT MET':8}{name:16}{WORDS.get(expect['name'], expect['name']):24}{value:>10}"
                  f"   at {expect['at']} {expect['bound']:g}")
            if expect["value"] is not None:
                rows.append({"name": f"{name}: {WORDS.get(expect['name'], expect['name'])}", "value": expect["value"], "unit": "",
                             "ceiling": expect["bound"], "ratio": expect["value"] / expect["bound"],
                             "against": "at " + expect["at"], "met": expect["met"]})
    print(f"{len(rows)} expectations, {missed} not met")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"benchmark": "sim", "date": datetime.date.today().isoformat(), "card": "simulated, 80 GB",
                       "driver": None, "scale": "part of what is asked for (beyond twice: cut off)", "note":
                       "Red: not met.", "rows": rows}, file, indent=1)
            file.write("\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
