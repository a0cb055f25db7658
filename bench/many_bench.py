#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many programs that compute all the time and together want 2 to 8 times the card: what turns cost, and whether they are fair.

Copies of bench/load share a card of --limit-mib (GPUSHARE_DEVICE_LIMIT). The daemon is as installed but for
`exclusive` (several that compute all the time and fit at once would lose 11 % to the driver's own time slicing) and the least quantum,
20 ms instead of 200: a small card makes short switches and with them short turns (20 times a switch), so that half a minute has
enough rounds to tell whether they are fair. Of each cell:

  throughput    batches that all of them finished, times what a batch takes an unpatched program alone, over the time
  Jain          of the batches that each finished, per weight, over whole rounds: from the beginning of one program's third turn to that of
                its last one (in the first two the lock makes up for what was before: programs that idled, another quantum)
  weights       the largest deviation of a program's part of them from its due (in the cell with weights)
  longest wait  between two batches of a program, over (N - 1)(quantum + switch), with the daemon's largest figures for these
  lost          in a turn, from its first batch's beginning to its last one's end: more than these batches take alone (median)

All by the programs' own clocks; "daemon" in the JSON is the same from `gpusharectl trace` (time that it saw each compute).
"""
import json
import os
import statistics
import subprocess
import time

from harness import MIB, Bench, Failed, end, main, options, row, together, write

BATCH = 4
CELLS = {  # programs, times the card, weights in turn, the card over --limit-mib: a batch more or less must not count
    "8 at 2x": (8, 2, (100,), 1), "8 at 8x": (8, 8, (100,), 1), "32 at 2x": (32, 2, (100,), 2), "32 at 8x": (32, 8, (100,), 2),
    "8 at 4x, weights 1:2": (8, 4, (100, 200), 4),
}
QUICK = ("8 at 8x", "32 at 8x", "8 at 4x, weights 1:2")
THROUGHPUT, JAIN, WEIGHTS, WAIT = 0.95, 0.999, 0.01, 1.05
POLL_S = 0.5
SKIPPED = 2  # turns


class Turns:
    """When a program ran: spans (from, to), and marks: (time, amount) of work."""

    def __init__(self, spans, marks):
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
        return cls(spans, [(at, 1) for at in ends])

    def done(self, window):
        return sum(amount for at, amount in self.marks if window[0] <= at < window[1])

    def longest_wait(self):
        return max((after[0] - before[1] for before, after in zip(self.spans, self.spans[1:])), default=0)


def whole_rounds(turns):
    """(from, to, rounds): as many rounds as there are, without the first ones."""
    if any(len(each.spans) < SKIPPED + 2 for each in turns):
        return None
    first = min(turns, key=lambda each: each.spans[SKIPPED][0])
    return first.spans[SKIPPED][0], first.spans[-1][0], len(first.spans) - 1 - SKIPPED


def shares(turns, weights, window):
    """(Jain's index, the largest deviation from the due)"""
    done = [each.done(window) for each in turns]
    per_weight = [work / weight for work, weight in zip(done, weights)]
    squares = sum(each * each for each in per_weight)
    if squares == 0:
        raise Failed("no work was done in whole rounds")
    jain = sum(per_weight) ** 2 / (len(turns) * squares)
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
    return [Turns(each, [(begin, finish - begin) for begin, finish in each]) for each in spans.values()]


def watch(bench, until):
    """The daemon's largest quantum and switch in ns, and its switches, until a time of time.monotonic()."""
    quantum = switch = 0
    before = bench.device()["switches"]
    while time.monotonic() < until:
        device = bench.device()
        quantum, switch = max(quantum, device["quantum_ns"]), max(switch, device["switch_ns"])
        time.sleep(POLL_S)
    return quantum, switch, bench.device()["switches"] - before


def solo_batch(bench, memory, steps, seconds):
    """ns of a batch of an unpatched program alone."""
    programs = bench.loads(memory, None, BATCH, steps)
    ends = programs[0].say(f"work {time.monotonic_ns() + int(seconds * 1e9)}")["ends"]
    end(programs)
    if len(ends) < 6:
        raise Failed(f"an unpatched program alone finished {len(ends)} batches in {seconds} s: too few to compare with")
    ends = ends[len(ends) // 3:]  # a card that was idle is slow at first
    return statistics.median(after - before for before, after in zip(ends, ends[1:]))


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
    batch = solo_batch(bench, memory, steps, min(2, seconds))
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
    limit = began + seconds * 1e9
    turns = [Turns.of_ends([at for at in each if at < limit], batch, quantum / 2) for each in ends]
    figures = {"limit_mib": limit_bytes / MIB, "quantum_s": quantum / 1e9, "switch_s": switch / 1e9, "switches": switches, "solo_batch_s": batch / 1e9}
    return judge(name, turns, daemon, weights, batch, (count - 1) * (quantum + switch), figures)


def judge(name, turns, daemon, weights, batch, wait_bound, figures):
    window = whole_rounds(turns)
    if window is None:
        raise Failed(f"{name}: less than {SKIPPED + 2} turns of a program; more --seconds are needed")
    figures["rounds"] = window[2]
    figures["batches"] = [each.done(window) for each in turns]
    figures["turns_ms"] = [[round((to - since) / 1e6, 1) for since, to in each.spans] for each in turns]
    figures["lost_in_a_turn_ns"] = statistics.median(
        to - since - batch * len([at for at, _ in each.marks if since <= at <= to]) for each in turns for since, to in each.spans[1:-1])
    throughput = sum(figures["batches"]) * batch / (window[1] - window[0])
    jain, off = shares(turns, weights, window)
    wait = max(each.longest_wait() for each in turns) / wait_bound
    seen = whole_rounds(daemon)
    if seen is not None:
        jain_seen, off_seen = shares(daemon, weights, seen)
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
        ("--seconds", {"type": float, "default": 24, "help": "of a cell; half as much again where the card is larger (default 24)"}),
        ("--cell", {"action": "append", "choices": list(CELLS), "help": "only this one (several times)"}),
        ("--quick", {"action": "store_true", "help": "only " + " and ".join(QUICK)})))
    rows = []
    with Bench(how.build, ("--exclusive", "yes", "--quantum-min", "20")) as bench:
        card = bench.facts()[0]
        for name in how.cell or (QUICK if how.quick else CELLS):
            cell = run_cell(bench, how, name, how.seconds * (1.5 if CELLS[name][3] > 1 else 1))
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
