#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs turmoil (random threads and streams) while memory is moved.

test_turmoil.py --build DIR --mode alone|evict|shared|over [--seeds N] [--first S] [--chunk N] [--jobs N] [--seconds N] [--without NAME,...]
  alone   nothing is moved
  evict   all memory of the program is moved out again and again
  shared  three programs on a card that has room for one or two: memory goes from one to the other
  over    one or two programs, each of which may have more than the card: memory goes beyond it, and out, and comes back
Seeds are numbered from --first; --chunk of them run in one process, on a card of its own whose settings follow from its first seed.
--jobs cards at a time. --seconds: no new card after them. Each program must go on, whatever moves, and end with 0, and memory must
have moved. 10000 seeds by hand: HACKING.md.
"""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import OPTIONS, BuildTest, Card, check, main  # noqa: E402  (beside this file)


def settings(rng, mode):
    """The card's memory, the program's share of it in MiB, and what else differs from card to card."""
    more = {"SIMCUDA_CONTEXT_MEMORY": "512KiB", "SIMCUDA_TIMESLICE": rng.choice(["0", "0", "1"]),
            "SIMCUDA_POISON": rng.choice(["0", "1"])}
    if rng.random() < 0.25:
        more["SIMCUDA_PCIE_GBPS"] = rng.choice(["2", "10"])
    if rng.random() < 0.2:
        more["SIMCUDA_BUILTIN"] = "0"  # no hashes: everything is copied
    if mode == "shared":
        return "112MiB", rng.choice([24, 40, 56]), more
    if mode == "over":
        more.update(GPUSHARE_OVERCOMMIT="256MiB", GPUSHARE_OVERCOMMIT_GRAIN=rng.choice(["2MiB", "4MiB", "8MiB"]),
                    SIMCUDA_HOST_GBPS=rng.choice(["0", "2"]))
        return rng.choice(["32MiB", "40MiB", "56MiB"]), rng.choice([48, 96]), more
    return "1GiB", rng.choice([24, 48, 200]), more


class Progress:
    """The steps of a program, and when it made the newest."""

    def __init__(self, card, number):
        self.path = os.path.join(card.folder, f"progress{number}")
        self.made, self.at = 0, time.monotonic()

    def look(self):
        try:
            with open(self.path, "rb") as file:
                made = int.from_bytes(file.read(8), "little")
        except OSError:
            return
        if made != self.made:
            self.made, self.at = made, time.monotonic()

    def rests(self):
        """For how long it has made no step."""
        return time.monotonic() - self.at


def say_what(card, number, text):
    said = [text]
    for name in (f"log{number}", f"driver{number}"):
        path = os.path.join(card.folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                said.append(f"{name}: " + "".join(file.readlines()[-12:]))
    return "\n".join(said)


def run_card(args, first, seeds):
    """Returns the bytes that came back, those that were handed over, and the longest time without a step."""
    rng = random.Random(f"{args.mode} {first}")
    memory, share, more = settings(rng, args.mode)
    every = rng.choice([0, 0.02, 0.05, 0.2]) if args.every < 0 else args.every
    options = ["--hand-over", "no"] if rng.random() < 0.25 else []
    if args.mode == "over":
        options += ["--reserve", "10MiB"]  # the card is full: the memory of graphs needs a place
    evicting = args.mode == "evict" or (args.mode == "over" and rng.random() < 0.5)
    with Card(args.build, memory=memory, options=options, **more) as card:
        ctl = [os.path.join(args.build, "lockd", "gpusharectl"), "--socket", card.socket, "evict", "all"]
        children = []
        for number in range({"shared": 3, "over": rng.choice([1, 1, 2])}.get(args.mode, 1)):
            command = [os.path.join(args.build, "tests", "runtime", "turmoil"), "--first", str(first + number * 100000000),
                       "--seeds", str(seeds), "--memory", str(share), "--without", args.without,
                       "--progress", os.path.join(card.folder, f"progress{number}")]
            children.append(card.start(command, GPUSHARE_STATS=os.path.join(card.folder, f"stats{number}"),
                                       GPUSHARE_LOG=os.path.join(card.folder, f"log{number}"),
                                       SIMCUDA_LOG=os.path.join(card.folder, f"driver{number}") if args.driver_log else ""))
        progress = [Progress(card, number) for number in range(len(children))]
        rests = 0.0  # the longest
        while any(child.poll() is None for child in children):
            if evicting:
                subprocess.run(ctl, env=card.environment, capture_output=True, check=False)
            time.sleep(every if evicting else 0.05)
            for child, one in zip(children, progress):
                one.look()
                if child.poll() is None:
                    rests = max(rests, one.rests())
            if rests > args.patience:
                break
        sums = [0, 0]
        for number, child in enumerate(children):
            hangs = child.poll() is None
            if hangs and args.keep_hanging:
                print(f"pid {child.pid} hangs: {first} {memory} {share} {more}", flush=True)
                time.sleep(100000)
            if hangs:
                child.kill()
            out, err = child.communicate()
            code = "hangs" if hangs else child.returncode
            check(code == 0 and out.startswith("ok "),
                  say_what(card, number, f"program {number} of the card of seed {first}, {memory}, {share} MiB, {more}, each {every} s: "
                                         f"{code}: {out} {err[-12000:]}"))
            with open(os.path.join(card.folder, f"stats{number}"), encoding="utf-8") as file:
                stats = json.load(file)
            sums = [sums[0] + stats["moved_in"] + stats["exchanged"], sums[1] + stats["taken_over"]]
        return [*sums, rests]


class Turmoil(BuildTest):
    def test_seeds(self):
        args = OPTIONS
        self.assertIn(args.mode, ("alone", "evict", "shared", "over"))
        began, seed, end, sums, failures = time.monotonic(), args.first, args.first + args.seeds, [0, 0, 0.0], []
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            running = {}
            while True:
                while len(running) < args.jobs and seed < end and not (args.seconds and time.monotonic() - began > args.seconds):
                    if failures and not args.go_on:
                        break
                    running[pool.submit(run_card, args, seed, min(args.chunk, end - seed))] = seed
                    seed += args.chunk
                if not running:
                    break
                ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for card in ended:
                    del running[card]
                    try:
                        more = card.result()
                        sums = [sums[0] + more[0], sums[1] + more[1], max(sums[2], more[2])]
                    except AssertionError as wrong:
                        failures.append(str(wrong))
                        if args.go_on:
                            print(wrong, flush=True)
        print(f"seeds {args.first} to {min(seed, end) - 1}, {sums[0] >> 20} MiB brought back, {sums[1] >> 20} MiB handed over, "
              f"no step for {sums[2]:.1f} s at most, {len(failures)} failures, {time.monotonic() - began:.0f} s")
        self.assertEqual(failures, [], failures[0] if failures else "")
        if args.mode != "alone":
            self.assertNotEqual(sums[0], 0, "no memory has moved: the test has tested nothing")


if __name__ == "__main__":
    # patience: seconds without a step after which a program hangs; every: seconds between evictions (-1: drawn); go_on: after a failure
    # as well; keep_hanging: a program that hangs stays, to be looked at
    main(seeds=40, first=1, chunk=20, jobs=2, seconds=0.0, patience=300.0, every=-1.0, mode="evict", without="", go_on=0, keep_hanging=0,
         driver_log=0)
