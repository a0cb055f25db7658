#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers and a notebook in the first seconds of a training, together more than the card: how long their requests take.

Training computes all the time with --training of the limit (GPUSHARE_DEVICE_LIMIT), each server has --server of it and a Poisson process
of requests; all are patched copies of bench/load, the daemon is as installed. Cases (NAME or NAME:SEED):

  together   training and server are started in the same moment
  at_once    ... and allocate their memory in the same moment
  soon       the server is started 0.3 s after the training
  two, three so many servers, started in the same moment as the training; figures of all their requests
  notebook   a program that is started beside a training of 5 s: from its start to the end of its first cell, of --cell-s alone

A latency counts from the scheduled arrival. It is compared with a card of the server's own (interactive_bench.py), quantiles with quantiles.
With --before BUILD the first run of each case is also made with the older build, just before.
"""
import statistics
import time

from harness import GIB, MIB, Bench, Failed, end, main, options, row, touch_host, write
from interactive_bench import BATCH, alone, arrivals, ideal, quantile, request_line

GOALS = {"p50": (0.5, 1.2), "p99": (0.99, 1.5)}
TRAINING_GOAL = 0.40
SERVERS = {"together": 1, "at_once": 1, "soon": 1, "two": 2, "three": 3}
LATER_S = {"soon": 0.3}  # after the training
LOADING_S, LAST_S = 2.0, 3.0  # without arrivals: at the start, and before the end


class Work:
    """What all runs have in common, measured once without gpushare. Times in ns."""

    def __init__(self, bench, how):
        self.limit = how.limit_gib * GIB
        self.memory = {"training": self.limit * how.training, "server": self.limit * how.server}
        self.steps, kernel_ns = {}, {}
        for name, memory in self.memory.items():
            self.steps[name], kernel_ns[name] = bench.calibrated(memory, how.kernel_ms)
        self.request = max(1, round(how.burst_ms * 1e6 / kernel_ns["server"]))
        self.cell = max(1, round(how.cell_s * 1e9 / kernel_ns["server"]))
        self.request_ns = alone(bench, self.memory["server"], self.steps["server"], lambda times: request_line(self.request, times), 4)
        self.batch_ns = alone(bench, self.memory["training"], self.steps["training"], lambda times: request_line(BATCH, times), 20)
        self.cell_ns = statistics.median(self.run_cell(bench, bench.path("bench", "load"), {}) for _ in range(3))

    def start(self, bench, name, last):
        """A patched program that is about to answer two lines."""
        program = bench.start(bench.patched(bench.path("bench", "load")), GPUSHARE_DEVICE_LIMIT=str(int(self.limit) + last))
        program.tell(f"batch {BATCH}")
        program.tell(f"steps {self.steps[name]}")
        return program

    def run_cell(self, bench, path, environment):
        """ns from a program's start to the end of its first cell."""
        began = time.monotonic_ns()
        program = bench.start(path, **environment)
        for line in (f"batch {BATCH}", f"steps {self.steps['server']}", f"take {int(self.memory['server'])}"):
            program.say(line)
        took = program.say(f"phases 1 {self.cell} 0")["to"] - began
        end([program])
        return took


def run_servers(bench, work, how, case, seed, bus):
    """(latencies, the ideal's, training's part, more)"""
    number = SERVERS[case]
    extra = (number + 1) * (2 << 20)  # harness.EDGE_BYTES each
    bench.patched(bench.path("bench", "load"))
    began = time.monotonic_ns()
    programs = [work.start(bench, "training", extra)]
    time.sleep(LATER_S.get(case, 0))
    programs += [work.start(bench, "server", extra) for _ in range(number)]
    training, *servers = programs
    if case == "at_once":
        for program in programs * 2:
            program.answer()
        began = time.monotonic_ns()
    until = began + int(how.seconds * 1e9)
    plan = [arrivals(began + int(LOADING_S * 1e9), how.mean_s, how.seconds - LOADING_S - LAST_S, seed + 100 * i) for i in range(number)]
    for i, program in enumerate(programs):
        program.tell(f"take {int(work.memory['server' if i else 'training'])}")
    training.tell(f"work {until}")
    for server, times in zip(servers, plan):
        server.tell(request_line(work.request, times))
    for program in programs * (1 if case == "at_once" else 3):
        program.answer()
    batches, ends = training.answer()["ends"], [server.answer()["ends"] for server in servers]
    device, daemon = bench.device(), bench.status()["daemon"]
    end(programs)
    missing = min(work.memory["server"], work.memory["training"] + work.memory["server"] - work.limit) / bus["h2d"] * 1e9
    took, best = [], []
    for times, ended in zip(plan, ends):
        took += [at - arrived for arrived, at in zip(times, ended)]
        best += ideal(times, ended, [work.request_ns] * len(times), missing, daemon["idle_ns"] or device["switch_ns"])[0]
    part = sum(began <= at < until for at in batches) * work.batch_ns / (until - began)
    return took, best, part, {"switch_ms": device["switch_ns"] / 1e6, "missing_ms": missing / 1e6}


