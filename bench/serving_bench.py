#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers, notebooks and training of PyTorch at once on a card that is too small for them: how long requests take, what training keeps.

The card is made small by a plain allocation of another program (bench/load, unpatched) that leaves --limit GiB, so that any other
system can be measured on the same card. The programs are bench/serving_worker.py: each is measured alone, unpatched, with
that card to itself; then those of a case run at once, patched, with a daemon as installed. Requests arrive by a Poisson process, the
same one each time; a latency counts from the arrival.

The ideal is a card of its own with the same arrivals that brings in what is missing, as in interactive_bench.py: one request
after the other, each as long as alone, and the bytes that do not fit over the rate of the bus, unless the request comes before an
idle program loses its turn. Beside training that is a server which always goes first; what training could keep then is the rest
of the time, less the missing bytes in both directions.

--case: server (beside training), two (servers), notebook (used each 30 s, beside training), three (servers of different size). With
several cases they divide the --budget; what did not fit into it is said in words, and what was measured is always written.
"""
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import namedtuple

from harness import GIB, MIB, ROOT, Bench, Failed, main, options, row, write
from interactive_bench import arrivals, entry, ideal, quantile

TARGETS = {"server": {"p50": 1.2, "p99": 1.3, "training": 0.40}, "two": {"p50": 1.2}}
QUANTILES = {"p50": 0.5, "p99": 0.99}
WORKER = os.path.join(ROOT, "bench", "serving_worker.py")
ALONE = 6  # requests; their median counts
AT_THE_END = 12  # seconds of the budget that are kept for ending and writing

# memory: part of --limit; a request alone takes burst seconds, and one comes each mean seconds
Kind = namedtuple("Kind", "name kind memory burst mean")
TRAINING = Kind("training", "train", 0.88, 0, 0)
SERVER = Kind("server", "serve", 0.66, 0.8, 2.5)
CASES = {
    "server": (TRAINING, SERVER),
    "two": (SERVER, SERVER._replace(name="server 2")),
    "notebook": (TRAINING, Kind("notebook", "serve", 0.5, 2, 30)),
    "three": (Kind("large", "serve", 0.66, 0.8, 4), Kind("middle", "serve", 0.42, 0.4, 3), Kind("small", "serve", 0.21, 0.2, 2)),
}


class OutOfTime(Failed):
    """The budget is spent."""


class Budget:
    """Interrupts what runs when the time is over, once; after that there is time to write."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds - AT_THE_END
        signal.signal(signal.SIGALRM, self.interrupt)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, seconds - AT_THE_END))

    def interrupt(self, *_unused):
        raise OutOfTime("the budget was spent before it was finished")

    def left(self):
        return self.end - time.monotonic()

    def stop(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


class Card:
    """The real card, made small, with what programs do alone on it."""

    def __init__(self, bench, how):
        self.bench, self.how, self.known = bench, how, {}
        self.facts, _, self.bus = bench.facts(how.bus_mib * MIB)
        self.plain, self.patched = bench.pythons()
        ballast = bench.start(bench.path("bench", "load"))
        over = ballast.say("card")["free"] - int(how.limit * GIB)
        if over > 0:
            ballast.say(f"take {over}")
        self.left_bytes = ballast.say("card")["free"]
        print(f"{self.facts['card']}: {self.left_bytes / GIB:.2f} GiB are left of it; bus {self.bus['h2d'] / 1e9:.1f} GB/s in, "
              f"{self.bus['duplex'] / 1e9:.1f} both ways  [{bench.seconds():.0f} s]", flush=True)

    def start(self, patched):
        """A worker; it loads its libraries meanwhile."""
        return self.bench.start(self.patched if patched else self.plain, WORKER, os.path.join(ROOT, "python"), self.how.job)

    def take(self, program, kind):
        return program.say(f"take {kind.kind} {int(kind.memory * self.how.limit * GIB)}", timeout=600)["bytes"]

    def measure_alone(self, program, kind):
        """(units of a request, ns of it or of a step of training)"""
        self.take(program, kind)
        if kind.kind == "train":
            until = time.monotonic_ns() + int(self.how.alone * self.how.scale * 1e9)
            units, ends = 0, program.say(f"work {until}")["ends"]
        else:
            units = max(1, round(kind.burst * self.how.scale * 1e9 / program.say("unit")["ns"]))
            ends = program.say(f"requests {units} " + " ".join(["1"] * (ALONE + 1)))["ends"]
        if len(ends) < 3:
            raise Failed(f"{kind.name} alone: {len(ends)} steps; more --alone")
        finish(program, kind)
        took = statistics.median(after - before for before, after in zip(ends, ends[1:]))
        print(f"    {kind.name} alone: {took / 1e9:.3f} s a {'step' if kind.kind == 'train' else 'request'}  [{self.bench.seconds():.0f} s]", flush=True)
        return units, took

    def alone(self, kinds, programs):
        """What each does with the card to itself; each kind is measured once. programs: workers that have taken nothing yet."""
        for kind in kinds:
            key = kind[1:4]
            if key not in self.known:
                self.known[key] = self.measure_alone(programs.pop(), kind)
        return [self.known[kind[1:4]] for kind in kinds]


def finish(program, kind):
    """Ends it by itself; its results must have been right."""
    wrong = program.say("check")["wrong"]
    if wrong:
        raise Failed(f"{kind.name}: {wrong} results are wrong")
    program.end()


class Group:
    """with Group(card, kinds) as group: the programs of a case, patched, that end with it."""

    def __init__(self, card, kinds):
        self.card, self.bench, self.how, self.kinds = card, card.bench, card.how, kinds
        self.programs, self.spare, self.alone = [], [], []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        for program in self.programs + self.spare:
            program.kill()

    def start(self):
        unknown = {kind[1:4] for kind in self.kinds} - set(self.card.known)
        self.spare = [self.card.start(False) for _ in unknown]
        self.programs = [self.card.start(True) for _ in self.kinds]
        self.alone = self.card.alone(self.kinds, list(self.spare))
        for program, kind in zip(self.programs, self.kinds):
            taken = self.card.take(program, kind)
            print(f"    {kind.name} has {taken / GIB:.2f} GiB  [{self.bench.seconds():.0f} s]", flush=True)

    def run(self, seconds, means, regular=False):
        """All at once, for so long, with requests as often as that: (when it began, arrivals, ends)."""
        start = time.monotonic_ns() + int(2e8)
        until, times = start + int(seconds * 1e9), []
        for at, (kind, mean) in enumerate(zip(self.kinds, means)):
            if kind.kind == "train":
                times.append([])
            elif regular:
                times.append(list(range(start, until, int(mean * 1e9))))
            else:
                times.append(arrivals(start, mean, seconds, seed=5 + at))
        for program, mine, (units, _) in zip(self.programs, times, self.alone):
            program.tell(f"requests {units} " + " ".join(map(str, mine)) if mine else f"work {until}")
        return start, times, [program.answer(timeout=600)["ends"] for program in self.programs]

    def means(self):
        return [kind.mean * self.how.scale for kind in self.kinds]

    def settle(self):
        """What only the first hand-offs cost; the daemon sees what the programs are."""
        seconds = self.how.settle * self.how.scale
        self.run(seconds, [min(mean, seconds / 5) for mean in self.means()], regular=True)

    def measure(self, seconds, means):
        """A list of what happened to each program, and what the daemon said."""
        before = [entry(self.bench, program) for program in self.programs]
        start, times, ends = self.run(seconds, means)
        after = [entry(self.bench, program) for program in self.programs]
        device, daemon = self.bench.device(), self.bench.status()["daemon"]
        lacking = max(0, device["demand"] - device["capacity"])
        idle = daemon["idle_ns"] or device["switch_ns"]
        said = {"missing_bytes": lacking, "capacity_bytes": device["capacity"], "switch_s": device["switch_ns"] / 1e9,
                "quantum_s": device["quantum_ns"] / 1e9, "window_s": seconds}
        found = []
        for at, kind in enumerate(self.kinds):
            each = {"name": kind.name, "kind": kind.kind, "alone_s": self.alone[at][1] / 1e9}
            each |= {key: after[at][key] - before[at][key] for key in ("moved_in", "moved_out", "gpu_ns", "wait_ns", "yielded_ns", "turns")}
            each["class"] = after[at]["class"]
            if kind.kind == "train":
                each["kept"] = sum(start <= end < start + seconds * 1e9 for end in ends[at]) * each["alone_s"] / seconds
            else:
                missing = min(lacking, after[at]["demand"])
                best, brought = ideal(times[at], ends[at], self.alone[at][1], missing / self.card.bus["h2d"] * 1e9, idle)
                took = [end - arrived for arrived, end in zip(times[at], ends[at])]
                each |= {"requests": len(took), "counted_in": brought * missing,
                         "latencies_s": [round(ns / 1e9, 4) for ns in took], "ideal_s": [round(ns / 1e9, 4) for ns in best]}
                each |= {name: quantile(took, part) / 1e9 for name, part in QUANTILES.items()}
                each |= {"ideal_" + name: quantile(best, part) / 1e9 for name, part in QUANTILES.items()}
                busy = len(took) * each["alone_s"] + 2 * brought * missing / self.card.bus["h2d"]
                each["ideal_kept"] = max(0.0, 1 - busy / seconds)
            found.append(each)
        return found, said

    def end(self):
        for program, kind in zip(self.programs, self.kinds):
            finish(program, kind)


def rows_of(name, found):
    """The rows of a case."""
    rows, targets = [], TARGETS.get(name, {})
    for each in found:
        if each["kind"] == "train":
            least = targets.get("training")
            rows.append(row(f"{name}: training keeps", each["kept"], "of alone", least or 1, "at least" if least else "alone",
                            each["kept"] >= least if least else None))
            continue
        for part in QUANTILES:
            ratio = each[part] / each["ideal_" + part]
            rows.append(row(f"{name}: {each['name']}, {part}", each[part], "s", each["ideal_" + part], "ideal",
                            ratio <= targets[part] if part in targets else None, asked=targets.get(part)))
    return rows


def told(each):
    """A program's line of the table."""
    moved = f"{each['moved_in'] / GIB:7.1f} in {each['moved_out'] / GIB:7.1f} out GiB, yielded {each['yielded_ns'] / 1e9:6.1f} s, {each['turns']} turns"
    if each["kind"] == "train":
        return f"{each['name']:10} keeps {each['kept']:.3f} of alone{'':37}{moved}"
    return (f"{each['name']:10} p50 {each['p50']:6.3f} s = {each['p50'] / each['ideal_p50']:.2f} of ideal, p99 {each['p99']:6.3f} s = "
            f"{each['p99'] / each['ideal_p99']:.2f}  {moved}; {each['requests']} requests")


def run_case(card, budget, name, until):
    """(what happened to each program, what the daemon said); it ends at about that time."""
    how = card.how
    with Group(card, CASES[name]) as group:
        group.settle()
        least = 4 * max(group.means())
        seconds = min(max(how.seconds, least), until - time.monotonic() - how.drain * how.scale)
        if seconds < least:
            raise OutOfTime(f"{max(0, seconds):.0f} s are left for it, it needs {least:.0f}")
        found, said = group.measure(seconds, group.means())
        try:
            group.end()
        except Failed as error:  # what was measured is kept beside it
            said["failed"] = str(error)
        return found, said


def run_cases(card, how, budget, record):
    """record(rows, table) after each case."""
    names = how.case or list(CASES)
    for at, name in enumerate(names):
        print(f"{name}:", flush=True)
        until = time.monotonic() + budget.left() / (len(names) - at)
        try:
            found, said = run_case(card, budget, name, until)
        except OutOfTime as error:
            record(name, [], [f"not measured: {error}"], None)
            if budget.left() <= 0:
                break
            continue
        except Failed as error:
            record(name, [], [f"FAILED: {error}"], None)
            continue
        lines = [told(each) for each in found]
        lines.append(f"{said['missing_bytes'] / GIB:.2f} GiB missing, switch {said['switch_s']:.3f} s, window {said['window_s']:.0f} s")
        if "failed" in said:
            lines.append(f"FAILED: {said['failed']}")
        record(name, rows_of(name, found), lines, {"programs": found, **said})


def simulate(how):
    """Everything as on a card, with the simulated one and the stub."""
    if how.build is None:
        how.build = os.path.join(ROOT, "build", "dev")
    folder = tempfile.TemporaryDirectory(prefix="gpushare-serving-card-")
    kernels = os.path.join(os.path.abspath(how.build), "bench", "load_standin.so")
    os.environ.update(LD_LIBRARY_PATH=os.path.join(os.path.abspath(how.build), "tests", "simcuda"), SIMCUDA_CARD=folder.name,
                      SIMCUDA_MEMORY="128MiB", SIMCUDA_CONTEXT_MEMORY="64KiB", PYTHONDONTWRITEBYTECODE="1",
                      SIMCUDA_KERNELS=os.environ.get("SIMCUDA_KERNELS", kernels))
    how.job, how.limit, how.bus_mib, how.scale, how.alone, how.settle = "stub", 64 / 1024, 4, 0.1, 5, 5
    how.seconds = min(how.seconds, 3)
    return folder


class Results:
    """What was found, case by case: the table, and the file, which is always whole."""

    def __init__(self, how):
        self.how, self.card = how, None
        self.rows, self.cases, self.table, self.missed = [], {}, [], False

    def add(self, name, rows, lines, facts):
        """facts: None if the case was not measured; they say so if it failed at its end."""
        self.rows += rows
        self.missed |= facts is None or "failed" in facts
        if facts is not None:
            self.cases[name] = facts
        for line in lines:
            self.table.append(f"{name:9} {line}")
            print("    " + line, flush=True)
        self.save()

    def save(self):
        if self.card is not None:
            write(self.how.json, "serving", self.card.facts, self.rows, cases=self.cases, bus=self.card.bus, limit_gib=self.how.limit,
                  job=self.how.job, scale="part of the mark", title="Servers, notebooks and training at once",
                  note="A latency's mark is the ideal; training's is what is asked for, or alone")

    def show(self):
        print("", *self.table, sep="\n", flush=True)


def measure(how):
    budget, results = Budget(how.budget), Results(how)
    with Bench(how.build, ("--idle-exit", "1800")) as bench:
        try:
            card = results.card = Card(bench, how)
            run_cases(card, how, budget, results.add)
        finally:
            budget.stop()
            results.save()
            results.show()
            print(f"{bench.seconds():.0f} s", flush=True)
    if results.missed and not results.rows:
        raise Failed("no case was measured")
    return results.rows + ([{"met": False}] if results.missed else [])


def body():
    how = options(__doc__, (
        ("--case", {"action": "append", "choices": list(CASES), "help": "only this one (several times)"}),
        ("--limit", {"type": float, "default": 37.7, "metavar": "GIB", "help": "what is left of the card (default 37.7)"}),
        ("--seconds", {"type": float, "default": 150, "help": "that are measured, at most, of each case (default 150)"}),
        ("--budget", {"type": float, "default": 540, "help": "seconds for everything (default 540)"}),
        ("--settle", {"type": float, "default": 25, "help": "seconds that the programs run at once before (default 25)"}),
        ("--drain", {"type": float, "default": 15, "help": "seconds that are kept for the last requests (default 15)"}),
        ("--alone", {"type": float, "default": 6, "help": "seconds of training alone (default 6)"}),
        ("--scale", {"type": float, "default": 1, "help": "of all times of requests (default 1)"}),
        ("--bus-mib", {"type": float, "default": 2048, "help": "copied to measure the bus"}),
        ("--job", {"choices": ("torch", "stub"), "default": "torch", "help": "what the programs are (default torch)"}),
        ("--self-check", {"action": "store_true", "help": "the whole script on the simulated card, with the stub"})))
    if how.self_check:
        with simulate(how):
            return measure(how)
    return measure(how)


if __name__ == "__main__":
    main(body)
