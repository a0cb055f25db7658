# SPDX-License-Identifier: Apache-2.0
"""Programs of serving_bench.py on a card made small: each alone, then several at once, and what happened to them meanwhile."""
import os
import signal
import statistics
import time
from collections import namedtuple

from harness import GIB, MIB, ROOT, Failed
from interactive_bench import arrivals, entry, ideal, quantile

QUANTILES = {"p50": 0.5, "p99": 0.99}
WORKER = os.path.join(ROOT, "bench", "serving_worker.py")
ALONE = 6  # requests; their median counts
AT_THE_END = 12  # seconds of the budget that are kept for ending and writing
COUNTED = ("moved_in", "moved_out", "gpu_ns", "wait_ns", "yielded_ns", "turns")

# memory and scratch memory: parts of the card; a request alone takes burst seconds, and one comes each mean seconds
Kind = namedtuple("Kind", "name kind memory burst mean scratch", defaults=(0,))

# how programs are run: patched or not, in which environment
Way = namedtuple("Way", "name patched environment")

# alone: units of a request, ns of it or of a step of training, ns of processor time of a request
Alone = namedtuple("Alone", "units ns cpu")
OURS = Way("gpushare", True, {})


def stolen():
    """(ticks that other virtual machines took of this one's processors, all ticks), since it started: a slow host is to be seen."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def by_turns(times, alone, bring):
    """Latencies of several servers that share one card, in ns, if each keeps it until it has no request left, the next is the one that waits
    longest, and each change takes bring ns: what one card can do, where the ideal has a card for each."""
    left = [list(mine) for mine in times]
    now, has, found = 0, None, [[] for _ in times]
    while any(left):
        waiting = [(mine[0], at) for at, mine in enumerate(left) if mine]
        now = max(now, min(waiting)[0])
        at = has if has is not None and left[has] and left[has][0] <= now else min(waiting)[1]
        now += alone[at] + (0 if at == has else bring)
        found[at].append(now - left[at].pop(0))
        has = at
    return found


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
    """The card, made small, with what programs do alone on it."""

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

    def bytes_of(self, part):
        return int(part * self.how.limit * GIB)

    def start(self, way):
        """A worker; it loads its libraries meanwhile."""
        return self.bench.start(self.patched if way.patched else self.plain, WORKER, os.path.join(ROOT, "python"), self.how.job,
                                **way.environment)

    def take(self, program, kind):
        return program.say(f"take {kind.kind} {self.bytes_of(kind.memory)} {self.bytes_of(kind.scratch)}", timeout=600)["bytes"]

    def measure_alone(self, program, kind):
        self.take(program, kind)
        cpu = [0]
        if kind.kind == "train":
            units, ends, seconds = 0, [], self.how.alone * self.how.scale
            while len(ends) < 4 and seconds < 600:
                ends = program.say(f"work {time.monotonic_ns() + int(seconds * 1e9)}", timeout=900)["ends"]
                seconds *= 3
        else:
            units = max(1, round(kind.burst * self.how.scale * 1e9 / program.say("unit")["ns"]))
            ends, cpu = (program.say(f"requests {units} " + " ".join(["1"] * (ALONE + 1)))[word] for word in ("ends", "cpu"))
        finish(program, kind)
        took = statistics.median(after - before for before, after in zip(ends, ends[1:]))
        print(f"    {kind.name} alone: {took / 1e9:.3f} s a {'step' if kind.kind == 'train' else 'request'}  [{self.bench.seconds():.0f} s]", flush=True)
        return Alone(units, took, statistics.median(cpu))

    def alone(self, kinds, programs):
        """Measures each program alone on the card; each kind is measured once. programs: workers that have taken nothing yet."""
        for kind in kinds:
            if work_of(kind) not in self.known:
                self.known[work_of(kind)] = self.measure_alone(programs.pop(), kind)
        return [self.known[work_of(kind)] for kind in kinds]


def work_of(kind):
    """The properties that decide how long it takes alone."""
    return kind.kind, kind.memory, kind.burst, kind.scratch


def finish(program, kind):
    """Ends it by itself; its results must have been right."""
    wrong = program.say("check")["wrong"]
    if wrong:
        raise Failed(f"{kind.name}: {wrong} results are wrong")
    program.end()


class Group:
    """with Group(card, kinds) as group: programs that run at once and end with it."""

    def __init__(self, card, kinds, way=OURS):
        self.card, self.bench, self.how, self.kinds, self.way = card, card.bench, card.how, kinds, way
        self.programs, self.spare, self.alone, self.taken = [], [], [], []

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
        unknown = {work_of(kind) for kind in self.kinds} - set(self.card.known)
        self.spare = [self.card.start(Way("alone", False, {})) for _ in unknown]
        self.programs = [self.card.start(self.way) for _ in self.kinds]
        self.alone = self.card.alone(self.kinds, list(self.spare))
        for program, kind in zip(self.programs, self.kinds):
            self.taken.append(self.card.take(program, kind))
            print(f"    {kind.name} has {self.taken[-1] / GIB:.2f} GiB  [{self.bench.seconds():.0f} s]", flush=True)

    def say(self, line):
        for program in self.programs:
            program.say(line)

    def means(self):
        return [kind.mean * self.how.scale for kind in self.kinds]

    def run(self, seconds, means, regular=False):
        """All at once, for so long, with requests as often as that: (when it began, arrivals, answers)."""
        start = time.monotonic_ns() + int(2e8)
        until, times = start + int(seconds * 1e9), []
        for at, (kind, mean) in enumerate(zip(self.kinds, means)):
            if kind.kind == "train":
                times.append([])
            elif regular:
                times.append(list(range(start, until, int(mean * 1e9))))
            else:
                times.append(arrivals(start, mean, seconds, seed=5 + at))
        for program, mine, alone in zip(self.programs, times, self.alone):
            program.tell(f"requests {alone.units} " + " ".join(map(str, mine)) if mine else f"work {until}")
        return start, times, [program.answer(timeout=600) for program in self.programs]

    def settle(self, seconds=None, means=None):
        """Runs until the costs of the first hand-offs are over and the daemon knows the classes of the programs."""
        seconds = (seconds or self.how.settle) * self.how.scale
        self.run(seconds, [min(mean, seconds / 5) for mean in means or self.means()], regular=True)

    def entries(self):
        """The daemon's counters of each program; without gpushare: nothing."""
        if self.way.patched:
            return [entry(self.bench, program) for program in self.programs]
        return [{**dict.fromkeys((*COUNTED, "class"), 0), "demand": taken} for taken in self.taken]

    def facts(self):
        """(bytes that do not fit, after how many ns an idle program loses its turn, what the daemon says of the card)"""
        if not self.way.patched:
            lacking = max(0, sum(self.taken) - self.card.left_bytes)
            return lacking, 0, {"missing_bytes": lacking, "switch_s": 0, "quantum_s": 0}
        device, daemon = self.bench.device(), self.bench.status()["daemon"]
        lacking = max(0, device["demand"] - device["capacity"])
        return lacking, daemon["idle_ns"] or device["switch_ns"], {
            "missing_bytes": lacking, "capacity_bytes": device["capacity"], "switch_s": device["switch_ns"] / 1e9,
            "quantum_s": device["quantum_ns"] / 1e9}

    def record(self, seconds):
        """gpusharectl that records a trace of so long, with --trace."""
        if not self.how.trace or not self.way.patched:
            return None
        path = os.path.join(self.how.trace, f"trace-{len(os.listdir(self.how.trace))}.json")
        return self.bench.start(self.bench.path("lockd", "gpusharectl"), "--socket", self.bench.socket, "trace", "--seconds",
                                str(round(seconds) + 1), "-o", path, LD_LIBRARY_PATH=self.bench.tools["LD_LIBRARY_PATH"]).child

    def measure(self, seconds, means=None):
        """(a list of what happened to each program, what the daemon said)"""
        before, recording, ticks = self.entries(), self.record(seconds), stolen()
        start, times, answers = self.run(seconds, means or self.means())
        after = self.entries()
        gone = [new - old for new, old in zip(stolen(), ticks)]
        if recording is not None:
            recording.wait(timeout=600)
        lacking, idle, said = self.facts()
        bring, found = lacking / self.card.bus["h2d"] * 1e9, []
        shared = by_turns(times, [each.ns for each in self.alone], bring)
        for at, kind in enumerate(self.kinds):
            alone, ends = self.alone[at].ns, answers[at]["ends"]
            each = {"name": kind.name, "kind": kind.kind, "alone_s": alone / 1e9, "class": [before[at]["class"], after[at]["class"]]}
            each |= {key: after[at][key] - before[at][key] for key in COUNTED}
            if kind.kind == "train":
                each["kept"] = sum(start <= end < start + seconds * 1e9 for end in ends) * alone / 1e9 / seconds
            else:
                mine = min(lacking, after[at]["demand"]) / self.card.bus["h2d"] * 1e9
                more = [took - self.alone[at].cpu for took in answers[at]["cpu"]]
                each |= judge(times[at], ends, alone, mine, idle, seconds, more)
                each |= {"shared_" + name: quantile(shared[at], part) / 1e9 for name, part in QUANTILES.items()}
                each["cpu"] = statistics.median(answers[at]["cpu"]) / self.alone[at].cpu  # more: the host was slow, or the library is
            found.append(each)
        return found, {**said, "window_s": seconds, "stolen": gone[0] / max(1, gone[1])}

    def end(self):
        for program, kind in zip(self.programs, self.kinds):
            finish(program, kind)


def judge(times, ends, alone, bring, idle, seconds, more=()):
    """Latencies beside those of a card of its own, which takes bring ns for the missing bytes; what training could keep beside it. more: processor
    time of each request beyond that of one alone, in ns: the ideal of the same processor (own_p50) has that, too."""
    best, brought = ideal(times, ends, [alone] * len(times), bring, idle)
    own, _ = ideal(times, ends, [max(0, alone + each) for each in more or [0] * len(times)], bring, idle)
    took = [end - arrived for arrived, end in zip(times, ends)]
    busy = len(took) * alone + 2 * brought * bring
    return {"requests": len(took), "brought": brought, "ideal_kept": max(0.0, 1 - busy / 1e9 / seconds),
            "arrivals_s": [round((arrived - times[0]) / 1e9, 4) for arrived in times],
            "latencies_s": [round(ns / 1e9, 4) for ns in took], "ideal_s": [round(ns / 1e9, 4) for ns in best],
            **{name: quantile(took, part) / 1e9 for name, part in QUANTILES.items()},
            **{"ideal_" + name: quantile(best, part) / 1e9 for name, part in QUANTILES.items()},
            **{"own_" + name: quantile(own, part) / 1e9 for name, part in QUANTILES.items()}}
