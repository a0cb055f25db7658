#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the rows of matrix_rows.py on a card, each unpatched and patched, and writes docs/compatibility.md.

Columns: the same result patched and alone; the same with moves forced in the middle (two copies beyond a limit of
GPUSHARE_DEVICE_LIMIT, and `gpusharectl evict` in the middle of their work); the overhead alone, from a piece of the work that an
unpatched program and a patched one repeat in turns, both alive for as long as that takes. A cell that was not measured counts as failed,
and says why. All programs of the next row start, import what they need, and wait, while a row is measured.
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
import socket
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
NOISE_MOST = 0.05    # half of the interval: what is wider shows nothing
EACH = 3             # programs of each kind in the overhead column: two unpatched ones differ by some percent as well
STUDENT = 2.776      # t of 97.5 % for 2 * (EACH - 1) degrees of freedom
FEWEST_ROUNDS = 8    # each program has a turn in each round
TURN_LIMIT = 60      # seconds: a turn that takes longer hangs
ROUTED_LIMIT = 60    # seconds until the daemon must know of memory
END_LIMIT = 120      # seconds from `end` to the end of a program
POLL = 0.002         # seconds between two looks at a program's files
UNTESTED = {"state": "untested", "text": "not run"}


# --- what a cell is ---

def cell(state, text):
    """state: passed, failed or untested"""
    return {"state": state, "text": text}


def failed(cell_):
    """Whether it counts as failed: an untested cell does."""
    return cell_["state"] != "passed"


def interval(unpatched, patched):
    """How much longer the patched programs' turns take, and the 95 % interval of that, as fractions. Given: for each of EACH programs the times
    of its turns. Compared are the programs' means (of logarithms), by Student's t: turns of one program show nothing of how much
    programs differ that are alike."""
    means = [[statistics.fmean(map(math.log, times)) for times in kind] for kind in (unpatched, patched)]
    difference = statistics.fmean(means[1]) - statistics.fmean(means[0])
    error = math.sqrt(sum(statistics.variance(kind) / len(kind) for kind in means))
    half = STUDENT * error
    return tuple(math.expm1(value) for value in (difference, difference - half, difference + half))


def overhead_cell(unpatched, patched):
    mean, low, high = interval(unpatched, patched)
    text = f"{100 * mean:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f} %, {len(patched)} programs of each kind, " \
           f"{len(patched[0])} turns of {statistics.fmean(unpatched[0]):.2f} s each)"
    if low > OVERHEAD_MOST:
        return cell("failed", text)
    if high <= OVERHEAD_MOST or high - low <= 2 * NOISE_MOST:
        return cell("passed", text)
    return cell("untested", f"too noisy: {text}")


# --- running ---

class Failure(Exception):
    """A program did not end as it should; the text is the cell's."""


class Program:
    """A program of a row, told by files what to do (matrix_job.py): it waits for begin() before it first uses a card, prints its result,
    then repeats a piece of its work on turn(), until end()."""

    def __init__(self, bench, row, patched, ballast=0, **more):
        self.folder = tempfile.mkdtemp(dir=bench.folder)
        self.out, self.err = (os.path.join(self.folder, name) for name in ("stdout", "stderr"))
        self.limit, self.turns = bench.limit, 0
        self.is_lost = False  # it did not do what it was told
        self.is_gone = False
        if patched:
            more["GS_MATRIX_PATCH"] = os.path.join(bench.build, "rewriter", "gpushare-patch")
        command = [bench.patched if patched else sys.executable, os.path.join(HERE, row.program), *row.arguments,
                   "--ballast-gib", str(ballast)]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.child = subprocess.Popen(command, env={**bench.environment, **row.environment, "GS_MATRIX_TOLD": self.folder, **more},
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)

    def tell(self, name, text=""):
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def read(self, name):
        """None: there is no such file yet."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def how_it_ended(self):
        said = [line.strip() for line in self.read("stderr").splitlines() if line.strip()]
        return f"exit {self.child.returncode}: {said[-1][:160] if said else 'nothing on stderr'}"

    def wait(self, look, deadline, what):
        """What look() finds, as soon as it finds something."""
        while True:
            has_ended = self.child.poll() is not None
            found = look()
            if found is not None:
                return found
            if has_ended or time.monotonic() > deadline:
                self.is_lost = True
                raise Failure(self.how_it_ended() if has_ended else what)
            time.sleep(POLL)

    def begin(self):
        self.tell("begin")

    def look_for_result(self):
        lines = [line for line in self.read("stdout").splitlines(keepends=True) if line.startswith("result ") and line.endswith("\n")]
        return lines[-1].strip() if lines else None

    def result(self, deadline):
        return self.wait(self.look_for_result, deadline, f"no result within {self.limit} s")

    def turn(self, count):
        """Seconds of so many iterations."""
        self.turns += 1
        self.tell(f"turn.{self.turns}", f"{count}\n")
        return float(self.wait(lambda: self.read(f"seconds.{self.turns}"), time.monotonic() + TURN_LIMIT,
                               f"{count} iterations did not end within {TURN_LIMIT} s"))

    def end(self, deadline):
        self.tell("end")
        try:
            self.child.wait(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure("it gave its result, but did not end in time") from None
        self.kill()  # what it may have left
        if self.child.returncode != 0:
            raise Failure(self.how_it_ended())

    def kill(self):
        if not self.is_gone:
            kill(self.child)
        self.is_gone = True


def kill(child):
    """It, and the processes that it has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


