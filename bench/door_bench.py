#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time that the fourth door adds to the start of a program: loading the driver, cuInit and cuDeviceGetCount, with the door staged
in front of the driver that the loader finds, and without; and a gated call. Both sides run in turns.

usage: door_bench.py --build DIR [--rounds N] [--limit-ms MS] [--json FILE]     exit 1: the start takes longer by more than that"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def load_ns(build, environment):
    return int(subprocess.run([os.path.join(build, "bench", "door_load")], env=environment, check=True, capture_output=True,
                              text=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--limit-ms", type=float, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory(prefix="gs-door-bench-") as folder:
        subprocess.run([os.path.join(build, "wrap", "gpushare-door"), "--stage", folder], check=True)
        plain = dict(os.environ)
        through = dict(os.environ, LD_LIBRARY_PATH=folder + ":" + os.environ.get("LD_LIBRARY_PATH", ""), GPUSHARE_QUIET="1")
        times = {"driver": [], "door": []}
        for _ in range(args.rounds):
            times["driver"].append(load_ns(build, plain))
            times["door"].append(load_ns(build, through))
    # the least of each: what the work takes when nothing else holds it up
    least = {side: min(values) / 1e6 for side, values in times.items()}
    median = {side: statistics.median(values) / 1e6 for side, values in times.items()}
    added = least["door"] - least["driver"]
    result = {"added_ms": round(added, 3), "added_median_ms": round(median["door"] - median["driver"], 3),
              "driver_ms": round(least["driver"], 3), "door_ms": round(least["door"], 3), "rounds": args.rounds}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    print(f"start: {least['driver']:.3f} ms without, {least['door']:.3f} ms through the door: {added:.3f} ms more "
          f"(medians: {result['added_median_ms']:.3f} ms)")
    sys.exit(added > args.limit_ms)


main()
