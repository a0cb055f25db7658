#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program whose work does not end, or waits for the host, while another one waits: how long others, and its own exit, wait.

stuck.py --build DIR
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import Card, Told, check, failures  # noqa: E402

SLACK = 3  # seconds, on a busy machine; what was wrong took 10 and more


def until_state(told, *states):
    entry = told.until(lambda known: known["state"] in states)
    if entry["state"] not in states:
        raise RuntimeError(f"{entry['state']}, not {' or '.join(states)}")


def seconds_to_exit(told):
    start = time.monotonic()
    told.child.stdin.close()
    code = told.child.wait(timeout=100)
    took = time.monotonic() - start
    check(code == 0, f"exit {code}")
    return took


def exits(build):
    """With a kernel that does not end: as fast as without gpushare, whether another program waits for the card or not."""
    took = {}
    for way, more in (("without gpushare", {"GPUSHARE_DISABLE": "1"}), ("nobody waits", {}), ("somebody waits", {})):
        with Card(build, **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card, **more), Told(card)
            check([told.say("alloc 40"), told.say("spin")] == ["ok"] * 2, f"{way}: a kernel that does not end")
            if way == "somebody waits":
                other.tell("zero 40")
                until_state(told, "stopping", "stuck")
            took[way] = seconds_to_exit(told)
            print(f"exit, {way}: {took[way]:.2f} s")
            if way == "somebody waits":
                check(other.answer() == "ok", "the other one goes on")
            other.end()
    for way in ("nobody waits", "somebody waits"):
        check(took[way] < took["without gpushare"] + SLACK, f"exit, {way}: {took[way]:.2f} s, without {took['without gpushare']:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    exits(build)
    sys.exit(1 if failures else 0)


main()
