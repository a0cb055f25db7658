#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the driver's answers to random sequences of calls with gpushare and without (differ/differ.c).

test_differ.py PROGRAM [--plain PROGRAM] [--build DIR] [--seeds N] [--first S] [--operations N] [--threads T] [--faults] [--runtime FILE] [--evict MS] [--jobs N]
               [--limit SECONDS] [--enough N] [--alarm SECONDS] [--again N] [--progress] [--no-shorten] [--json FILE]
  PROGRAM   differ, patched or linked with libgpushare: run with GPUSHARE_DISABLE=1 (or in its place --plain, which is not patched), and without
  --build   on a simulated card with the daemon of that build; else on the card that there is
  --runtime calls of this CUDA runtime as well, on the same objects (on the simulated driver: of simcudart)
  --evict   while the sequences run, everything is moved out each so many milliseconds (without --build: by the daemon of GPUSHARE_SOCKET,
            with the gpusharectl of GPUSHARE_CTL)

Differences are counted by kind: the call, the answer without gpushare and with. The first sequence of a kind is made as short as it stays
different. The kinds that are meant stand in differences.txt, with their reasons. An operation that crashes the driver without gpushare, or does
not end there within --alarm seconds, is counted and left out. What comes after one that does so with gpushare is not compared. --again: how often at most a sequence is compared again without what differed;
what comes after the last difference is not counted. No sequence begins after --limit, or after --enough compared operations. Exit status: 0 no other difference, 1 some, 77 no card.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "runtime"))
from card import OPTIONS, Card  # noqa: E402  (tests/runtime)

PATIENCE = 600  # seconds for one sequence
REPEATS = 4     # times that the driver must give the same answer
SHORTER = 60    # runs at most to make a sequence shorter
CRASHES = 20    # of the driver itself, in one sequence: what comes after the last of them is left out, too


