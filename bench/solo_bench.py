#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of gpushare for a program that has the card to itself: time of the same work, routed over unpatched.

Three jobs: training of ResNet-50 in PyTorch, copies of 1 GiB on the card, products of matrices. Long-lived workers
(bench/solo_worker.py), one with an unpatched copy of python3 and one with a patched one, take turns of the same number of iterations;
who is not at its turn waits for a line. A pair is a turn of each within the same second; who begins changes. Printed after each
job: the median of the ratios of the pairs and the interval of it (bootstrap, 95 %). --control adds a second unpatched worker: what is
below its figure is noise.

--job takes a name or NAME=SIZE: resnet=256 (the batch), copy=1073741824 (bytes), gemm=8192 (rows).
"""
import os
import statistics

from harness import Bench, Failed, bootstrap, main, options, row, write

SIZES = {"resnet": 256, "copy": 1 << 30, "gemm": 8192}
NAMES = {"resnet": "ResNet-50 training", "copy": "copies on the card", "gemm": "matrix products"}
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "solo_worker.py")


def iterations(worker, seconds):
    """How many of them take about so long."""
    count = 4
    while (took := worker.say(f"turn {count}")["seconds"]) < seconds / 4:
        count *= 2
    return max(2, round(count * seconds / took))


def measure(workers, job, size, pairs, seconds):
    """The turns of each worker, in seconds, round by round; workers: name -> Program, "plain" first."""
    for worker in workers.values():
        worker.tell(f"open {job} {size}")
    facts = [worker.answer(timeout=180) for worker in workers.values()][0]
    count = iterations(workers["plain"], seconds)
    for worker in workers.values():  # as warm as it will be
        worker.say(f"turn {count}")
    turns = {name: [] for name in workers}
    for at in range(pairs):
        order = list(workers)[at % len(workers):] + list(workers)[:at % len(workers)]
        for name in order if at // len(workers) % 2 == 0 else reversed(order):
            turns[name].append(workers[name].say(f"turn {count}")["seconds"])
    for worker in workers.values():
        worker.say("close")
    return facts, count, turns


def judge(job, count, turns, limit):
    """The rows of a job: routed and control over plain."""
    rows = []
    for name in list(turns)[1:]:
        ratios = [mine / plain for mine, plain in zip(turns[name], turns["plain"])]
        low, high = bootstrap(ratios)
        median = statistics.median(ratios)
        is_ours = name == "routed"
        rows.append(row(f"{NAMES[job]}: {name}", median, ceiling=1 + limit if is_ours else None, against="at most",
                        met=median <= 1 + limit if is_ours else None, low=low, high=high, iterations=count,
                        seconds={"plain": statistics.median(turns["plain"]), name: statistics.median(turns[name])},
                        ratios=[round(ratio, 6) for ratio in ratios], other=not is_ours))
    return rows


def show(each, bench):
    print(f"{each['name']:30}{(each['value'] - 1) * 100:+9.3f}%{(each['low'] - 1) * 100:+12.3f}%{(each['high'] - 1) * 100:+8.3f}%"
          f"{each['seconds']['plain']:19.4f} {'  MISSED' if each.get('met') is False else ''}  [{bench.seconds():.0f} s]", flush=True)


def chosen(words):
    """[(job, size)]"""
    jobs = []
    for word in words:
        name, _, size = word.partition("=")
        if name not in SIZES or (size and not size.isdigit()):
            raise Failed(f"--job {word}: write resnet, copy or gemm, or one of them with a size, as copy=1048576")
        jobs.append((name, int(size or SIZES[name])))
    return jobs


def body():
    how = options(__doc__, (
        ("--job", {"action": "append", "metavar": "NAME[=SIZE]", "help": "only this one (several times)"}),
        ("--pairs", {"type": int, "default": 20}),
        ("--seconds", {"type": float, "default": 0.4, "help": "length of a turn, about"}),
        ("--limit", {"type": float, "default": 0.002, "help": "overhead that is allowed (default 0.002)"}),
        ("--control", {"action": "store_true", "help": "a second unpatched worker as well"})))
    jobs = chosen(how.job or SIZES)
    with Bench(how.build) as bench:
        plain, routed = bench.pythons()
        pythons = {"plain": plain, "routed": routed, **({"control": plain} if how.control else {})}
        workers = {name: bench.start(python, WORKER) for name, python in pythons.items()}
        rows, card = [], {}
        print(f"{'':30}{'median':>10}{'interval (95 %)':>22}{'seconds of a turn':>20}   at most {how.limit * 100:+.1f} %", flush=True)
        for job, size in jobs:
            facts, count, turns = measure(workers, job, size, how.pairs, how.seconds)
            if bench.device()["programs"][0]["calls"] == 0:
                raise Failed("no call of the patched python3 went through the gate")
            card = {**facts, **{key: value for key, value in card.items() if value is not None}}
            rows += judge(job, count, turns, how.limit)
            for each in rows[1 - len(turns):]:
                show(each, bench)
            write(how.json, "solo", card, rows, pairs=how.pairs, limit=how.limit, seconds=round(bench.seconds()))
        for worker in workers.values():
            worker.end()
    return rows


if __name__ == "__main__":
    main(body)
