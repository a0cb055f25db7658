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

A processor is not as fast at all times, least of all a virtual machine's, and a request of small kernels takes as long as the processor takes to launch
them. So a second ideal has the processor time that each request took in this run, in place of that of one alone.

Several servers cannot all have that. The best that one card can do for them stands beside it: each keeps the card until it has no request left,
then the one that waits longest gets it, and a change takes as long as the missing bytes.

  server     beside training that computes all the time
  two        servers
  notebook   used each 30 s, beside training
  three      servers of different size
  frontier   server beside training at each of --rates, for each of --classes: default, interactive (said of the server), batch
             (of the server), background (of the training)
  pressure   two servers whose requests need scratch memory, which their allocator keeps; on_pressure with empty_cache; discard
  resident   short requests beside training where both fit: without gpushare, with it, under MPS

The cases divide the --budget; what did not fit into it is said in words, and what was measured is always written. --system NAME
runs the programs of the first five unpatched, in the environment that each --environment KEY=VALUE adds to: for another system.
--merge FILE... (no card) makes one result of several.
"""
import json
import os
import shutil
import tempfile
import time

from harness import GIB, ROOT, Bench, Failed, main, options, row, write
from serving import OURS, QUANTILES, Budget, Card, Group, Kind, OutOfTime, Way
from spatial_bench import Mps

TARGETS = {"server": {"p50": 1.2, "p99": 1.3, "training": 0.40}, "two": {"p50": 1.2}}
TRAINING = Kind("training", "train", 0.88, 0, 0)
SERVER = Kind("server", "serve", 0.66, 0.8, 2.5)
PLAIN = {
    "server": (TRAINING, SERVER),
    "two": (SERVER, SERVER._replace(name="server 2")),
    "notebook": (TRAINING, Kind("notebook", "serve", 0.5, 2, 30)),
    "three": (Kind("large", "serve", 0.66, 0.8, 4), Kind("middle", "serve", 0.42, 0.4, 3), Kind("small", "serve", 0.21, 0.2, 2)),
}
FRONTIER = (TRAINING, SERVER)
CLASSES = {"default": ("auto", "auto"), "interactive": ("auto", "interactive"), "batch": ("auto", "batch"), "background": ("background", "auto")}
PRESSURE = tuple(Kind(name, "serve", 0.42, 0.5, 3, 0.42) for name in ("server", "server 2"))
HELPS = {"none": "without", "pressure": "on_pressure", "discard": "discard"}
RESIDENT = (Kind("training", "train", 0.4, 0, 0), Kind("server", "serve", 0.2, 0.03, 0.25))
SLACK = 1.25  # of a window: its last requests
START = 25  # seconds until PyTorch's programs have their models
FEWEST = 4  # requests of a cell of the frontier


class Results:
    """The results, case by case: the table, and the file, which is always complete."""

    def __init__(self, how):
        self.how, self.card = how, None
        self.rows, self.cases, self.frontier, self.table, self.failed = [], {}, [], [], False

    def say(self, case, *lines):
        for line in lines:
            self.table.append(f"{case:9} {line}")
            print("    " + line, flush=True)

    def fail(self, case, words):
        self.failed = True
        self.say(case, words)

    def add(self, case, rows, facts, *lines):
        self.rows += rows
        self.cases[case] = {**self.cases.get(case, {}), **facts}
        self.say(case, *lines)
        self.save()

    def save(self):
        if self.card is not None:
            write_result(self.how.json, self.card.facts, self.rows, cases=self.cases, frontier=self.frontier, bus=self.card.bus,
                         limit_gib=self.how.limit, job=self.how.job)

    def show(self):
        print("", *self.table, sep="\n", flush=True)


def write_result(path, card, rows, **more):
    write(path, "serving", card, rows, **more, scale="part of the mark", title="Servers, notebooks and training at once",
          note="A latency's mark is the ideal; training's is what is asked for, or alone")


# --- the plain cases ---

def rows_of(case, found):
    rows, targets = [], TARGETS.get(case, {})
    for each in found:
        if each["kind"] == "train":
            least = targets.get("training")
            rows.append(row(f"{case}: training keeps", each["kept"], "of alone", least or 1, "at least" if least else "alone",
                            each["kept"] >= least if least else None))
            continue
        for part in QUANTILES:
            ratio = each[part] / each["ideal_" + part]
            rows.append(row(f"{case}: {each['name']}, {part}", each[part], "s", each["ideal_" + part], "ideal",
                            ratio <= targets[part] if part in targets else None, asked=targets.get(part)))
            rows.append(row(f"{case}: {each['name']}, {part}, with its processor time", each[part], "s", each["own_" + part], "ideal", other=True))
    return rows


def told(each):
    """A program's line of the table."""
    moved = f"{each['moved_in'] / GIB:7.1f} in {each['moved_out'] / GIB:7.1f} out GiB, yielded {each['yielded_ns'] / 1e9:6.1f} s, {each['turns']} turns"
    if each["kind"] == "train":
        return f"{each['name']:10} keeps {each['kept']:.3f} of alone{'':37}{moved}"
    part = [f"{name} {each[name]:6.3f} s = {each[name] / each['ideal_' + name]:.2f} of ideal ({each[name] / each['own_' + name]:.2f} with its processor time), {each[name] / each['shared_' + name]:.2f} of one card"
            for name in QUANTILES]
    return f"{each['name']:10} {'; '.join(part)}  {moved}; {each['requests']} requests, {each['cpu']:.2f} of the processor time"


