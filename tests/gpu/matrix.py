#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of matrix_rows.py on a card, each unpatched and patched, and writes docs/compatibility.md.

Columns: the same result patched and alone; the same with moves forced in the middle (two copies beyond a limit of
GPUSHARE_DEVICE_LIMIT, and `gpusharectl evict` in the middle of their work); the overhead alone, from repetitions that alternate between
unpatched and patched. A cell that was not measured counts as failed, and says why.
"""
import argparse
import glob
import importlib.util
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
from matrix_rows import ROWS  # noqa: E402  (beside this file)

COLUMNS = ("same", "moved", "overhead")
HEADINGS = {"same": "Same result", "moved": "Same result, moved in the middle", "overhead": "Overhead alone"}
PAGE = os.path.join(TOP, "docs", "compatibility.md")
RESULTS = os.path.join(TOP, "docs", "results", "matrix-*.json")
LIMIT_GIB = 6     # GPUSHARE_DEVICE_LIMIT of the moved column, for two copies that hold BALLAST_GIB each besides
BALLAST_GIB = 4
OVERHEAD_MOST = 0.02
UNTESTED = {"state": "untested", "text": "not run"}


# --- what a cell is ---

def cell(state, text):
    """state: passed, failed or untested"""
    return {"state": state, "text": text}


def failed(cell_):
    """Whether it counts as failed: an untested cell does."""
    return cell_["state"] != "passed"


def interval(unpatched, patched):
    """The mean of log(patched / unpatched) over the pairs and its 95 % interval by bootstrap, as fractions."""
    ratios = [math.log(two / one) for one, two in zip(unpatched, patched)]
    draw = random.Random(1)
    means = sorted(statistics.fmean(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return tuple(math.expm1(value) for value in (statistics.fmean(ratios), means[50], means[1949]))


def overhead_cell(unpatched, patched):
    mean, low, high = interval(unpatched, patched)
    text = f"{100 * mean:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f} %, {len(patched)} pairs of {statistics.fmean(unpatched):.1f} s)"
    return cell("passed" if low <= OVERHEAD_MOST else "failed", text)


# --- running ---

class Failure(Exception):
    """A program did not end as it should; the text is the cell's."""


class Bench:
    """A patched Python beside the plain one, a daemon of its own, and what runs there."""

    def __init__(self, build, limit):
        self.build = os.path.abspath(build)
        self.limit = limit
        self.folder = tempfile.mkdtemp(prefix="gs-matrix-")
        self.children = []
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHARE_")}
        self.environment.update(PYTHONDONTWRITEBYTECODE="1", GPUSHARE_SOCKET=os.path.join(self.folder, "lockd.sock"),
                                GPUSHARE_LOCKD=os.path.join(self.build, "lockd", "gpushare-lockd"),
                                CUBLAS_WORKSPACE_CONFIG=":4096:8")
        beside = os.path.join(self.build, "lib")  # libraries of the tools that a bare machine lacks
        if os.path.isdir(beside):
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, (beside, os.environ.get("LD_LIBRARY_PATH"))))
        self.patched = os.path.join(self.folder, "venv", "bin", "python3")

    def __enter__(self):
        done = subprocess.run([sys.executable, os.path.join(HERE, "copy_python.py"), os.path.join(self.folder, "venv")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == 0:
            done = subprocess.run([os.path.join(self.build, "rewriter", "gpushare-patch"), "-q", "--any", self.patched],
                                  env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"matrix: no patched Python: {done.stdout}")
        self.start_daemon()
        return self

    def start_daemon(self):
        """Without one nothing would be shared, and little of this would be tested."""
        daemon = subprocess.Popen([self.environment["GPUSHARE_LOCKD"]], env=self.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.children.append(daemon)
        end = time.monotonic() + 30
        while not os.path.exists(self.environment["GPUSHARE_SOCKET"]):
            if daemon.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"matrix: gpushare-lockd does not run: {daemon.communicate(timeout=5)[0] if daemon.poll() is not None else ''}")
            time.sleep(0.05)

    def __exit__(self, *unused):
        self.kill(self.children)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, row, patched, ballast=0, **more):
        python = self.patched if patched else sys.executable
        with open(os.path.join(self.folder, f"err{len(self.children)}"), "w+", encoding="utf-8", errors="replace") as err:
            if patched:
                more["GS_MATRIX_PATCH"] = os.path.join(self.build, "rewriter", "gpushare-patch")
            child = subprocess.Popen([python, os.path.join(HERE, row.program), *row.arguments, "--ballast-gib", str(ballast)],
                                     env={**self.environment, **row.environment, **more}, stdout=subprocess.PIPE, stderr=err,
                                     text=True, start_new_session=True)
            child.err_path = err.name
        self.children.append(child)
        return child

    def end(self, child, deadline):
        """The program's `result` line, and the seconds of its `seconds` line."""
        try:
            out, _ = child.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill([child])
            child.communicate()
            raise Failure(f"no end within {self.limit} s") from None
        with open(child.err_path, encoding="utf-8", errors="replace") as file:
            said = [line.strip() for line in file if line.strip()]
        if child.returncode != 0:
            raise Failure(f"exit {child.returncode}: {said[-1][:160] if said else 'nothing on stderr'}")
        result = [line for line in out.splitlines() if line.startswith("result ")]
        seconds = [line for line in out.splitlines() if line.startswith("seconds ")]
        if not result or not seconds:
            raise Failure("it printed no result")
        return result[-1], float(seconds[-1].split()[1])

    def run(self, row, patched):
        return self.end(self.start(row, patched), time.monotonic() + self.limit)

    @staticmethod
    def kill(children):
        """Them, and the processes that they have started."""
        for child in children:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()

    def evict(self, pids):
        ctl = os.path.join(self.build, "lockd", "gpusharectl")
        for pid in pids:
            subprocess.run([ctl, "evict", str(pid)], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           timeout=60, check=False)


def programs_of(bench):
    """What `gpusharectl status` says of the programs that are connected; none without a daemon."""
    ctl = os.path.join(bench.build, "lockd", "gpusharectl")
    done = subprocess.run([ctl, "status", "--json"], env=bench.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          timeout=60, check=False)
    if done.returncode != 0:
        return []
    return [program for device in json.loads(done.stdout).get("devices", []) for program in device["programs"]]


def moved_bytes(bench):
    """Bytes that they have moved out so far."""
    return sum(program["moved_out"] for program in programs_of(bench))


def same(bench, row, alone):
    result, seconds = bench.run(row, True)
    if result != alone:
        raise Failure(f"{result}, alone {alone}")
    return cell("passed", f"{result.split()[-1][:24]} in {seconds:.1f} s")


def wait_until(condition, deadline, what):
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what} within the time")
        time.sleep(0.1)


