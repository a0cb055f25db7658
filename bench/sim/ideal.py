#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What no order of turns can beat: the requests of a scenario of notebooks on a card where switching costs nothing and one
program's copies never wait for another's kernels.

ideal.py [--requests N] [--seed N]      prints p50 and p99 of the latency over those of a card of one's own, as gpushare-sim does,
for requests one after the other, all side by side (each slowed down evenly), and the shortest first, which has to know how long
each will take. The figures are those of scenarios/notebooks.ini.
"""
import argparse
import heapq
import os
import random
import re

SCENARIO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios", "notebooks.ini")
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0}
BUS = 50.5e9  # bytes a second, as in gpushare-sim


def seconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|min)", text).groups()
    return float(number) * UNITS[unit]


def read_scenario():
    """(requests a second, shortest and longest kernel time, bytes), from the scenario's [program notebook]."""
    with open(SCENARIO, encoding="utf-8") as file:
        keys = dict(re.findall(r"^(\w+) = (.*)$", file.read().split("[program notebook]")[1].split("[expect]")[0], re.M))
    low, high = (seconds(each) for each in keys["gpu"].split()[1:])
    return int(keys["copies"]) / seconds(keys["request"].split()[1]), low, high, float(keys["memory"].removesuffix("GB")) * 1e9


def one_after_the_other(jobs):
    free, done = 0.0, []
    for ready, work in jobs:
        free = max(ready, free) + work
        done.append(free)
    return done


def by_what_is_left(jobs, side_by_side):
    """Side by side all get on evenly; else only the one with the least work left does."""
    done, left, now, at = [0.0] * len(jobs), [], 0.0, 0
    gone = 0.0  # side by side: work that each has had since the beginning
    while at < len(jobs) or left:
        ready = jobs[at][0] if at < len(jobs) else float("inf")
        share = len(left) if side_by_side else 1
        ends = now + (left[0][0] - gone) * share if left else float("inf")
        until = min(ready, ends)
        if left and side_by_side:
            gone += (until - now) / share
        elif left:
            least, job = heapq.heappop(left)
            heapq.heappush(left, (least - (until - now), job))
        now = until
        if ends <= ready:
            done[heapq.heappop(left)[1]] = now
        else:
            heapq.heappush(left, (gone + jobs[at][1], at))
            at += 1
    return done


def quantile(values, part):
    return sorted(values)[int(part * len(values))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rate, low, high, size = read_scenario()
    chance = random.Random(options.seed)
    arrivals, jobs, now = [], [], 0.0
    for _ in range(options.requests):
        now += chance.expovariate(rate)
        arrivals.append(now)
        jobs.append((now + size / BUS, chance.uniform(low, high)))
    alone = [size / BUS + work for _, work in jobs]
    for name, done in (("one after the other", one_after_the_other(jobs)), ("side by side", by_what_is_left(jobs, True)),
                       ("the shortest first", by_what_is_left(jobs, False))):
        taken = [end - arrived for end, arrived in zip(done, arrivals)]
        print(f"{name:20} p50 {quantile(taken, .5) / quantile(alone, .5):.2f}  p99 {quantile(taken, .99) / quantile(alone, .99):.2f}")


if __name__ == "__main__":
    main()
