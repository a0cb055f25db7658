# SPDX-License-Identifier: Apache-2.0
"""A program loses its connection twenty times within milliseconds, again and again, and comes back each time: another one is not
refused memory for that, nor told of a smaller card. test_flaps.py --build DIR"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import MIB, Card, Told, check, failures  # noqa: E402  (in the folder above)

ROUNDS, TIMES, SLACK = 200, 20, 4 * MIB  # what the contexts may take
YOUNG_NS = 3_000_000_000  # a daemon believes what programs come with for 2 s


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    with Card(build, memory="96MiB", **Told.SMALL_CONTEXTS) as card:
        flaps, other = Told(card), Told(card)
        check(flaps.say("alloc 40") == "ok", "40 MiB of the one that flaps")
        before = card.capacity()
        rest = (before - 40 * MIB - SLACK) >> 20
        check(other.say(f"zero {rest}") == "ok", f"{rest} MiB of the other one")
        for told in (flaps, other):
            told.until(lambda entry: entry["resident"] == entry["demand"] != 0)
        while card.status()["daemon"]["uptime_ns"] < YOUNG_NS:
            time.sleep(0.05)
        least, refused = before, 0
        for _ in range(ROUNDS):
            for _ in range(TIMES):
                flaps.say("shut 1000")
            answers = other.say("free 0"), other.say(f"zero {rest}")
            refused += answers != ("ok", "ok")
            devices = card.status()["devices"]
            least = min([least] + [device["capacity"] for device in devices])
        check(refused == 0, f"the other one was refused memory {refused} times in {ROUNDS} rounds")
        check(least >= before - SLACK, f"the capacity was {least / MIB:g} of {before / MIB:g} MiB at least")
        check(flaps.say("check") == "ok" and other.say("check") == "ok", "every byte")
        for told in (flaps, other):
            told.end()
    sys.exit(1 if failures else 0)


main()