def moved(bench, row, alone):
    """Two copies that do not fit into the limit together stop in the middle, and are evicted there."""
    deadline = time.monotonic() + bench.limit
    middle = tempfile.mkdtemp(dir=bench.folder)
    pair = [bench.start(row, True, BALLAST_GIB, GPUSHARE_DEVICE_LIMIT=f"{LIMIT_GIB}GiB", GS_MATRIX_MIDDLE=middle) for _ in range(2)]

    def all_are_ready():
        return len(glob.glob(os.path.join(middle, "ready.*"))) >= 2 * row.ranks or any(child.poll() is not None for child in pair)

    try:
        wait_until(all_are_ready, deadline, "the copies did not come to their middle")
        before = moved_bytes(bench)
        bench.evict([program["pid"] for program in programs_of(bench)])
        wait_until(lambda: moved_bytes(bench) > before or all(child.poll() is not None for child in pair), deadline, "nothing was moved")
        most = moved_bytes(bench)
        with open(os.path.join(middle, "go"), "w", encoding="ascii"):
            pass
        results = [bench.end(child, deadline)[0] for child in pair]
    finally:
        bench.kill(pair)
    if any(result != alone for result in results):
        raise Failure(f"{' and '.join(results)}, alone {alone}")
    if most == 0:
        raise Failure("nothing was moved")
    return cell("passed", f"two copies right, {most / 2**30:.1f} GiB moved out in their middle")


def overhead(bench, row, pairs):
    times = {False: [], True: []}
    for number in range(pairs):
        for patched in ((False, True) if number % 2 == 0 else (True, False)):
            times[patched].append(bench.run(row, patched)[1])
    return overhead_cell(times[False], times[True])


def attempt(measure):
    try:
        return measure()
    except (Failure, subprocess.TimeoutExpired, OSError) as failure:
        return cell("failed", str(failure))


def missing(row, cards):
    """Why the row cannot be run here; empty: it can."""
    absent = [name for name in row.packages if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} is not installed"
    return f"needs {row.cards} cards, {cards} here" if cards < row.cards else ""


def run_row(bench, row, cards, pairs, columns=COLUMNS):
    why = missing(row, cards)
    if why:
        return {column: cell("untested", why) for column in COLUMNS}
    try:
        alone = bench.run(row, False)[0]
    except Failure as failure:  # says nothing of gpushare
        return {column: cell("untested", f"unpatched: {failure}") for column in COLUMNS}
    measures = {"same": lambda: same(bench, row, alone), "moved": lambda: moved(bench, row, alone),
                "overhead": lambda: overhead(bench, row, pairs)}
    return {column: attempt(measures[column]) if column in columns else UNTESTED for column in COLUMNS}


# --- results and the page ---

