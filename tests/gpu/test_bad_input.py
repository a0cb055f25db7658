#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the driver's memory functions answer to bad input with gpushare and without.

test_bad_input.py PROGRAM [--build DIR]
  PROGRAM   bad_input, patched or linked with libgpushare: run with GPUSHARE_DISABLE=1, and without
  --build   on a simulated card with the daemon of that build; else on the card that there is

Cases in which the driver itself crashes (a line "CASE: signal N") are counted and not compared; lines must be equal in all
others, but for those of KNOWN. Prints the lines that differ and one closing line; 0: equal, 1: not, 77: no card.
"""
import argparse
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "runtime"))
from card import Card  # noqa: E402  (tests/runtime)

# What a real driver (580) lets pass and we do not, and what follows from it.
KNOWN = {
    "map_wrong map over the end": "it maps memory beyond the end of the reservation",
    "map_wrong unreserve at last": "and then this reservation is in use",
    "properties_released properties": "it answers from what it has freed (and crashes in map_released)",
}


def answers(program, environment, **more):
    """The lines of each case, in order."""
    done = subprocess.run([program], env={**environment, **more}, stdout=subprocess.PIPE, text=True, timeout=500, check=False)
    if done.returncode != 0:
        print(f"{program} ended with {done.returncode}")
        sys.exit(77 if done.returncode == 77 else 1)
    cases = {}
    for line in done.stdout.splitlines():
        cases.setdefault(line.split()[0].rstrip(":"), []).append(line)
    return cases


def compare(program, environment):
    plain = answers(program, environment, GPUSHARE_DISABLE="1")
    mine = answers(program, environment)
    crashed = [name for name, lines in plain.items() if "signal" in lines[-1]]
    same = different = known = 0
    for name in sorted(plain.keys() | mine.keys(), key=str):
        if name in crashed:
            continue
        one, two = plain.get(name, []), mine.get(name, [])
        for i in range(max(len(one), len(two))):
            pair = [lines[i] if i < len(lines) else "nothing" for lines in (one, two)]
            same += pair[0] == pair[1]
            if pair[0] != pair[1] and pair[0].split(":")[0] in KNOWN:
                known += 1
            elif pair[0] != pair[1]:
                different += 1
                print(f"{pair[0]}   with gpushare: {pair[1]}")
    print(f"{same} answers are the same, {different} differ, {known} in known ways; the driver crashed in {len(crashed)} cases: {' '.join(crashed)}")
    return 0 if different == 0 and same > 400 else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--build")
    args = parser.parse_args()
    if args.build is None:
        return compare(args.program, os.environ)
    with Card(args.build, memory="256MiB") as card:
        return compare(args.program, card.environment)


sys.exit(main())