def end_group(results, case, group):
    """Ends the programs. The figures are kept even if a program fails at its end."""
    try:
        group.end()
    except Failed as error:
        results.fail(case, f"FAILED: {error}")


def run_plain(card, results, case, until):
    how = card.how
    with Group(card, PLAIN[case], how.way) as group:
        group.settle()
        least = 4 * max(group.means())
        seconds = min(max(how.seconds, least), until - time.monotonic() - how.drain * how.scale)
        if seconds < least:
            raise OutOfTime(f"{max(0, seconds):.0f} s are left for it, it needs {least:.0f}")
        found, said = group.measure(seconds)
        results.add(case, rows_of(case, found), {"programs": found, **said}, *map(told, found),
                    f"{said['missing_bytes'] / GIB:.2f} GiB missing, switch {said['switch_s']:.3f} s, window {seconds:.0f} s, {said['stolen']:.1%} of the processors' time stolen")
        end_group(results, case, group)


# --- the frontier ---

def fit_cells(classes, rates, seconds, settle):
    """The (class, rate) that can each have FEWEST requests in so many seconds: without the last classes, then without the lowest rates."""
    classes, rates = list(classes), sorted(rates, reverse=True)
    while classes and rates:
        cells = [(name, rate) for name in classes for rate in reversed(rates)]
        if min(window(rate, cells, seconds, settle) * rate for rate in rates) >= FEWEST:
            return cells
        if len(classes) > 1:
            classes.pop()
        else:
            rates.pop()
    return []


def window(rate, cells, seconds, settle):
    """How long one of the cells is measured, if they all take so many seconds: longer at a low rate, but not by as much as requests are rarer."""
    return seconds * rate ** -0.5 / sum(other ** -0.5 for _, other in cells) / SLACK - settle


def run_frontier(card, results, case, until):
    how, settle = card.how, card.how.cell_settle * card.how.scale
    rates = [rate / how.scale for rate in how.rates]
    classes = [how.way.name] if how.way is not OURS else how.classes
    with Group(card, FRONTIER, how.way) as group:
        group.settle()
        cells = fit_cells(classes, rates, until - time.monotonic(), settle)
        left_out = [f"{name} {rate:g}/s" for name in classes for rate in rates if (name, rate) not in cells]
        if left_out:
            results.fail(case, f"not measured, for want of time: {', '.join(left_out)}")
        for at, (name, rate) in enumerate(cells):
            seconds = min(how.seconds, window(rate, cells[at:], until - time.monotonic(), settle))
            if how.way is OURS:
                for program, said in zip(group.programs, CLASSES[name]):
                    card.bench.ctl("set", "class", str(program.pid), said)
            group.settle(how.cell_settle, [0, 1 / rate])
            (training, server), said = group.measure(seconds, [0, 1 / rate])
            cell = {"class": name, "rate": rate, "kept": training["kept"], "yielded_ns": training["yielded_ns"], "window_s": seconds,
                    **{key: server[key] for key in ("p50", "p99", "ideal_p50", "ideal_p99", "own_p50", "own_p99", "ideal_kept", "requests", "latencies_s")},
                    "moved": sum(each["moved_in"] + each["moved_out"] for each in (training, server)), "missing_bytes": said["missing_bytes"]}
            results.frontier.append(cell)
            results.say(case, f"{name:11} {rate:4.2f}/s  p50 {cell['p50']:6.3f} s (ideal {cell['ideal_p50']:.3f}, with its processor time {cell['own_p50']:.3f}), p99 {cell['p99']:6.3f} s (ideal "
                        f"{cell['ideal_p99']:.3f}, {cell['own_p99']:.3f}), training {cell['kept']:.3f} (ideal {cell['ideal_kept']:.3f}), {cell['requests']} requests")
            results.save()
        end_group(results, case, group)


# --- fewer bytes ---

