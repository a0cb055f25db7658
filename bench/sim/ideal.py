#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bound that no order of turns can beat: the requests of a scenario of notebooks on a card where switching costs nothing and one
program's copies never wait for another's kernels.

ideal.py [--requests N] [--seed N]      prints p50 and p99 of the latency over those of a card of one's own, as gpushare-sim does,
for requests one after the other, all side by side (each slowed down evenly), and the shortest first, which has to know how long
each will take. The figures are those of scenarios/notebooks.ini.

ideal.py --servers [--requests N] [--seed N]     what orders of turns give for scenarios/two-servers.ini, where each server answers its own requests in the
order in which they came: the longer-waiting server first, each until it has nothing left, and each until the other could still be in time (which looks
ahead). p50 and p99 of the worse server over service + missing bytes / bus.
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


# --- two servers ---

SERVICE, MEMORY, CARD, MEAN = 0.801, 24.8 * 2 ** 30, 37.7 * 2 ** 30, 2.5  # of two-servers.ini
BUS_IN = 55e9
ALONE = SERVICE + (2 * MEMORY - CARD) / BUS_IN
ENOUGH = 1.2  # what is asked for
AHEAD = 20.0  # seconds
FEW = 400  # requests of each server, for the bound
MORE = 1000  # ... with a p99
LATEST = (5.0, 6.8)  # seconds


def next_server(order, ready, now, arrivals, last, switch, alone):
    """Which of two that both have a request is served; arrivals: of those."""
    if order == "the longest waiting":
        return 0 if arrivals[0] <= arrivals[1] else 1
    if order == "in time":
        in_time = [now + SERVICE + (switch if i != last else 0) - arrivals[i] <= ENOUGH * alone for i in ready]
        if in_time[0] != in_time[1]:
            return 0 if in_time[0] else 1
    return last


def arrivals_of_two(count, seed):
    chance, arrivals = random.Random(seed), [[], []]
    for each in arrivals:
        time = 0.0
        for _ in range(count):
            time += chance.expovariate(1 / MEAN)
            each.append(time)
    return arrivals


def serve_two(order, switch, count, seed):
    """[(p50, p99)] of each server, over what it takes alone."""
    arrivals, taken, at, now, last = arrivals_of_two(count, seed), [[], []], [0, 0], 0.0, 0
    while max(at) < count:
        heads = [arrivals[i][at[i]] for i in (0, 1)]
        ready = [i for i in (0, 1) if heads[i] <= now]
        if not ready:
            now = min(heads)
            continue
        server = ready[0] if len(ready) == 1 else next_server(order, ready, now, heads, last, switch, ALONE)
        now += SERVICE + (switch if server != last else 0)
        taken[server].append(now - heads[server])
        at[server] += 1
        last = server
    return [(quantile(each, .5) / ALONE, quantile(each, .99) / ALONE) for each in taken]


def part_in_time(limit, switch, count, seed, latest=float("inf"), price=0):
    """The largest part of the first 2 * count requests, of both servers, that any order answers within `limit` seconds, less `price` for each that is answered
    later than `latest`; each server answers its own in the order in which they came. Over the number of requests answered, and how many of them are the left server's, it keeps for each last server the least
    time for each number of requests in time. Schedules that are AHEAD s behind the fastest are dropped."""
    def value(taken):
        return (taken <= limit) - (price if taken > latest else 0)

    def left_over(now, left):
        """Those that have waited for too long when it ends."""
        return sum(arrived < now - latest for arrived in arrivals[0][left:] + arrivals[1][2 * count - left:])

    arrivals = arrivals_of_two(count * 2, seed)
    states = {(0, 0): [(0.0, 0)]}  # (requests of the left server, last server): [(time, requests in time)], both rising
    for answered in range(2 * count):
        after = {}
        for (left, last), points in states.items():
            for server in (0, 1):
                arrived = arrivals[server][answered - left if server else left]
                work = SERVICE + (switch if server != last else 0)
                to = after.setdefault((left + 1 - server, server), [])
                to += [(max(now, arrived) + work, good + value(max(now, arrived) + work - arrived)) for now, good in points]
        fastest = min(now for points in after.values() for now, _ in points)
        states = {}
        for key, points in after.items():
            most, kept = -float("inf"), []
            for now, good in sorted(points, key=lambda point: (point[0], -point[1])):
                if good > most and now <= fastest + AHEAD:
                    kept.append((now, good))
                    most = good
            if kept:
                states[key] = kept
    return max(good - price * left_over(now, left) for (left, _), points in states.items() for now, good in points) / (2 * count)


def can_be_half(limit, switch, count, seed, latest):
    """Not even at the best of these prices for a late request is half in time, with one in a hundred late: then no order can do both."""
    if latest == float("inf"):
        return part_in_time(limit, switch, count, seed) >= 0.5
    return all(part_in_time(limit, switch, count, seed, latest, price) + 0.01 * price >= 0.5 for price in (1, 2, 4, 8, 16))


def bound_of_p50(switch, count, seed, alone, latest=float("inf")):
    """The least p50 over `alone`, within 0.01, with a p99 of `latest` seconds at most; 1: half of the requests can be answered as if alone."""
    low, high = 1.0, 4.0
    while high - low > 0.01:
        middle = (low + high) / 2
        if can_be_half(middle * alone, switch, count, seed, latest):
            high = middle
        else:
            low = middle
    return high


def print_servers(count, seed):
    for switch in (0.0, (2 * MEMORY - CARD) / BUS):
        for order in ("the longest waiting", "until it rests", "in time"):
            p50, p99 = map(max, zip(*serve_two(order, switch, count, seed)))
            print(f"switch {switch:.2f} s  {order:20} p50 {p50:.2f}  p99 {p99:.2f}")
        print(f"switch {switch:.2f} s  {'bound':20} p50 {bound_of_p50(switch, min(count, FEW), seed, ALONE):.2f}")
        for latest in LATEST:
            bound = bound_of_p50(switch, min(count, MORE), seed, ALONE, latest)
            print(f"switch {switch:.2f} s  {'bound':20} p50 {bound:.2f}  p99 {latest / ALONE:.2f}")


def quantile(values, part):
    return sorted(values)[int(part * len(values))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", action="store_true")
    options = parser.parse_args()
    if options.servers:
        print_servers(options.requests // 4, options.seed)
        return
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