class Bench:
    """A patched Python beside the plain one, a daemon of its own, and what runs there."""

    def __init__(self, build, limit):
        self.build = os.path.abspath(build)
        self.limit = limit
        self.folder = tempfile.mkdtemp(prefix="gs-matrix-")
        self.programs, self.daemon = [], None
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHARE_")}
        self.environment.update(PYTHONDONTWRITEBYTECODE="1", GPUSHARE_SOCKET=os.path.join(self.folder, "lockd.sock"),
                                GPUSHARE_LOCKD=os.path.join(self.build, "lockd", "gpushare-lockd"),
                                CUBLAS_WORKSPACE_CONFIG=":4096:8", NCCL_NVLS_ENABLE="0")
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
        try:
            self.need_daemon()
        except Failure as failure:
            raise SystemExit(f"matrix: {failure}") from failure
        return self

    def need_daemon(self):
        """Starts it, also when the last one has died. Without one nothing would be shared, and little of this would be tested."""
        if self.daemon is not None and self.daemon.poll() is None:
            return
        path, log = self.environment["GPUSHARE_SOCKET"], os.path.join(self.folder, "lockd.log")
        if os.path.exists(path):
            os.remove(path)
        with open(log, "ab") as file:
            self.daemon = subprocess.Popen([self.environment["GPUSHARE_LOCKD"]], env=self.environment, stdout=file, stderr=file,
                                           start_new_session=True)
        end = time.monotonic() + 30
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            while caller.connect_ex(path) != 0:  # its file is there a moment earlier
                if self.daemon.poll() is not None or time.monotonic() > end:
                    with open(log, encoding="utf-8", errors="replace") as file:
                        raise Failure(f"gpushare-lockd does not run: {file.read().strip()}")
                time.sleep(0.05)

    def __exit__(self, *unused):
        for program in self.programs:
            program.kill()
        if self.daemon is not None:
            kill(self.daemon)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, row, patched, ballast=0, **more):
        self.programs.append(Program(self, row, patched, ballast, **more))
        return self.programs[-1]

    def ctl(self, *words):
        return subprocess.run([os.path.join(self.build, "lockd", "gpusharectl"), *words], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=60, check=False)


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def status_of(bench, programs):
    """What `gpusharectl status` says of the processes of these programs; nothing without a daemon."""
    done = bench.ctl("status", "--json")
    if done.returncode != 0:
        return []
    sessions = [program.child.pid for program in programs]
    devices = json.loads(done.stdout).get("devices", [])
    return [one for device in devices for one in device["programs"] if session_of(one["pid"]) in sessions]


def moved_bytes(bench, programs):
    """Bytes that they have moved out so far."""
    return sum(one["moved_out"] for one in status_of(bench, programs))


def wait_until(condition, deadline, what):
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(what)
        time.sleep(0.1)


# --- the columns ---

class Started:
    """The programs of a row, which import what they need and then wait for begin(); each list is empty where it is not needed."""

    def __init__(self, bench, row, columns):
        bench.need_daemon()
        self.row = row
        self.plain = bench.start(row, False)
        self.patched = bench.start(row, True) if "same" in columns or "overhead" in columns else None
        more = EACH - 1 if "overhead" in columns and not row.no_overhead else 0
        self.more = {kind: [bench.start(row, kind) for _ in range(more)] for kind in (False, True)}  # patched or not
        self.middle = tempfile.mkdtemp(dir=bench.folder)
        self.copies = [bench.start(row, True, BALLAST_GIB, GPUSHARE_DEVICE_LIMIT=f"{LIMIT_GIB}GiB", GS_MATRIX_MIDDLE=self.middle)
                       for _ in range(2 if "moved" in columns else 0)]

    def kill(self):
        for program in filter(None, [self.plain, self.patched, *self.more[False], *self.more[True], *self.copies]):
            program.kill()


