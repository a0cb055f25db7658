#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many programs that compute all the time and together want 2 to 8 times the card: what turns cost, and whether they are fair.

Copies of bench/load share a card of --limit-mib (GPUSHARE_DEVICE_LIMIT). The daemon is as installed but for
`exclusive` (several that compute all the time and fit at once would lose 11 % to the driver's own time slicing) and the least quantum,
20 ms instead of 200: a small card makes short switches and with them short turns (20 times a switch), so that half a minute has
enough rounds to tell whether they are fair. Of each cell:

  throughput    batches that all of them finished, times what a batch takes an unpatched program alone, over the time. Alone: the mean of
                some programs, before and after, since a batch takes each of them another time (where its memory lies), and some
                batches take longer than most
  Jain          of the time that each had the card, per weight, over whole rounds: from the beginning of one program's fourth turn to that
                of its last one (in the first ones the scheduler makes up for what was before: programs that idled, another quantum)
  weights       the largest deviation of a program's part of that time from its due (in the cell with weights)
  longest wait  between two batches of a program, over (N - 1)(quantum + switch), with the daemon's largest figures for these
  lost          in a turn, from its first batch's beginning to its last one's end: more than these batches take alone (median)

A program has the card from the beginning of a turn's first batch to the end of its last one, by its own clock. The JSON has the same by
the batches that it finished ("by_batches") and from `gpusharectl trace` ("daemon": time that it saw each compute).
"""
import json
import os
import statistics
import subprocess
import time

from harness import MIB, Bench, Failed, end, main, options, row, together, write

BATCH = 4
CELLS = {  # programs, times the card, weights in turn, the card over --limit-mib: a batch more or less must not count
    "8 at 2x": (8, 2, (100,), 1), "8 at 8x": (8, 8, (100,), 1), "32 at 2x": (32, 2, (100,), 1), "32 at 8x": (32, 8, (100,), 1),
    "8 at 4x, weights 1:2": (8, 4, (100, 200), 4),
}
QUICK = ("8 at 8x", "32 at 8x", "8 at 4x, weights 1:2")
THROUGHPUT, JAIN, WEIGHTS, WAIT = 0.95, 0.999, 0.01, 1.05
POLL_S = 0.5
SKIPPED = 3  # turns
ALONE, ALONE_S = 3, 1  # programs, one after the other, before and again after
LONGER_MOST = 5        # times that a cell, or a program alone, runs again for twice as long, until there is enough


class TooFew(Failed):
    """Less turns of a program than whole rounds need: the machine is busy, or --seconds is short."""


class Turns:
    """When a program ran: spans (from, to), and marks: the times at which batches were done."""

    def __init__(self, spans, marks=()):
        self.spans, self.marks = spans, marks

    @classmethod
    def of_ends(cls, ends, batch_ns, apart_ns):
        """From the times at which batches were done; a longer pause between two was somebody else's turn."""
        spans = []
        for at in ends:
            if spans and at - spans[-1][1] <= apart_ns:
                spans[-1][1] = at
            else:
                spans.append([at - batch_ns, at])
        return cls(spans, ends)

    def done(self, window):
        """Batches."""
        return sum(window[0] <= at < window[1] for at in self.marks)

    def had(self, window):
        """ns."""
        return sum(max(0, min(to, window[1]) - max(since, window[0])) for since, to in self.spans)

    def longest_wait(self):
        return max((after[0] - before[1] for before, after in zip(self.spans, self.spans[1:])), default=0)


def whole_rounds(turns):
    """(from, to, rounds): as many rounds as there are, without the first ones."""
    if any(len(each.spans) < SKIPPED + 2 for each in turns):
        return None
    first = min(turns, key=lambda each: each.spans[SKIPPED][0])
    return first.spans[SKIPPED][0], first.spans[-1][0], len(first.spans) - 1 - SKIPPED


def shares(done, weights):
    """(Jain's index, the largest deviation from the due) of what each got."""
    per_weight = [work / weight for work, weight in zip(done, weights)]
    squares = sum(each * each for each in per_weight)
    if squares == 0:
        raise Failed("no work was done in whole rounds")
    jain = sum(per_weight) ** 2 / (len(done) * squares)
    return jain, max(abs(work / sum(done) * sum(weights) / weight - 1) for work, weight in zip(done, weights))


def traced(path, pids):
    """Turns of the programs as the daemon saw them, in ns."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    spans = {pid: [] for pid in pids}
    for event in events:
        if event.get("ph") == "X" and event["name"] == "compute" and event["pid"] in spans:
            begin = event["ts"] * 1e3
            spans[event["pid"]].append([begin, begin + event["dur"] * 1e3])
    return [Turns(each) for each in spans.values()]


def watch(bench, until):
    """The daemon's largest quantum and switch in ns, and its switches, until a time of time.monotonic()."""
    quantum = switch = 0
    before = bench.device()["switches"]
    while time.monotonic() < until:
        device = bench.device()
        quantum, switch = max(quantum, device["quantum_ns"]), max(switch, device["switch_ns"])
        time.sleep(POLL_S)
    return quantum, switch, bench.device()["switches"] - before


def alone(bench, memory, steps, seconds):
    """ns that batches of unpatched programs take, each alone: a mean each."""
    means = []
    for _ in range(ALONE):
        programs = bench.loads(memory, None, BATCH, steps)
        ends = []
        for longer in range(LONGER_MOST + 1):
            if len(ends) < 6:
                ends = programs[0].say(f"work {time.monotonic_ns() + int(seconds * 2 ** longer * 1e9)}")["ends"]
        end(programs)
        if len(ends) < 6:
            raise Failed(f"an unpatched program alone finished {len(ends)} batches in {seconds * 2 ** LONGER_MOST} s: too few to compare with")
        ends = ends[len(ends) // 3:]  # a card that was idle is slow at first
        means.append((ends[-1] - ends[0]) / (len(ends) - 1))
    return means


def settle(bench, how, programs, seconds, hold):
    """Short turns until what a switch costs has been measured without what only the first ones cost. hold: the quantum stays
    what it is then: a window of whole turns begins and ends in the middle of rounds, which must not be of different length."""
    bench.ctl("set", "quantum", "20")
    together(programs, f"work {time.monotonic_ns() + int(seconds * 1e9)}")
    bench.ctl("set", "quantum", how.quantum)
    if hold:
        bench.ctl("set", "quantum", str(round(bench.device()["quantum_ns"] / 1e6)))


def run_cell(bench, how, name, seconds):
    count, times, weights, larger = CELLS[name]
    weights = [weights[at % len(weights)] for at in range(count)]
    limit_bytes = how.limit_mib * MIB * larger
    memory = limit_bytes * times / count
    steps, _ = bench.calibrated(memory, how.kernel_ms)
    solo = alone(bench, memory, steps, min(ALONE_S, seconds))
    programs = bench.loads(memory, limit_bytes, BATCH, steps, [{"GPUSHARE_WEIGHT": str(weight)} for weight in weights])
    settle(bench, how, programs, seconds / 8, len(set(weights)) > 1)
    recording = os.path.join(bench.folder, "trace.json")
    trace = subprocess.Popen([bench.path("lockd", "gpusharectl"), "--socket", bench.socket, "trace", "--seconds", str(seconds), "-o", recording],
                             env=bench.tools, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic_ns()
    for program in programs:
        program.tell(f"work {began + int(seconds * 1e9)}")
    quantum, switch, switches = watch(bench, time.monotonic() + seconds)
    ends = [program.answer()["ends"] for program in programs]
    if trace.wait(timeout=60) != 0:
        raise Failed("gpusharectl trace failed")
    daemon = traced(recording, [program.pid for program in programs])
    end(programs)
    solo += alone(bench, memory, steps, min(ALONE_S, seconds))
    batch = statistics.mean(solo)
    limit = began + seconds * 1e9
    turns = [Turns.of_ends([at for at in each if at < limit], batch, quantum / 2) for each in ends]
    figures = {"limit_mib": limit_bytes / MIB, "quantum_s": quantum / 1e9, "switch_s": switch / 1e9, "switches": switches,
               "solo_batch_s": batch / 1e9, "solo_batches_s": [each / 1e9 for each in solo]}
    return judge(name, turns, daemon, weights, batch, (count - 1) * (quantum + switch), figures)


def run_long_enough(bench, how, name, seconds):
    for _ in range(LONGER_MOST):
        try:
            return run_cell(bench, how, name, seconds)
        except TooFew as few:
            seconds *= 2
            print(f"{few}: again, for {seconds:g} s", flush=True)
    return run_cell(bench, how, name, seconds)


def judge(name, turns, daemon, weights, batch, wait_bound, figures):
    window = whole_rounds(turns)
    if window is None:
        raise TooFew(f"{name}: less than {SKIPPED + 2} turns of a program; more --seconds are needed")
    figures["rounds"] = window[2]
    figures["batches"] = [each.done(window) for each in turns]
    figures["turns_ms"] = [[round((to - since) / 1e6, 1) for since, to in each.spans] for each in turns]
    figures["lost_in_a_turn_ns"] = statistics.median(
        to - since - batch * len([at for at in each.marks if since <= at <= to]) for each in turns for since, to in each.spans[1:-1])
    throughput = sum(figures["batches"]) * batch / (window[1] - window[0])
    jain, off = shares([each.had(window) for each in turns], weights)
    figures["by_batches"] = dict(zip(("jain", "weights_off"), shares(figures["batches"], weights)))
    wait = max(each.longest_wait() for each in turns) / wait_bound
    seen = whole_rounds(daemon)
    if seen is not None:
        jain_seen, off_seen = shares([each.had(seen) for each in daemon], weights)
        figures["daemon"] = {"jain": jain_seen, "weights_off": off_seen, "rounds": seen[2],
                             "longest_wait": max(each.longest_wait() for each in daemon) / wait_bound}
    rows = [row(f"{name}: throughput", throughput, "of serial", THROUGHPUT, "at least", throughput >= THROUGHPUT, **figures)]
    if len(set(weights)) > 1:
        rows.append(row(f"{name}: off the weights", off, "", WEIGHTS, "at most", off <= WEIGHTS))
    else:
        rows.append(row(f"{name}: Jain index", jain, "", JAIN, "at least", jain >= JAIN))
        rows.append(row(f"{name}: longest wait", wait, "of its bound", WAIT, "at most", wait <= WAIT))
    return rows


def body():
    how = options(__doc__, (
        ("--limit-mib", {"type": float, "default": 256, "help": "what the card is made to hold (default 256)"}),
        ("--kernel-ms", {"type": float, "default": 0.5}),
        ("--quantum", {"default": "auto", "metavar": "MS"}),
        ("--seconds", {"type": float, "default": 24, "help": "of a cell; half as much again where the card is larger, twice with 32 programs (default 24)"}),
        ("--cell", {"action": "append", "choices": list(CELLS), "help": "only this one (several times)"}),
        ("--quick", {"action": "store_true", "help": "only " + " and ".join(QUICK)})))
    rows = []
    with Bench(how.build, ("--exclusive", "yes", "--quantum-min", "20")) as bench:
        card = bench.facts()[0]
        for name in how.cell or (QUICK if how.quick else CELLS):
            cell = run_long_enough(bench, how, name, how.seconds * (2 if CELLS[name][0] > 8 else 1.5 if CELLS[name][3] > 1 else 1))
            for each in cell:
                print(f"{each['name']:36}{each['value']:9.4f}  {each['against']} {each['ceiling']:g}{'' if each['met'] else ' MISSED'}")
            said = cell[0]
            print(f"    quantum {said['quantum_s'] * 1000:.0f} ms, switch {said['switch_s'] * 1000:.1f} ms, {said['switches']} switches, "
                  f"{said['rounds']} whole rounds, {said['lost_in_a_turn_ns'] / 1e6:.1f} ms of a turn lost; by the daemon {said.get('daemon')}  [{bench.seconds():.0f} s]", flush=True)
            rows += cell
            write(how.json, "many", card, rows, limit_mib=how.limit_mib, seconds=round(bench.seconds()),
                  scale="part of what is asked for", title="Many programs that together want more than the card", note=f"Exclusive turns, quantum {how.quantum}")
    return rows


if __name__ == "__main__":
    main(body)
