#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster of cards, jobs that come to it, and rules by which its scheduler gives them cards; each card is gpushare-sim, with
gpushare-lockd's scheduler as it is.

usage: cluster.py GPUSHARE_SIM [--cards N] [--hours H] [--load X] [--memory X] [--seed N] [--rules NAME...] [--expect] [--json FILE]

The queue is first come, first served. A job that gets a card is added to the jobs of that card, and the card is simulated again
from the beginning; its programs draw nothing at random, so what has happened before stays as it was. Jobs end when gpushare-sim
says so. --expect: exit status 1 if sharing by the daemon's figures does not buy what BOUNDS says.
"""
import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

GB = 1e9
CARD = 80 * GB
ROOM = 78 * GB  # without what the daemon keeps free
LARGEST = 76 * GB
MOST_BUSY, MOST_MEMORY, MOST_JOBS = 0.9, 2.5, 4
# kind: part of the jobs, memory in GB, cycles, seconds on the card in one, seconds without it
KINDS = {
    "notebook": (0.5, (15, 40), (30, 70), (2, 8), (40, 90)),
    "training": (0.2, (30, 60), (125, 250), (20, 40), (3, 8)),
    "evaluation": (0.3, (8, 24), (30, 60), (10, 30), (10, 30)),
}
TITLE = "Jobs of a cluster whose scheduler places them by four rules"
RULES = {
    "exclusive": "one job a card",
    "fits": "jobs whose memory fits together",
    "count": "at most 4 jobs a card, fewest first",
    "figures": "by free time and oversubscription",
}
# of the same figure of `exclusive`: what is asked for in --expect, a little above what was measured on small clusters
BOUNDS = {"makespan_h": 0.85, "wait_mean_h": 0.5, "turnaround_mean_h": 0.8}


class Job:
    def __init__(self, kind, arrival, draw, scale):
        _, memory, cycles, gpu, cpu = KINDS[kind]
        self.kind, self.arrival = kind, arrival
        self.memory, self.cycles = min(scale * draw.uniform(*memory) * GB, LARGEST), draw.randint(*cycles)
        self.gpu, self.cpu = draw.uniform(*gpu), draw.uniform(*cpu)
        self.start = self.end = None
        self.waited = 0.0  # on its card

    @property
    def busy(self):
        """The part of its time in which it uses a card of its own: what the daemon measures as gpu_seconds_total."""
        return self.gpu / (self.gpu + self.cpu)

    @property
    def alone(self):
        return self.cycles * (self.gpu + self.cpu)


def make_jobs(options):
    """As many as keep the cards busy for load times the hours, with one job a card."""
    draw = random.Random(options.seed)
    kinds, weights = list(KINDS), [each[0] for each in KINDS.values()]
    jobs, work = [], 0.0
    while work < options.load * options.hours * 3600 * options.cards:
        job = Job(draw.choices(kinds, weights)[0], 0.0, draw, options.memory)
        jobs.append(job)
        work += job.alone
    for job, arrival in zip(jobs, sorted(draw.uniform(0, options.hours * 3600) for _ in jobs)):
        job.arrival = arrival
    return jobs


class Card:
    def __init__(self, number, folder, simulator):
        self.jobs, self.simulator = [], simulator
        self.path = os.path.join(folder, f"card{number}.ini")

    def active(self, now):
        return [job for job in self.jobs if job.end > now]

    def add(self, job, now):
        job.start, job.end = now, float("inf")
        self.jobs.append(job)

    def simulate(self):
        lines = ["[run]", "for = 100d", "[card]", f"memory = {CARD / GB:g}GB"]
        for number, job in enumerate(self.jobs):
            lines += [f"[program j{number}]", f"memory = {job.memory:.0f}", f"start = {job.start:.3f}s", f"gpu = {job.gpu:.3f}s",
                      f"cpu = {job.cpu:.3f}s", f"cycles = {job.cycles}", "stop = uniform 0ms 50ms"]
        with open(self.path, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        done = subprocess.run([self.simulator, "--json", "--programs", self.path], stdout=subprocess.PIPE, check=True)
        for job, told in zip(self.jobs, json.loads(done.stdout)["programs"]):
            job.end, job.waited = told["ended_s"] if told["ended"] else float("inf"), told["wait_s"]


def choose(rule, cards, job, now):
    """The card for that job, None: it waits. A rule uses the figures that `gpusharectl status` shows of each card."""
    best = None
    for card in cards:
        active = card.active(now)
        memory = sum(each.memory for each in active) + job.memory
        busy = sum(each.busy for each in active) + job.busy
        if rule == "exclusive":
            good, rank = not active, 0
        elif rule == "fits":
            good, rank = not active or memory <= ROOM, busy
        elif rule == "count":
            good, rank = len(active) < MOST_JOBS, len(active)
        else:
            good, rank = not active or (busy <= MOST_BUSY and memory <= MOST_MEMORY * ROOM), (memory > ROOM, busy)
        if good and (best is None or rank < best[0]):
            best = rank, card
    return best[1] if best else None


def run(rule, options, simulator):
    """Places all jobs; returns them with their starts and ends."""
    jobs, queue, now = make_jobs(options), [], 0.0
    coming = list(jobs)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        cards = [Card(number, folder, simulator) for number in range(options.cards)]
        while coming or queue:
            ends = [job.end for card in cards for job in card.active(now)] if queue else []
            now = min(ends + [job.arrival for job in coming[:1]])
            while coming and coming[0].arrival <= now:
                queue.append(coming.pop(0))
            changed = []
            while queue:
                card = choose(rule, cards, queue[0], now)
                if card is None:
                    break
                card.add(queue.pop(0), now)
                changed.append(card)
            list(pool.map(Card.simulate, set(changed)))
    return jobs


def part(values, where):
    values = sorted(values)
    return values[min(len(values) - 1, int(where * len(values)))]


def figures(jobs, cards):
    waits = [(job.start - job.arrival) / 3600 for job in jobs]
    slow = {kind: [(job.end - job.start) / job.alone for job in jobs if job.kind == kind] for kind in KINDS}
    ends = max(job.end for job in jobs)
    found = {
        "jobs": len(jobs),
        "makespan_h": ends / 3600,
        "wait_mean_h": sum(waits) / len(waits),
        "wait_p95_h": part(waits, 0.95),
        "turnaround_mean_h": sum(job.end - job.arrival for job in jobs) / len(jobs) / 3600,
        "busy": sum(job.cycles * job.gpu for job in jobs) / ends / cards,
    }
    for kind, values in slow.items():
        found[f"slowdown_{kind}_p50"], found[f"slowdown_{kind}_p95"] = part(values, 0.5), part(values, 0.95)
    pauses = [job.waited / job.cycles for job in jobs if job.kind == "notebook"]
    found["notebook_pause_mean_s"] = sum(pauses) / len(pauses)
    return found


def rows(all_found):
    """For bench/plot.py: exclusive cards, then each other rule with those as the mark."""
    words = {"makespan_h": "all jobs done after", "wait_mean_h": "mean wait in the queue", "turnaround_mean_h": "mean from arrival to end"}
    for key, name in words.items():
        base = all_found["exclusive"][key]
        for rule, found in all_found.items():
            row = {"name": f"{name}: {RULES[rule]}", "value": found[key], "unit": "h"}
            yield dict(row, other=True) if rule == "exclusive" else dict(row, ceiling=base, ratio=found[key] / base, against="exclusive")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator")
    parser.add_argument("--cards", type=int, default=256)
    parser.add_argument("--hours", type=float, default=3)
    parser.add_argument("--load", type=float, default=2.5)
    parser.add_argument("--memory", type=float, default=2, help="times the memory in KINDS, at most 76 GB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="cards that are simulated at once")
    parser.add_argument("--rules", nargs="*", choices=list(RULES), default=list(RULES))
    parser.add_argument("--expect", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found, missed = {}, 0
    for rule in options.rules:
        found[rule] = figures(run(rule, options, options.simulator), options.cards)
        print(f"{rule:10}" + "  ".join(f"{key} {value:.3g}" for key, value in found[rule].items()), flush=True)
    for key, bound in BOUNDS.items() if options.expect else ():
        ratio = found["figures"][key] / found["exclusive"][key]
        missed += ratio > bound
        print(f"{'NOT MET' if ratio > bound else 'met':8}{key}: {ratio:.3f} of that with exclusive cards, at most {bound}")
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump({"benchmark": "sim-cluster", "date": datetime.date.today().isoformat(), "card": f"{options.cards} simulated, 80 GB",
                       "driver": None, "title": TITLE, "note": "Shorter is better.", "rows": list(rows(found)),
                       "figures": found, "memory": options.memory, "load": options.load, "hours": options.hours, "seed": options.seed}, file, indent=1)
            file.write("\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