def attempt(measure):
    """No mistake in a cell, ours neither, loses the other cells."""
    try:
        return measure()
    except (Failure, subprocess.TimeoutExpired, OSError) as failure:
        return cell("failed", str(failure))
    except Exception as mistake:  # pylint: disable=broad-except
        return cell("failed", f"matrix.py: {mistake!r}")


def same(program, alone, deadline):
    result = program.result(deadline)
    if result != alone:
        raise Failure(f"{result}, alone {alone}")
    return cell("passed", result.split()[-1][:24])


def iterations(plain, seconds):
    """How many take about so many seconds. The shorter of two turns counts: one that was held up would make all turns too short."""
    count = 1
    while (took := min(plain.turn(count), plain.turn(count))) < seconds / 4:
        count *= 2
    return max(1, round(count * seconds / took))


def repeat(plain, patched, how):
    """The times of each program's turns, in lists as the programs are given. In each round every program has a turn, in an order of
    chance; only one works at a time."""
    end = time.monotonic() + how.seconds
    count = iterations(plain[0], how.turn)
    times = {program: [] for program in [*plain, *patched]}
    draw, number = random.Random(1), -1
    while number < FEWEST_ROUNDS or time.monotonic() < end:
        for program in draw.sample([*times], k=len(times)):
            took = program.turn(count)
            if number >= 0:  # the first turns warm up
                times[program].append(took)
        number += 1
    return [[times[program] for program in kind] for kind in (plain, patched)]


def begin_more(run, alone, deadline):
    """The other programs of the overhead column, up to their results, one after the other."""
    for patched, programs in run.more.items():
        for program in programs:
            program.begin()
            result = program.result(deadline)
            if result != alone and patched:
                raise Failure(f"{result}, alone {alone}")


def overhead(bench, run, alone, how, deadline):
    if run.row.no_overhead:
        return cell("untested", run.row.no_overhead)
    plain, patched = [run.plain, *run.more[False]], [run.patched, *run.more[True]]
    try:
        begin_more(run, alone, deadline)
        made = overhead_cell(*repeat(plain, patched, how))
    except Failure as failure:
        if any(program.is_lost for program in plain):  # says nothing of gpushare
            return cell("untested", f"unpatched: {failure}")
        raise
    bytes_out = moved_bytes(bench, patched)
    if bytes_out > 0:
        raise Failure(f"{bytes_out} bytes were moved out while it had the card to itself")
    return made


def require_routed(bench, program):
    """Else it would have been a second unpatched one. The daemon hears of calls only together with something more important."""
    wait_until(lambda: any(one["demand"] > 0 for one in status_of(bench, [program])), time.monotonic() + ROUTED_LIMIT,
               "the daemon knows of no memory of the patched program")


def pair_cells(bench, run, alone, how, deadline):
    """The columns that the plain program and the patched one give together."""
    plain, patched, cells = run.plain, run.patched, {}
    if run.row.cards > 1:
        patched.begin()  # not before: collectives of two jobs would take turns on the cards
    cells["same"] = attempt(lambda: same(patched, alone, deadline))
    if cells["same"]["state"] != "passed":
        return {**cells, "overhead": cell("failed", "no right result")}
    if "overhead" in how.columns:
        cells["overhead"] = attempt(lambda: overhead(bench, run, alone, how, deadline))
        if patched.is_lost:
            return cells  # the cell says so
    try:
        require_routed(bench, patched)
        plain.tell("end")
        patched.end(time.monotonic() + END_LIMIT)
    except Failure as failure:
        return {column: cell("failed", str(failure)) for column in cells}
    return cells


def moved(bench, run, alone, deadline):
    """Two copies that do not fit into the limit together stop in the middle, and are evicted there."""
    copies = run.copies
    for copy in copies:
        copy.begin()
        copy.tell("end")  # right after their results

    def all_are_ready():
        return len(glob.glob(os.path.join(run.middle, "ready.*[0-9]"))) >= 2 * run.row.ranks or any_has_ended()

    def any_has_ended():
        return any(copy.child.poll() is not None for copy in copies)

    wait_until(all_are_ready, deadline, "the copies did not come to their middle within the time")
    before = moved_bytes(bench, copies)
    for one in status_of(bench, copies):
        bench.ctl("evict", str(one["pid"]))
    wait_until(lambda: moved_bytes(bench, copies) > before or all(copy.child.poll() is not None for copy in copies), deadline,
               "nothing was moved within the time")
    most = moved_bytes(bench, copies)
    with open(os.path.join(run.middle, "go"), "w", encoding="ascii"):
        pass
    results = []
    for copy in copies:
        results.append(copy.result(deadline))
        copy.end(deadline)
    if any(result != alone for result in results):
        raise Failure(f"{' and '.join(results)}, alone {alone}")
    if most == 0:
        raise Failure("nothing was moved")
    return cell("passed", f"two copies right, {most / 2**30:.1f} GiB moved out in their middle")


