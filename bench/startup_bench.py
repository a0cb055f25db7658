#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much longer a short program takes that is patched: from its start to its end, patched and unpatched in turns.

The program is samples/vectoradd, which starts, computes for a moment and ends; --program names another one. The daemon of this run is
there already; with --cold each patched run starts one of its own. Printed: the medians of the differences of pairs, of the time and of
the processor time of the program, with their intervals (bootstrap, 95 %). The same for a copy of true, which does not use a card: there
the patched one only loads the library, which the start of NVIDIA's driver does not hide. With --trace, where strace is installed, also
the system calls of both and the longest pauses between two of them. Which one begins changes from pair to pair.
"""
import collections
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from harness import Bench, Failed, bootstrap, main, options, row, write

TARGET_MS = 5
FEWEST_PAIRS = 3


def run_once(command, environment):
    """(seconds from start to end, seconds of processor time), or Failed."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        began = time.perf_counter()
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(child.pid, 0)
        took = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            said.seek(0)
            raise Failed(f"{command[0]} ended with {child.returncode}: {said.read().strip()}")
    return took, used.ru_utime + used.ru_stime


def cold_environment(bench, environment, number):
    """A place where no daemon is, and the daemon that the program starts there."""
    return {**environment, "GPUSHARE_SOCKET": os.path.join(bench.folder, f"cold{number}.sock"),
            "GPUSHARE_LOCKD": bench.path("lockd", "gpushare-lockd")}


def measure(bench, plain, patched, most, seconds, cold):
    """[(times, processor times) of each pair], plain and patched: so many pairs, fewer where the seconds are over."""
    pairs, end = [], time.monotonic() + seconds
    for number in range(-2, most):
        if len(pairs) >= FEWEST_PAIRS and time.monotonic() > end:
            break
        environment = cold_environment(bench, bench.environment, number) if cold else bench.environment
        sides = [(0, [plain], bench.environment), (1, [patched], environment)]
        pair = [None, None]
        for at, command, where in sides if number % 2 == 0 else reversed(sides):
            pair[at] = run_once(command, where)
        if number >= 0:  # the first two pairs read the files from the disk
            pairs.append(pair)
    return pairs


def judge(name, pairs, target=None):
    """Two rows: how much longer, and how much more processor time; and prints them."""
    rows = []
    for which, column in enumerate(("time", "processor time")):
        more = [(after[which] - before[which]) * 1e3 for before, after in pairs]
        usual = [statistics.median(pair[side][which] for pair in pairs) * 1e3 for side in (0, 1)]
        median, (low, high) = statistics.median(more), bootstrap(more)
        limit = target if which == 0 else None
        rows.append(row(f"{name}: {column}, patched less unpatched", median, "ms", limit, "at most", None if limit is None else median <= limit,
                        low=low, high=high, unpatched=usual[0], patched=usual[1], other=limit is None))
        print(f"{name}: {column}: unpatched {usual[0]:.2f} ms, patched {usual[1]:.2f} ms; {len(pairs)} pairs: "
              f"{median:+.2f} ms ({low:+.2f} to {high:+.2f}){f', at most {limit}' if limit else ''}", flush=True)
    return rows


def trace(command, environment):
    """(number of system calls, [(ms, line before the pause)] of the longest pauses); None without strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as file:
        done = subprocess.run(["strace", "-f", "-ttt", "-o", file.name, *command], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        lines = file.read().splitlines()
    if done.returncode != 0:
        return None
    before, pauses, count = None, [], collections.Counter()
    for line in lines:
        match = re.match(r"(\d+) +(\d+\.\d+) (\w+)?", line)
        if match is None:
            continue
        count[match[3] or "resumed"] += 1
        at = float(match[2])
        if before is not None:
            pauses.append(((at - before[0]) * 1e3, before[1][:100]))
        before = at, line
    return sum(count.values()), sorted(pauses, reverse=True)[:6]


def show_trace(name, seen):
    if seen is None:
        return
    print(f"{name}: {seen[0]} system calls; the longest pauses between two:")
    for pause, line in seen[1]:
        print(f"  {pause:8.2f} ms after {line}")


def body():
    how = options(__doc__, (
        ("--program", {"help": "instead of samples/vectoradd"}),
        ("--pairs", {"type": int, "default": 300, "help": "at most so many (default 300)"}),
        ("--seconds", {"type": float, "default": 240, "help": "no pair is begun after this time (default 240)"}),
        ("--cold", {"action": "store_true", "help": "no daemon is there yet"}),
        ("--trace", {"action": "store_true", "help": "with strace's evidence"})))
    with Bench(how.build) as bench:
        # the one with NVIDIA's runtime does not run on the simulated card
        plain = how.program or bench.path("samples", "vectoradd" if "SIMCUDA_CARD" in os.environ else "vectoradd.nv")
        if not os.access(plain, os.X_OK):
            raise Failed(f"{plain} is not built; it needs nvcc (./test.sh fetches it)")
        patched = bench.patched(plain)
        pairs = measure(bench, plain, patched, how.pairs, how.seconds, how.cold)
        rows = judge("no daemon before" if how.cold else "start to end", pairs, TARGET_MS)
        if not how.cold:
            nothing = shutil.which("true")
            loads = measure(bench, nothing, bench.patched(nothing), 10 * how.pairs, how.seconds / 10, False)
            rows += judge("the library alone", loads)
        if how.trace:
            show_trace("unpatched", trace([plain], bench.environment))
            show_trace("patched", trace([patched], bench.environment))
        write(how.json, "startup", {"card": None, "driver": None}, rows, cold=how.cold,
              pairs_ms=[[round(side[0] * 1e3, 3) for side in pair] for pair in pairs], title="Start to end of a short program",
              note="Patched less unpatched, in pairs")
    return rows


if __name__ == "__main__":
    main(body)