def merge(results):
    """One table of several results: of each cell the newest that was measured; where none was, the newest reason."""
    table = {}
    for result in sorted(results, key=lambda one: one["date"]):
        for key, cells in result["rows"].items():
            for column in COLUMNS:
                new, old = cells.get(column, UNTESTED), table.get((key, column))
                if old is None or new["state"] != "untested" or old["state"] == "untested":
                    table[key, column] = {**new, "card": result["card"], "date": result["date"]}
    return table


def cell_text(one):
    text = one["text"].replace("|", "\\|").replace("\n", " ")
    return text if one["state"] == "passed" else f"**{one['state'].upper()}**: {text}"


def page(results):
    table = merge(results)
    cells = [table.get((row.key, column), UNTESTED) for row in ROWS for column in COLUMNS]
    counts = {state: sum(one["state"] == state for one in cells) for state in ("passed", "failed", "untested")}
    lines = ["# Compatibility", "",
             "Programs that were run patched by `gpushare-patch` on a card, and what was measured. `tests/gpu/matrix.sh` makes this",
             "page; do not edit it. A cell that was not measured counts as failed.", "",
             f"{len(cells)} cells: {counts['passed']} passed, {counts['failed']} failed, {counts['untested']} untested.", "",
             "- *Same result*: the bytes of the program's result are those of an unpatched run.",
             f"- *Moved in the middle*: two copies at a time, each with {BALLAST_GIB} GiB besides, on a card limited to {LIMIT_GIB} GiB, "
             "both evicted in the middle of their work.",
             "- *Overhead alone*: runs alternate between unpatched and patched; the mean with its 95 % interval. It passes if the "
             f"interval reaches {100 * OVERHEAD_MOST:.0f} % or less.", "",
             "| Program | " + " | ".join(HEADINGS[column] for column in COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for row in ROWS:
        lines.append(f"| {row.title} | " + " | ".join(cell_text(table.get((row.key, column), UNTESTED)) for column in COLUMNS) + " |")
    sources = sorted({(one["date"], one["card"]) for one in table.values() if one["state"] != "untested"})
    lines += ["", "Measured: " + ("; ".join(f"{date} on {card}" for date, card in sources) if sources else "nothing yet") + ".", "",
              "The look-ups of programs that are built with the CUDA runtimes 11.8, 12.2, 12.9 and 13.0 are tested without a card, "
              "against drivers of 11.8, 12.0, 12.2 and 13.0 (`tests/runtime/calls/test_versions.py`).", ""]
    return "\n".join(lines)


def load(paths):
    results = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    return results


def cards_here():
    """Their names; empty: there is none."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=60, check=False)
    except OSError:
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def options():
    parser = argparse.ArgumentParser(prog="matrix.sh", description="Makes docs/compatibility.md on a machine with a card.")
    parser.add_argument("-k", metavar="PATTERN", action="append", help="only rows whose key or title contains PATTERN; may be repeated")
    parser.add_argument("--budget", metavar="SECONDS", type=int, default=10**6, help="no row is begun after this time")
    parser.add_argument("--limit", metavar="SECONDS", type=int, default=300, help="for one run of a program (default: 300)")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs for the overhead (default: 5)")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=COLUMNS, help="only these columns")
    parser.add_argument("--build", metavar="DIR", default="build/gpu", help="build folder (default: build/gpu)")
    parser.add_argument("--merge", metavar="FILE", nargs="+", help="make the page of these results, newest wins; run nothing")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--page", metavar="FILE", default=PAGE, help="the page (default: docs/compatibility.md)")
    return parser.parse_args()


def measure(how):
    names = cards_here()
    result = {"date": time.strftime("%Y-%m-%d %H:%M"), "card": f"{len(names)} x {names[0]}" if names else "no card", "rows": {}}
    chosen = [row for row in ROWS if any(word.lower() in (row.key + " " + row.title).lower() for word in how.k or [""])]
    end = time.monotonic() + how.budget
    if not names:
        result["rows"] = {row.key: {column: cell("untested", "no card") for column in COLUMNS} for row in chosen}
        return result
    with Bench(how.build, how.limit) as bench:
        for row in chosen:
            if time.monotonic() > end:
                break
            result["rows"][row.key] = run_row(bench, row, len(names), how.pairs, how.columns)
            for column in how.columns:
                print(f"{row.title}: {HEADINGS[column]}: {cell_text(result['rows'][row.key][column])}", flush=True)
            keep(how, result)
    return result


def keep(how, result):
    """After each row, since the machine may not be ours to the end."""
    if how.json:
        with open(how.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


def main():
    how = options()
    new = [] if how.merge else [measure(how)]
    if new:
        keep(how, new[0])
    results = load(how.merge) if how.merge else load(sorted(glob.glob(RESULTS))) + new
    with open(how.page, "w", encoding="utf-8") as file:
        file.write(page(results))
    print(f"{how.page} is written")
    return any(failed(cells[column]) for result in new for cells in result["rows"].values() for column in how.columns)


if __name__ == "__main__":
    sys.exit(main())