def missing(row, cards):
    """Why the row cannot be run here; empty: it can."""
    absent = [name for name in row.packages if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} is not installed"
    return f"needs {row.cards} cards, {cards} here" if cards < row.cards else ""


def run_row(bench, run, how):
    """The cells of a row whose programs are started."""
    deadline = time.monotonic() + bench.limit
    try:
        run.plain.begin()
        if run.patched is not None and run.row.cards == 1:
            run.patched.begin()
        try:
            alone = run.plain.result(deadline)
        except Failure as failure:  # says nothing of gpushare
            return {column: cell("untested", f"unpatched: {failure}") for column in COLUMNS}
        cells = {column: UNTESTED for column in COLUMNS}
        if run.patched is not None:
            cells.update(pair_cells(bench, run, alone, how, deadline))
            run.patched.kill()
        run.plain.kill()
        if run.copies:
            cells["moved"] = attempt(lambda: moved(bench, run, alone, time.monotonic() + bench.limit))
        return {column: one if column in how.columns else UNTESTED for column, one in cells.items()}
    except Exception as mistake:  # pylint: disable=broad-except  # ours; the other rows go on
        return {column: cell("untested", f"matrix.py: {mistake!r}") for column in COLUMNS}
    finally:
        run.kill()


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
             f"- *Overhead alone*: {EACH} unpatched programs and {EACH} patched ones repeat a piece of the work in turns, warm, without a "
             "limit, one at a time; the difference of their means with its 95 % interval. (Cells that speak of pairs were measured with one "
             "program of each kind, whose interval leaves out how much two unpatched programs differ.) It passes if the interval reaches "
             f"{100 * OVERHEAD_MOST:.0f} % or less; one that goes beyond that and is wider than ±{100 * NOISE_MOST:.0f} % is too noisy and "
             "counts as untested.", "",
             "| Program | " + " | ".join(HEADINGS[column] for column in COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for row in ROWS:
        lines.append(f"| {row.title} | " + " | ".join(cell_text(table.get((row.key, column), UNTESTED)) for column in COLUMNS) + " |")
    sources = sorted({(one["date"], one["card"]) for one in table.values() if one["state"] != "untested"})
    lines += ["", "Measured: " + ("; ".join(f"{date} on {card}" for date, card in sources) if sources else "nothing yet") + ".", "",
              "The look-ups of programs that are built with the CUDA runtimes 11.8, 12.2, 12.9 and 13.0 to 13.5 are tested without a "
              "card, against drivers of 11.8, 12.0, 12.2 and 13.0 to 13.5 (`tests/runtime/calls/test_versions.py`, and NVIDIA's own "
              "runtimes in `test_cudarts.py`).", "", ""]
    with open(os.path.join(HERE, "matrix_others.md"), encoding="utf-8") as file:
        return "\n".join(lines) + file.read()


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
    parser.add_argument("--seconds", type=float, default=40, help="of repetitions in a row (default: 40)")
    parser.add_argument("--turn", metavar="SECONDS", type=float, default=0.1,
                        help="of work in a turn (default: 0.1)")
    parser.add_argument("--no-ahead", action="store_true", help="start the programs of a row only when the row before is done")
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
        ahead = None
        for row, following in zip(chosen, chosen[1:] + [None]):
            if time.monotonic() > end:
                break
            run = ahead or start(bench, row, len(names), how)
            ahead = None if following is None or how.no_ahead else start(bench, following, len(names), how)
            cells = run_row(bench, run, how) if isinstance(run, Started) else {column: cell("untested", run) for column in COLUMNS}
            result["rows"][row.key] = cells
            for column in how.columns:
                print(f"{row.title}: {HEADINGS[column]}: {cell_text(cells[column])}", flush=True)
            keep(how, result)
    return result


def start(bench, row, cards, how):
    """The row's programs, or why there are none."""
    try:
        return missing(row, cards) or Started(bench, row, how.columns)
    except (Failure, OSError) as error:
        return f"matrix.py: {error}"


def keep(how, result):
    """After each row, since the machine may not be ours to the end."""
    if how.json:
        with open(how.json + ".new", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
        os.replace(how.json + ".new", how.json)


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the programs end with it
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
