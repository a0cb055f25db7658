#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""100000 live allocations: a call among them costs about what it costs among 2000, and the books stay small.

test_many.py --build DIR [--count N]
Small allocations live on the card; large ones (a range each) are made by a program that has been paused, so that they have
addresses and books and no memory. Prints both sides and the ratio of each call; 1: one of them is beyond its bound.
"""
import argparse
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import Card  # noqa: E402  (beside this file)

FEW = 2000
# A look-up among fifty times as many is 5 or 6 levels of a tree deeper, none of which are in the cache.
MOST_TIMES = 8
SLACK_NS = 20000


def measure(args, count, size, paused):
    with Card(args.build, memory="300GiB", SIMCUDA_POISON="0") as card:
        child = subprocess.Popen([os.path.join(args.build, "tests", "runtime", "many"), str(count), str(size)],
                                 env=card.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        card.children.append(child)
        assert child.stdout.readline() == "ready\n"
        if paused:
            ctl = [os.path.join(args.build, "lockd", "gpusharectl"), "--socket", card.socket]
            subprocess.run(ctl + ["pause", str(child.pid)], env=card.environment, check=True, stdout=subprocess.DEVNULL)
        out, _ = child.communicate("go\n", timeout=args.patience)
        if child.returncode != 0:
            print(f"many {count} {size} ended with {child.returncode}")
            sys.exit(1)
        return {word.split("=")[0]: int(word.split("=")[1]) for word in out.split()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--patience", type=float, default=600, help="seconds for one of the four programs")
    args = parser.parse_args()
    good = True
    for what, size, paused, books in (("small", 1000, False, 64), ("large", 2 << 20, True, 600)):
        few, many = (measure(args, count, size, paused) for count in (FEW, args.count))
        for call in ("allocate", "find", "free"):
            fine = many[call] <= MOST_TIMES * few[call] + SLACK_NS
            good &= fine
            print(f"{what} {call}: {few[call]} ns among {FEW}, {many[call]} ns among {args.count}: "
                  f"{many[call] / max(few[call], 1):.1f} times{'' if fine else '  TOO MUCH'}")
        fine = many["books"] <= books
        good &= fine
        print(f"{what} books: {many['books']} bytes each{'' if fine else f', more than {books}'}")
    return 0 if good else 1


sys.exit(main())
