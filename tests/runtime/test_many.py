#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""100000 live allocations: a call among them costs about what it costs among 2000, and the books stay small.

test_many.py --build DIR [--count N] [--patience SECONDS]
Small allocations live on the card; large ones (a range each) are made by a program that has been paused, so that they have
addresses and books and no memory. Prints both sides and the ratio of each call; 1: one of them is beyond its bound.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import OPTIONS, BuildTest, Card, check, main  # noqa: E402  (beside this file)

FEW = 2000
# A look-up among fifty times as many is 5 or 6 levels of a tree deeper, none of which are in the cache.
MOST_TIMES = 8
SLACK_NS = 20000


def measure(count, size, paused):
    with Card(OPTIONS.build, memory="300GiB", SIMCUDA_POISON="0") as card:
        child = subprocess.Popen([os.path.join(OPTIONS.build, "tests", "runtime", "many"), str(count), str(size)],
                                 env=card.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        card.children.append(child)
        assert child.stdout.readline() == "ready\n"
        if paused:
            ctl = [os.path.join(OPTIONS.build, "lockd", "gpusharectl"), "--socket", card.socket]
            subprocess.run(ctl + ["pause", str(child.pid)], env=card.environment, check=True, stdout=subprocess.DEVNULL)
        out, _ = child.communicate("go\n", timeout=OPTIONS.patience)
        check(child.returncode == 0, f"many {count} {size} ended with {child.returncode}")
        return {word.split("=")[0]: int(word.split("=")[1]) for word in out.split()}


class Many(BuildTest):
    def compare(self, what, size, paused, books):
        few, many = (measure(count, size, paused) for count in (FEW, OPTIONS.count))
        for call in ("allocate", "find", "free"):
            text = f"{what} {call}: {few[call]} ns among {FEW}, {many[call]} ns among {OPTIONS.count}: {many[call] / max(few[call], 1):.1f} times"
            print(text)
            self.assertLessEqual(many[call], MOST_TIMES * few[call] + SLACK_NS, text)
        self.assertLessEqual(many["books"], books, f"{what}: bytes of books for each")

    def test_small(self):
        self.compare("small", 1000, False, 64)

    def test_large(self):
        self.compare("large", 2 << 20, True, 600)


if __name__ == "__main__":
    main(count=100000, patience=600.0)  # seconds for one of the four programs