def meant():
    """Pairs (pattern of a kind, reason): a line each, "PATTERN <tab> REASON"."""
    with open(os.path.join(HERE, "differences.txt"), encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
    return [(re.compile(pattern), reason) for pattern, reason in lines]


class Sequence:
    """One seed's operations: which of them run, and what they answer."""

    def __init__(self, seed, environment, kinds):
        self.seed, self.environment, self.kinds, self.last_words = seed, environment, kinds, ""

    def run(self, numbers, plain):
        """({number: line}, number of the operation that crashed, or None). numbers: None for all."""
        command = [OPTIONS.plain if plain else OPTIONS.program, "--seed", str(self.seed), "--operations", str(OPTIONS.operations), "--threads", str(OPTIONS.threads),
                   "--alarm", str(OPTIONS.alarm)]
        if OPTIONS.runtime:
            command += ["--runtime", OPTIONS.runtime]
        if OPTIONS.faults:
            command.append("--faults")
        if numbers is not None:
            command += ["--only", spans_of(numbers)]
        environment = {**self.environment, "GPUSHARE_DISABLE": "1"} if plain else self.environment
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        if done.returncode == 77:
            sys.exit(77)
        lines = {int(line.split()[0]): line for line in done.stdout.splitlines() if line.split()}
        if done.returncode == 0:
            return lines, None
        if done.returncode > 0:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
        self.last_words = (done.stderr.splitlines() or ["crashed"])[-1]
        left = [number for number in (numbers if numbers is not None else range(OPTIONS.operations)) if number not in lines]
        return lines, left[0] if left else OPTIONS.operations

    def compare(self, numbers):
        """(numbers that can run, first operation that differs, its line without gpushare, with), with None for no difference."""
        numbers = list(range(OPTIONS.operations)) if numbers is None else list(numbers)
        for crashes in range(CRASHES):
            plain, crash = self.run(numbers, True)
            if crash is None:
                break
            self.kinds.left_out[crash, self.seed] = self.last_words
            if crashes >= OPTIONS.again or crash == OPTIONS.operations:
                numbers = [number for number in numbers if number < crash]
                break
            numbers = [number for number in numbers if number != crash]
        at_end = crash == OPTIONS.operations  # the driver itself does not survive the program's end
        mine, crash = self.run(numbers, False)
        if crash == OPTIONS.operations and not at_end:
            raise AssertionError("it crashed, or did not end, after its last operation")
        if crash is not None:  # what would have come after it, nobody knows
            numbers = [number for number in numbers if number <= crash]
        for number in numbers:
            before, after = plain.get(number, "nothing"), mine.get(number, "a crash, or no end")
            if before != after and self.kinds.is_meant(kind_of(before, after)):
                self.kinds.add(kind_of(before, after))
            elif before != after:
                if self.kinds.is_known(kind_of(before, after)):
                    return numbers, number, before, after
                until = [other for other in numbers if other <= number]
                # else the driver itself answers now this, now that
                if all(self.run(until, True)[0].get(number, "nothing") == before for _ in range(REPEATS)):
                    if self.run(until, False)[0].get(number, "nothing" if number in mine else after) == after:
                        return numbers, number, before, after
                    print(f"came once: seed {self.seed}, operation {number}: {before} natively, {after} with gpushare", flush=True)
        return numbers, None, None, None

    def shorten(self, numbers, differs, until):
        """The fewest operations found until then, in at most SHORTER runs, with which the operation `differs` still differs."""
        runs, size = 0, max(len(numbers) // 2, 1)
        while size >= 1 and runs < SHORTER and time.monotonic() < until:
            at = 0
            while at < len(numbers) and runs < SHORTER and time.monotonic() < until:
                fewer = numbers[:at] + numbers[at + size:]
                if differs in fewer:
                    runs += 1
                    if self.compare(fewer)[1] == differs:
                        numbers = fewer
                        continue
                at += size
            size //= 2
        return numbers


def words_of(line):
    """A line without the numbers of operation, slots and sizes: what a kind is made of."""
    line = re.sub(r"^\d+ (t\d )?", "", line)
    line = re.sub(r"\b([a-z])\d+(\+\d+)?", r"\1", line)
    name = line.split("=")[0].strip()
    return name, re.sub(r"\b\d{4,}\b", "N", line[line.find("="):]) if "=" in line else ""


def kind_of(before, after):
    name, answer = words_of(before)
    name = re.sub(r"(?<!attribute )(?<!\d)\d+", "#", name)
    return f"{name}: {answer or before}, with gpushare: {words_of(after)[1] or after}"


def spans_of(numbers):
    """1, 2, 3, 7 as "1-3,7": what --only of differ takes."""
    spans = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{first}-{last}" if first != last else f"{first}" for first, last in spans)


class Kinds:
    """The differences found, by kind; each kind's first one is made shorter."""

    def __init__(self):
        self.mutex, self.count, self.example = threading.Lock(), collections.Counter(), {}
        self.meant = meant()
        self.left_out = {}  # (operation, seed) that crash or hang the driver itself: its line
        self.compared = 0   # operations

    def count_compared(self, operations):
        with self.mutex:
            self.compared += operations

    def is_meant(self, kind):
        return next((reason for pattern, reason in self.meant if pattern.search(kind)), None)

    def is_known(self, kind):
        return kind in self.count

    def add(self, kind):
        """Whether it is the first of its kind."""
        with self.mutex:
            self.count[kind] += 1
            return self.count[kind] == 1


def check_seed(seed, environment, kinds, until):
    """Adds a sequence's differences: an operation that differed is left out, and the rest compared again."""
    sequence, numbers, begin, found = Sequence(seed, environment, kinds), None, time.monotonic(), []
    for again in range(OPTIONS.again + 1):
        numbers, differs, before, after = sequence.compare(numbers)
        if differs is None or again == OPTIONS.again or time.monotonic() > until:
            kinds.count_compared(sum(differs is None or number <= differs for number in numbers))
        if differs is None:
            break
        kind = kind_of(before, after)
        found.append(kind)
        if kinds.add(kind):
            fewer = [number for number in numbers if number <= differs]
            if OPTIONS.shorten:
                fewer = sequence.shorten(fewer, differs, until)
            plain, mine = sequence.run(fewer, True)[0], sequence.run(fewer, False)[0]
            kinds.example[kind] = {"seed": seed, "operations": fewer, "without": [plain.get(number, "nothing") for number in fewer],
                                   "with": [mine.get(number, "nothing") for number in fewer], "lines": [before, after]}
        if time.monotonic() > until:
            break
        numbers = [number for number in numbers if number != differs]
    if OPTIONS.progress:
        print(f"seed {seed}: {time.monotonic() - begin:.1f} s, {kinds.compared} operations so far" + "".join(f"\n   {kind}" for kind in found), flush=True)


class Evictions:
    """While it is entered, everything is moved out each so many milliseconds."""

    def __init__(self, ctl, environment, milliseconds):
        self.command, self.environment, self.pause = [ctl, "evict", "all"], environment, milliseconds / 1000
        self.over, self.count = threading.Event(), 0
        self.thread = threading.Thread(target=self.evict)

    def evict(self):
        while not self.over.wait(self.pause):
            self.count += subprocess.run(self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         check=False).returncode == 0

    def __enter__(self):
        if self.pause:
            self.thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        if self.pause:
            self.thread.join()
            print(f"moved out {self.count} times")


def compare_all(environment, ctl):
    begin, kinds, seeds = time.monotonic(), Kinds(), iter(range(OPTIONS.first, OPTIONS.first + OPTIONS.seeds))

    def check_seeds(_):
        """How many it has checked, beside the other threads."""
        ran, until = 0, begin + OPTIONS.limit
        while time.monotonic() < until and kinds.compared < OPTIONS.enough and (seed := next(seeds, None)) is not None:
            try:
                check_seed(seed, environment, kinds, until)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                kinds.add(f"the tester itself, seed {seed}: {error}")
            ran += 1
        return ran

    with Evictions(ctl, environment, OPTIONS.evict), concurrent.futures.ThreadPoolExecutor(OPTIONS.jobs) as pool:
        ran = sum(pool.map(check_seeds, range(OPTIONS.jobs)))
    reasons = {kind: kinds.is_meant(kind) for kind in kinds.count}
    for kind, count in kinds.count.most_common():
        print(f"{count} x {'meant: ' if reasons[kind] else ''}{kind}")
        example = kinds.example.get(kind)
        if example is None or reasons[kind]:
            continue
        print(f"   seed {example['seed']} --only {spans_of(example['operations'])}")
        for before, after in list(zip(example["without"], example["with"]))[-12:]:
            print(f"   {before}" + ("" if before == after else f"\n      with gpushare: {after}"))
    other = [kind for kind in kinds.count if not reasons[kind]]
    if OPTIONS.json:
        with open(OPTIONS.json, "w", encoding="utf-8") as file:
            json.dump([{"kind": kind, "count": kinds.count[kind], **kinds.example.get(kind, {})} for kind in kinds.count], file, indent=1)
    print(f"{ran} sequences, {kinds.compared} operations compared in {time.monotonic() - begin:.0f} s: {len(other)} kinds of differences, "
          f"{len(kinds.count) - len(other)} that are meant; {len(kinds.left_out)} operations crash or hang the driver itself")
    for name, count in collections.Counter(words_of(words)[0] for words in kinds.left_out.values()).most_common():
        print(f"   {count} x {name}")
    return ran > 0 and not other


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--plain")
    parser.add_argument("--build")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--operations", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--runtime", metavar="FILE", help="with calls of this CUDA runtime, too")
    parser.add_argument("--evict", type=int, default=0, metavar="MS")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="after them no sequence begins")
    parser.add_argument("--enough", type=int, default=float("inf"), metavar="N", help="after so many compared operations no sequence begins")
    parser.add_argument("--alarm", type=int, default=60, metavar="SECONDS", help="an operation that takes longer is killed")
    parser.add_argument("--again", type=int, default=7, metavar="N")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--no-shorten", dest="shorten", action="store_false")
    parser.add_argument("--json")
    parser.parse_args(namespace=OPTIONS)
    OPTIONS.program = os.path.abspath(OPTIONS.program)
    OPTIONS.plain = os.path.abspath(OPTIONS.plain or OPTIONS.program)
    if OPTIONS.build is None:
        return compare_all(dict(os.environ), os.environ.get("GPUSHARE_CTL", "gpusharectl"))
    OPTIONS.build = os.path.abspath(OPTIONS.build)
    with Card(OPTIONS.build, memory="512MiB") as card:
        return compare_all(card.environment, os.path.join(OPTIONS.build, "lockd", "gpusharectl"))


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