def run_notebook(bench, work, bus):
    training = work.start(bench, "training", 4 << 20)
    training.tell(f"take {int(work.memory['training'])}")
    for _ in range(3):
        training.answer()
    began = time.monotonic_ns()
    training.tell(f"work {began + int((8e9 + 2 * work.cell_ns))}")
    time.sleep(5)
    took = work.run_cell(bench, bench.patched(bench.path("bench", "load")), {"GPUSHARE_DEVICE_LIMIT": str(int(work.limit) + (4 << 20))})
    part = sum(at >= began for at in training.answer()["ends"]) * work.batch_ns / (8e9 + 2 * work.cell_ns)
    end([training])
    return [took], [work.cell_ns], part, {}


def judge(case, build, took, best, part, said):
    rows = []
    for name, (level, goal) in GOALS.items():
        mine, least = quantile(took, level) / 1e6, quantile(best, level) / 1e6
        judged = {"met": mine / least <= goal} if build == "now" else {"other": True}
        rows.append(row(f"{case}, {build}: {name}", mine, "ms", least, "a card of its own", **judged))
        if len(took) == 1:
            break
    rows[0].update(training=part, latencies_ms=[round(each / 1e6, 1) for each in took], ideal_ms=[round(each / 1e6, 1) for each in best],
                   training_met=part >= TRAINING_GOAL, **said)
    print(f"{case:12} {build:6} {len(took):3} requests  " + "  ".join(f"{each['ratio']:6.3f}" for each in rows) +
          f"  worst {max(took) / 1e9:6.2f} s  training {part:.3f}", flush=True)
    return rows


def body():
    how = options(__doc__, (
        ("--before", {"metavar": "BUILD", "help": "an older build, run before each case"}),
        ("--case", {"action": "append", "metavar": "NAME[:SEED]", "help": "default: all of them, `together` three times"}),
        ("--limit-gib", {"type": float, "default": 37.7, "help": "what the card is made to hold (default 37.7)"}),
        ("--training", {"type": float, "default": 0.88, "metavar": "PART"}), ("--server", {"type": float, "default": 0.66, "metavar": "PART"}),
        ("--burst-ms", {"type": float, "default": 800, "help": "of a request, alone (default 800)"}),
        ("--mean-s", {"type": float, "default": 2.5, "help": "between two requests of a server (default 2.5)"}),
        ("--cell-s", {"type": float, "default": 2.0, "help": "of the notebook's first cell, alone (default 2)"}),
        ("--kernel-ms", {"type": float, "default": 4}), ("--bus-mib", {"type": float, "default": 2048, "help": "copied to measure the bus"}),
        ("--seconds", {"type": float, "default": 26, "help": "of a case (default 26)"})))
    cases = how.case or ["together:5", "together:6", "together:7", "at_once", "soon", "two", "three", "notebook"]
    if any(each.split(":")[0] not in [*SERVERS, "notebook"] for each in cases):
        raise Failed(f"no such case in {', '.join(cases)}; there are: {', '.join([*SERVERS, 'notebook'])}")
    rows, began, seen = [], time.monotonic(), set()
    with Bench(how.build) as bench:
        card, _, bus = bench.facts(how.bus_mib * MIB)
        work = Work(bench, how)
    touch_host(2 * (work.memory["training"] + max(SERVERS.values()) * work.memory["server"]))
    print(f"a request {work.request_ns / 1e6:.0f} ms, a cell with its start {work.cell_ns / 1e9:.2f} s; bus {bus['h2d'] / 1e9:.1f} GB/s; "
          f"ratios: p50 (at most 1.2), p99 (1.5); training at least {TRAINING_GOAL}", flush=True)
    for case in cases:
        name, _, seed = case.partition(":")
        builds = {"now": how.build} if name in seen or not how.before else {"before": how.before, "now": how.build}
        seen.add(name)
        for build, folder in builds.items():
            with Bench(folder) as bench:
                figures = run_notebook(bench, work, bus) if name == "notebook" else run_servers(bench, work, how, name, int(seed or 5), bus)
            rows += judge(case, build, *figures)
            write(how.json, "cold", card, rows, seconds=round(time.monotonic() - began), limit_gib=how.limit_gib, request_ms=work.request_ns / 1e6,
                  h2d=bus["h2d"], title="First requests beside a training", note="From the scheduled arrival")
    return rows


if __name__ == "__main__":
    main(body)
