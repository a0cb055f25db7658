#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program whose work does not end, or waits for the host, while another one waits: how long others, and its own exit, wait.

test_stuck.py --build DIR
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import Card, Told, check, failures  # noqa: E402

SLACK = 4  # seconds, on a busy machine; what was wrong took 10 and more
DRAIN, CAPTURE = 2, 5  # seconds: client.h, capture.h


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


def waits_for_the_host(build):
    """A kernel that ends when the host says so, which the host does after its next call: that call comes through the gate."""
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        told, other = Told(card), Told(card)
        check([told.say(words) for words in ("alloc 40", "poke", "spin")] == ["ok"] * 3, "a kernel that waits for the host")
        other.tell("zero 40")
        until_state(told, "stopping")
        start = time.monotonic()
        answer = told.say("poke")
        took = time.monotonic() - start
        check(answer == "ok" and took < DRAIN + SLACK, f"the next call: {answer} after {took:.2f} s")
        check(told.say("stop") == "ok" and other.answer() == "ok", "the kernel ends, and the other one has its turn")
        check(told.say("check") == "ok", "every byte")
        told.end()
        other.end()


def others_go_on(build, words, limit, rest):
    """The one that fits beside a program that cannot stop does not wait for it, nor does it lose anything."""
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        told, large, small = (Told(card) for _ in range(3))
        check([told.say(word) for word in ("alloc 40", "poke", words)] == ["ok"] * 3, f"{words}: a program that cannot stop")
        large.tell("zero 40")
        until_state(told, "stopping")
        start = time.monotonic()
        answer = small.say("zero 10")
        took = time.monotonic() - start
        check(answer == "ok" and took < limit + SLACK, f"{words}: the one that fits goes on after {took:.2f} s: {answer}")
        until_state(told, "stuck")
        check(large.answer(0) == "no answer", f"{words}: the one that does not fit waits")
        for word in rest:
            check(told.say(word) == "ok", f"{words}: {word}")
        check(large.answer() == "ok", f"{words}: the one that did not fit has its turn")
        check(told.say("check") == "ok", f"{words}: every byte")
        for program in (told, large, small):
            program.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    exits(build)
    waits_for_the_host(build)
    others_go_on(build, "spin", DRAIN, ["stop"])
    others_go_on(build, "capture", CAPTURE, ["poke", "captured"])
    sys.exit(1 if failures else 0)


main()
