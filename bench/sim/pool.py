#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cards of one machine as a pool: programs that all start on the first card, with `balance = waiting` and without, and the
same programs placed as well as can be before they start.

usage: pool.py GPUSHARE_SIM [--limit X] [--seeds N] [--random N] [--json FILE]

Prints the makespan of each, and that of the placed programs as 1. equal: eight equal programs; different: eight of different length, memory
and use of the card. These are placed by their lengths, which nobody knows who runs them; so the time in which all would be done if
they shared all cards evenly counts instead where it is longer. Exit status 1 if balance takes more than --limit times as long.

--random N: also N random machines where programs come, some cannot see all cards, and a third of the moves fails. It checks that all of
them end, that none waits longer than the turns of all others take (or than without balance), and that none moves again and again.
"""
import argparse
import datetime
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

CARDS = (2, 4, 8)
HEAD = "[run]\nfor = 100d\nseed = {seed}\n[card]\ncount = {cards}\nmemory = 80GB\n"
QUANTUM, SWITCH = 60, 2  # seconds at most: the longest automatic quantum; 80 GB out and in
COST = 2  # seconds: the cheapest move there is


class Program:
    def __init__(self, memory, gpu, cpu, cycles, start=0.0, more=""):
        self.memory, self.gpu, self.cpu, self.cycles, self.start, self.more = memory, gpu, cpu, cycles, start, more

    @property
    def alone(self):
        return self.cycles * (self.gpu + self.cpu)

    def section(self, name, card):
        return (f"[program {name}]\nmemory = {self.memory:.0f}GB\ngpu = {self.gpu:.4f}s\ncpu = {self.cpu:.4f}s\n"
                f"cycles = {self.cycles}\nstart = {self.start:.3f}s\nstop = uniform 0ms 20ms\ncard = {card}\n{self.more}")


def simulate(simulator, folder, programs, cards, places, seed, *settings):
    path = os.path.join(folder, "pool.ini")
    with open(path, "w", encoding="ascii") as file:
        file.write(HEAD.format(seed=seed, cards=cards))
        for number, (program, card) in enumerate(zip(programs, places)):
            file.write(program.section(f"p{number}", card))
    sets = [word for each in settings for word in ("--set", each)]
    result = subprocess.run([simulator, "--json", *sets, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{simulator}: status {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def placements(programs, cards):
    """Those with the shortest longest card, by the programs' work: all that there are are tried, for eight programs."""
    if cards >= len(programs):
        return [list(range(len(programs)))]
    best, found = math.inf, []
    for places in itertools.product(range(cards), repeat=len(programs) - 1):
        sums = [0.0] * cards
        for program, card in zip(programs, (0,) + places):
            sums[card] += program.cycles * program.gpu
        if max(sums) < best:
            best, found = max(sums), [0, *places]
    return [found]


def shared_evenly(programs, cards):
    """Seconds, if all had the same part of all cards at any time, and turns cost nothing."""
    now = done = 0.0
    lengths = sorted(program.cycles * program.gpu for program in programs)
    for count, length in zip(range(len(lengths), 0, -1), lengths):
        now += (length - done) * max(1, count / cards)
        done = length
    return now


def kinds(seeds):
    yield "equal", 0, [Program(50, 0.4, 0.02, 1500) for _ in range(8)]
    for seed in range(1, seeds + 1):
        draw = random.Random(seed)
        yield f"different {seed}", seed, [Program(draw.uniform(30, 70), draw.uniform(0.1, 1), draw.uniform(0.01, 0.1),
                                                  draw.randint(400, 1600)) for _ in range(8)]


def compare(options, folder):
    rows, missed = [], 0
    for name, seed, programs in kinds(options.seeds):
        for cards in CARDS:
            first = [0] * len(programs)
            off = simulate(options.simulator, folder, programs, cards, first, seed)["totals"]
            on = simulate(options.simulator, folder, programs, cards, first, seed, "scheduler.balance=1")["totals"]
            placed = min(simulate(options.simulator, folder, programs, cards, places, seed)["totals"]["seconds"]
                         for places in placements(programs, cards))
            ratio, even = on["seconds"] / placed, shared_evenly(programs, cards) / placed
            limit = options.limit * max(1, even)
            missed += ratio > limit
            print(f"{'met' if ratio <= limit else 'NOT MET':8}{name:14}{cards} cards  placed {placed:7.0f} s   off "
                  f"{off['seconds'] / placed:5.2f}   waiting {ratio:6.3f}   shared evenly {even:.3f}   {on['moves']:.0f} moves, at most "
                  f"{on['moves_most']:.0f} of one program")
            text = f"eight {name.split()[0]} programs{' ' + name.split()[1] if seed else ''}, {cards} cards"
            rows += [{"name": f"{text}: off", "value": off["seconds"] / placed, "unit": "", "other": True},
                     {"name": f"{text}: waiting", "value": ratio, "unit": "", "ceiling": limit, "ratio": ratio / limit,
                      "against": "at most", "met": ratio <= limit}]
    return rows, missed


def check_random(options, folder):
    """Worlds in which much goes wrong. Returns how many break a promise."""
    broken, moves, attempts = 0, 0, 0
    for seed in range(1, options.random + 1):
        draw = random.Random(seed)
        cards, count = draw.choice(CARDS), draw.randint(2, 14)
        programs = [Program(draw.uniform(1, 75), 10 ** draw.uniform(-2, 0.5), draw.choice((0, 0.01, 0.3, 2)), draw.randint(100, 1000),
                            draw.uniform(0, 300), draw.choice(("", "", "hidden = 1\n"))) for _ in range(count)]
        places = [draw.choice((0, 0, draw.randrange(cards))) for _ in programs]
        fails = draw.choice((0, 0.33))
        found = simulate(options.simulator, folder, programs, cards, places, seed, "scheduler.balance=1", f"card.move_fails={fails}")
        off = simulate(options.simulator, folder, programs, cards, places, seed)
        bound = max(count * (QUANTUM + SWITCH), *(each["wait_longest_s"] for each in off["programs"]))
        for each, program in zip(found["programs"], programs):
            lasted = each["ended_s"] - program.start
            most = 2 + lasted / 600 + math.log2(1 + lasted / (2 * COST))
            if not each["ended"] or each["wait_longest_s"] > bound or each["moves"] > most or "hidden" in program.more and each["moves"]:
                print(f"NOT MET random {seed}: {each['program']} ended {each['ended']}, longest wait {each['wait_longest_s']:.0f} s of "
                      f"{bound}, {each['moves']} moves of {most:.1f}")
                broken += 1
            moves += each["moves"]
            attempts += each["move_attempts"]
    if options.random:
        print(f"{options.random} random machines: {moves} moves, {attempts - moves} more failed, {broken} programs with a broken promise")
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator")
    parser.add_argument("--limit", type=float, default=1.15)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, missed = compare(options, folder)
        missed += check_random(options, folder)
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump({"benchmark": "sim-pool", "date": datetime.date.today().isoformat(), "card": "simulated, 80 GB", "driver": None,
                       "title": "Eight programs that all start on the first card of a machine",
                       "scale": "makespan, that of the programs placed as well as can be is 1",
                       "note": "Shorter is better.", "rows": rows}, file, indent=1)
            file.write("\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