def run_pressure(card, results, case, until):
    how, totals, seconds = card.how, {}, card.how.seconds
    with Group(card, PRESSURE) as group:
        for at, (mode, name) in enumerate(HELPS.items()):
            group.say(f"help {mode}")
            group.settle(how.settle if at == 0 else how.cell_settle)
            left = len(HELPS) - at
            fits = (until - time.monotonic() - (left - 1) * how.cell_settle * how.scale) / left - how.drain * how.scale
            if at == 0:  # the others get the same requests
                seconds = min(seconds, fits)
            if min(seconds, fits) < 4 * max(group.means()) or fits < 0.9 * seconds:
                raise OutOfTime(f"{max(0, fits):.0f} s are left for '{name}'")
            found, _ = group.measure(seconds)
            count = sum(each["requests"] for each in found)
            totals[name] = {"bytes": sum(each["moved_in"] + each["moved_out"] for each in found) / count, "programs": found,
                            "mean_s": sum(sum(each["latencies_s"]) for each in found) / count,
                            **{part: max(each[part] for each in found) for part in QUANTILES}}
            mine, without = totals[name], totals["without"]
            rows = [row(f"{case}: {name}, {part}", mine[part], "s", without[part], "without", other=mode == "none") for part in QUANTILES]
            rows.append(row(f"{case}: {name}, bytes a request", mine["bytes"] / 1e9, "GB", without["bytes"] / 1e9 or 1, "without", other=mode == "none"))
            results.add(case, rows, {name: mine}, f"{name:12} {mine['bytes'] / GIB:7.2f} GiB moved a request, p50 {mine['p50']:.3f} s, p99 {mine['p99']:.3f} s, "
                        f"mean {mine['mean_s']:.3f} s: {without['mean_s'] - mine['mean_s']:.3f} s saved a request")
        end_group(results, case, group)


# --- both fit ---

def ways(card, results, case):
    """(name, way) of the programs that are started in turn."""
    yield "without gpushare", Way("without gpushare", False, {})
    yield "gpushare", OURS
    if shutil.which("nvidia-cuda-mps-control"):
        with Mps(card.bench) as environment:
            yield "MPS", Way("MPS", False, environment)
    else:
        results.say(case, "MPS is left out: there is no nvidia-cuda-mps-control")


def run_resident(card, results, case, until):
    how = card.how
    for at, (name, way) in enumerate(ways(card, results, case)):
        with Group(card, RESIDENT, way) as group:
            group.settle(how.cell_settle)
            to_start = (2 - at) * START * how.scale
            seconds = min(how.seconds, (until - time.monotonic() - to_start) / (3 - at) * 0.6)
            if seconds < 8 * max(group.means()):
                raise OutOfTime(f"{max(0, seconds):.0f} s are left for '{name}'")
            (training, server), _ = group.measure(seconds)
            alone = server["alone_s"]
            rows = [row(f"{case}: {name}, {part}", server[part], "s", alone, "alone", other=not way.patched) for part in QUANTILES]
            rows.append(row(f"{case}: {name}, training", training["kept"], "of alone", 1, "alone", other=not way.patched))
            results.add(case, rows, {name: [training, server]}, f"{name:17} p50 {server['p50'] * 1e3:7.1f} ms, p99 {server['p99'] * 1e3:7.1f} ms "
                        f"(alone {alone * 1e3:.1f}), training {training['kept']:.3f}, {server['requests']} requests")
            end_group(results, case, group)


CASES = {**dict.fromkeys(PLAIN, run_plain), "frontier": run_frontier, "pressure": run_pressure, "resident": run_resident}


def run_cases(card, budget, results):
    names = card.how.case or [name for name in CASES if name != "frontier"]
    for at, name in enumerate(names):
        print(f"{name}:", flush=True)
        try:
            CASES[name](card, results, name, time.monotonic() + budget.left() / (len(names) - at))
        except OutOfTime as error:
            results.fail(name, f"not measured: {error}")
            if budget.left() <= 0:
                for other in names[at + 1:]:
                    results.fail(other, "not begun")
                break
        except Failed as error:
            results.fail(name, f"FAILED: {error}")


# --- the whole ---

def simulate(how):
    """Everything as on a card, with the simulated one and the stub."""
    build = os.path.abspath(how.build or os.path.join(ROOT, "build", "dev"))
    folder = tempfile.TemporaryDirectory(prefix="gpushare-serving-")
    os.environ.update(LD_LIBRARY_PATH=os.path.join(build, "tests", "simcuda"), SIMCUDA_CARD=folder.name, SIMCUDA_MEMORY="128MiB",
                      SIMCUDA_CONTEXT_MEMORY="64KiB", SIMCUDA_KERNELS=os.path.join(build, "bench", "load_standin.so"), PYTHONDONTWRITEBYTECODE="1")
    how.build, how.job, how.limit, how.bus_mib, how.scale, how.alone, how.settle = build, "stub", 64 / 1024, 4, 0.05, 5, 5
    how.seconds = min(how.seconds, 0.7)
    return folder


