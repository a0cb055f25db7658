#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves during which the program, the guard, the daemon, or guard and daemon together are killed at random moments: every
program that was not killed finds all of its memory right to its end, and nothing stays on the cards.

usage: test_move_kills.py BUILD-FOLDER [--seeds N] [--first SEED] [--seconds S]"""
import argparse
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from moving import PATIENCE, Cards, wait_for  # noqa: E402

WHOM = ("guard", "guard", "daemon", "daemon", "both", "both", "program", "nobody")
LATEST = 0.25  # seconds after the move was asked for; most of them take less


def kill_daemon(cards):
    cards.kill_daemons()


def kill_guards(cards, dice):
    """As soon as there is one, and a moment later: a guard lives for a few milliseconds."""
    end = time.monotonic() + LATEST
    guards = cards.guards()
    while not guards and time.monotonic() < end:
        guards = cards.guards()
    time.sleep(dice.choice((0, 0, dice.uniform(0, 0.01), dice.uniform(0, 0.1))))
    for guard in guards:
        cards.kill(guard)


def disturb(cards, dice, programs, counts):
    """One move, and what happens to it. Returns the program that was killed, or None."""
    mover = dice.choice(programs)
    whom = dice.choice(WHOM)
    asker = cards.start_move(mover, dice.randrange(2))
    victim = None
    if whom in ("guard", "both"):
        kill_guards(cards, dice)
    elif whom != "nobody":
        time.sleep(dice.uniform(0, LATEST))
    if whom in ("daemon", "both"):
        kill_daemon(cards)
        time.sleep(dice.choice((0, 0, 0.1)))
        cards.start_daemon()
    elif whom == "program" and len(programs) > 1:
        victim = mover
        victim.kill()
        victim.wait()
    try:
        asker.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"no answer for process {mover.pid}, {whom} killed; guards {cards.guards()}\n"
                             + cards.said()[-2000:] + cards.show()) from None
    counts[whom] = counts.get(whom, 0) + 1
    counts["moved"] = counts.get("moved", 0) + (asker.returncode == 0)
    return victim


def is_in_one_place(cards, program):
    """Where the daemon shows it is where its context is, and nowhere else; True also for one that has ended."""
    if program.poll() is not None:
        return True
    places = [card for card in range(2) if cards.state(program, card)]
    return len(places) == 1 and cards.used(program, places[0]) != 0 and cards.used(program, 1 - places[0]) == 0


def logged(cards):
    """The end of what all programs have logged."""
    with open(cards.folder + "/programs", encoding="utf-8", errors="replace") as log:
        return log.read()[-8000:]


def record_of(cards, program):
    """What is known of a program that does nothing: where its threads are, what it and the others have logged, what the daemon shows."""
    said = []
    for task in os.listdir(f"/proc/{program.pid}/task"):
        for name in ("comm", "wchan", "syscall", "stat"):
            try:
                with open(f"/proc/{program.pid}/task/{task}/{name}", encoding="utf-8", errors="replace") as file:
                    said.append(f"{task} {name}: {file.read().strip()}")
            except OSError as error:
                said.append(f"{task} {name}: {error}")
    return "\n".join([*said, logged(cards), cards.ctl("status")[1], cards.show(), cards.said()])


def wait_for_begin(cards, program, seed):
    try:
        wait_for(lambda: program.poll() is not None or cards.used(program, 0) + cards.used(program, 1) != 0, PATIENCE, "a program to begin")
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}: process {program.pid}\n{record_of(cards, program)}") from None
    if program.poll() is not None:
        raise AssertionError(f"seed {seed}: exit {program.returncode} at its start: {program.communicate(timeout=PATIENCE)}\n{logged(cards)}{cards.said()}")


def run_seed(build, seed, seconds, counts):
    dice = random.Random(seed)
    with Cards(build, SIMCUDA_PCIE_GBPS=dice.choice(("0.2", "0.5", "2"))) as cards:
        cards.start_daemon()
        log = cards.folder + "/programs"
        # each fits on a card beside the contexts of all three with room to spare: what one takes may count as others' for a moment
        programs = [cards.start_hog(share=share, GPUSHARE_LOG=log) for share in ("0.4", "0.5", "0.3")]
        for program in programs:
            wait_for_begin(cards, program, seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                victim = disturb(cards, dice, programs, counts)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from None
            if victim is not None:
                programs.remove(victim)
        for program in programs:
            wait_for(lambda p=program: is_in_one_place(cards, p), PATIENCE, f"seed {seed}: a program in one place\n{cards.show()}")
        for program in programs:
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=PATIENCE)
            if program.returncode != 0 or "ok " not in out or err:
                raise AssertionError(f"seed {seed}: exit {program.returncode}: {out}{err}\n{logged(cards)}{cards.said()}")
        # entries of the dead go with the next look; a guard that is still there ends by itself
        try:
            wait_for(lambda: "pid " not in cards.show() and " 0 B used" in cards.show() and "MiB used" not in cards.show(), 20,
                     "the cards to be empty")
        except AssertionError:
            raise AssertionError(f"seed {seed}: memory is left:\n{cards.show()}{cards.said()}") from None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    counts = {}
    for seed in range(options.first, options.first + options.seeds):
        run_seed(os.path.abspath(options.build), seed, options.seconds, counts)
    print(f"{options.seeds} seeds: {counts.pop('moved', 0)} moves done, killed: "
          + ", ".join(f"{whom} {count}" for whom, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