def merge(how):
    """One result of several of the same card: the newest counts for each case and each point."""
    results = []
    for path in how.merge:
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    last = results[-1]
    rows = {each["name"]: each for result in results for each in result["rows"]}
    cells = {(cell["class"], cell["rate"]): cell for result in results for cell in result["frontier"]}
    if len({(result["card"], result["driver"], result["limit_gib"]) for result in results}) > 1:
        raise Failed("they are of different cards or limits")
    write_result(how.json, {"card": last["card"], "driver": last["driver"]}, list(rows.values()), frontier=[cells[key] for key in sorted(cells)],
                 cases={name: case for result in results for name, case in result["cases"].items()}, bus=last["bus"],
                 limit_gib=last["limit_gib"], job=last["job"])
    return list(rows.values())


def measure(how):
    budget, results = Budget(how.budget), Results(how)
    with Bench(how.build, ("--idle-exit", "1800")) as bench:
        try:
            results.card = Card(bench, how)
            run_cases(results.card, budget, results)
        finally:
            budget.stop()
            results.save()
            results.show()
            print(f"{bench.seconds():.0f} s", flush=True)
    if not results.cases and not results.frontier:
        raise Failed("no case was measured")
    return results.rows + ([{"met": False}] if results.failed else [])


def numbers(option, text, zero=False):
    """zero: 0 is allowed, too."""
    try:
        found = [float(each) for each in text.split(",")]
    except ValueError:
        found = [-1]
    if not all(0 < each < 1e6 or zero and each == 0 for each in found):
        raise Failed(f"{option} {text}: write numbers {'from 0 on' if zero else 'above 0'} with commas between them")
    return found


def check_options(how):
    """Takes lists apart; what cannot be asked for is said."""
    how.rates, how.classes = numbers("--rates", how.rates), how.classes.split(",")
    wrong = set(how.classes) - set(CLASSES)
    if wrong:
        raise Failed(f"--classes: {', '.join(sorted(wrong))}: there are {', '.join(CLASSES)}")
    for name in ("limit", "seconds", "budget", "settle", "cell_settle", "alone", "scale", "bus_mib"):
        if getattr(how, name) <= 0:
            raise Failed(f"--{name.replace('_', '-')} is a number above 0")
    if how.trace and not os.path.isdir(how.trace):
        raise Failed(f"--trace {how.trace} is no folder")
    if how.environment and not how.system or not all("=" in each for each in how.environment):
        raise Failed("--environment is KEY=VALUE, and for --system")
    how.way = Way(how.system, False, dict(each.split("=", 1) for each in how.environment)) if how.system else OURS


def body():
    how = options(__doc__, (
        ("--case", {"action": "append", "choices": list(CASES), "help": "only this one (several times); default: all but frontier"}),
        ("--limit", {"type": float, "default": 37.7, "metavar": "GIB", "help": "what is left of the card (default 37.7)"}),
        ("--rates", {"default": "0.1,0.2,0.3,0.4,0.5,0.6", "help": "of the frontier: requests a second"}),
        ("--classes", {"default": ",".join(CLASSES), "help": f"of the frontier (default {','.join(CLASSES)})"}),
        ("--seconds", {"type": float, "default": 150, "help": "that are measured, at most, of each row (default 150)"}),
        ("--budget", {"type": float, "default": 540, "help": "seconds for everything (default 540)"}),
        ("--settle", {"type": float, "default": 25, "help": "seconds that the programs run at once before (default 25)"}),
        ("--cell-settle", {"type": float, "default": 6, "help": "the same where only a setting has changed (default 6)"}),
        ("--drain", {"type": float, "default": 15, "help": "seconds that are kept for the last requests (default 15)"}),
        ("--alone", {"type": float, "default": 6, "help": "seconds of training alone (default 6)"}),
        ("--scale", {"type": float, "default": 1, "help": "of all times of requests (default 1)"}),
        ("--bus-mib", {"type": float, "default": 2048, "help": "copied to measure the bus"}),
        ("--job", {"choices": ("torch", "stub"), "default": "torch", "help": "what the programs are (default torch)"}),
        ("--system", {"metavar": "NAME", "help": "another system: programs run unpatched"}),
        ("--environment", {"action": "append", "default": [], "metavar": "KEY=VALUE", "help": "for the programs of --system (several times)"}),
        ("--trace", {"metavar": "FOLDER", "help": "keep what gpusharectl trace records while programs are measured"}),
        ("--merge", {"nargs": "+", "metavar": "FILE", "help": "results of which one is made, in --json"}),
        ("--self-check", {"action": "store_true", "help": "the whole script on the simulated card, with the stub"})))
    check_options(how)
    if how.merge:
        return merge(how)
    if how.self_check:
        with simulate(how):
            return measure(how)
    return measure(how)


if __name__ == "__main__":
    main(body)
