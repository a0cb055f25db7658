# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks that run programs on a card: the build, a daemon of their own, patched copies, programs that are
told what to do by lines, results. Standard library only; the card is a real one, or the simulated one of a test's environment."""
import argparse
import datetime
import json
import mmap
import multiprocessing
import os
import random
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB, GIB = 1 << 20, 1 << 30
EDGE_BYTES = 2 << 20  # runtime/range/edge.h


class Failed(Exception):
    """The benchmark cannot go on; the text says why."""


def find_build(given=None):
    """The build tree: as given, the bundle that tests/gpu/bundle.sh made, or build/dev."""
    for folder in [given] if given else [os.path.join(ROOT, "build", name) for name in ("gpu", "dev")]:
        if os.access(os.path.join(folder, "rewriter", "gpushare-patch"), os.X_OK):
            return os.path.abspath(folder)
    raise Failed(f"no gpushare-patch in {given or 'build/gpu or build/dev'}; build (./test.sh) or carry build/gpu (tests/gpu/bundle.sh)")


def touch(nbytes):
    with mmap.mmap(-1, nbytes) as memory:
        for offset in range(0, nbytes, MIB):
            memory[offset:offset + MIB] = b"\1" * MIB


def touch_host(nbytes):
    """The memory of a virtual machine may be made as it is touched first, which takes seconds: here, and not while something is timed.
    At most half of what is available."""
    nbytes = min(nbytes, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    jobs = os.cpu_count()
    with multiprocessing.Pool(jobs) as pool:
        pool.map(touch, [max(1, int(nbytes) // jobs // MIB) * MIB] * jobs, chunksize=1)


def listens(path):
    """Whether a daemon takes connections there: the socket's file is there a moment earlier."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        return caller.connect_ex(path) == 0


class Bench:
    """with Bench(build) as bench: a folder and a daemon that end with it. Also what it started."""

    def __init__(self, build=None, daemon=()):
        """daemon: further words for gpushare-lockd."""
        self.began = time.monotonic()
        self.build = find_build(build)
        self.folder = tempfile.mkdtemp(prefix="gpushare-bench-")
        self.socket = os.path.join(self.folder, "lockd.sock")
        self.programs = []
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSHARE_")}
        self.environment.update(GPUSHARE_SOCKET=self.socket, GPUSHARE_LOCKD="/nonexistent")
        # the tools may need libraries that a bare machine lacks; the programs that are measured do not
        self.tools = dict(self.environment)
        self.tools["LD_LIBRARY_PATH"] = os.path.join(self.build, "lib") + ":" + os.environ.get("LD_LIBRARY_PATH", "")
        self.lockd = None
        try:
            self.start_daemon(daemon)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        for program in self.programs:
            program.kill()
        if self.lockd is not None:
            self.lockd.terminate()
            try:
                self.lockd.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.lockd.kill()
                self.lockd.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def seconds(self):
        """Since the benchmark began."""
        return time.monotonic() - self.began

    def path(self, *parts):
        return os.path.join(self.build, *parts)

    def start_daemon(self, words):
        log = os.path.join(self.folder, "lockd.log")
        with open(log, "w", encoding="utf-8") as file:
            self.lockd = subprocess.Popen([self.path("lockd", "gpushare-lockd"), "--socket", self.socket, *words],
                                          env=self.tools, stderr=file)
        until = time.monotonic() + 20
        while not listens(self.socket):
            if self.lockd.poll() is not None or time.monotonic() > until:
                with open(log, encoding="utf-8") as file:
                    raise Failed(f"{self.lockd.args[0]} does not come up: {file.read().strip()}")
            time.sleep(0.01)

    def tool(self, *command):
        """Its output; remarks on stderr (NVML on a busy machine) are no part of it."""
        done = subprocess.run(command, env=self.tools, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: status {done.returncode}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def ctl(self, *words):
        return self.tool(self.path("lockd", "gpusharectl"), "--socket", self.socket, *words)

    def status(self):
        return json.loads(self.ctl("status", "--json"))

    def device(self):
        """The daemon's status of the (first) card in use."""
        devices = self.status().get("devices")
        if not devices:
            raise Failed("gpusharectl status shows no device: is the patched program routed?")
        return devices[0]

    def patched(self, program):
        """The path of a patched copy of a program of the build."""
        copy = os.path.join(self.folder, os.path.basename(program) + ".patched")
        if not os.path.exists(copy):
            shutil.copy2(program, copy)
            self.tool(self.path("rewriter", "gpushare-patch"), "--any", copy)
        return copy

    def pythons(self):
        """Two copies of this interpreter with the same packages: as it is, and patched. (plain, patched)"""
        plain, routed = (os.path.join(self.folder, name) for name in ("python-plain", "python-patched"))
        out = self.tool(sys.executable, os.path.join(ROOT, "tests", "gpu", "copy_python.py"), plain, routed)
        beside = out.strip().splitlines()[-1] if out.strip() else ""
        if beside:  # libpython lies beside the interpreter
            self.environment["LD_LIBRARY_PATH"] = beside + ":" + self.environment.get("LD_LIBRARY_PATH", "")
        self.tool(self.path("rewriter", "gpushare-patch"), "--any", os.path.join(routed, "bin", "python3"))
        return os.path.join(plain, "bin", "python3"), os.path.join(routed, "bin", "python3")

    def loads(self, memory, limit=None, batch=8, steps=None, environments=({},)):
        """Copies of bench/load, each with so much memory and one of the environments; with a limit: patched, on a card of so many bytes."""
        path = self.path("bench", "load")
        if not os.access(path, os.X_OK):
            raise Failed(f"{path} is not built; it needs nvcc (./test.sh fetches it)")
        if limit is not None:
            path = self.patched(path)
            # the limit is for what the programs allocate: each also holds EDGE_BYTES beside its ranges
            environments = [{**each, "GPUSHARE_DEVICE_LIMIT": str(int(limit) + len(environments) * EDGE_BYTES)} for each in environments]
        programs = [self.start(path, **environment) for environment in environments]
        for line in (f"batch {batch}", f"take {int(memory)}", *([f"steps {steps}"] if steps else [])):
            together(programs, line)
        return programs

    def calibrated(self, memory, milliseconds):
        """(steps, ns) of a kernel of about that length in a program with so much memory."""
        programs = self.loads(memory)
        answer = programs[0].say(f"calibrate {int(milliseconds * 1e6)}")
        end(programs)
        return answer["steps"], answer["ns"]

    def facts(self, bus_bytes=None):
        """({"card", "driver"} as results have them, the card's bytes, the rates of the bus) from an unpatched program."""
        probe = self.start(self.path("bench", "load"))
        card = probe.say("card")
        bus = probe.say(f"bus {int(bus_bytes)}") if bus_bytes else None
        probe.end()
        return {"card": card["card"], "driver": card["driver"]}, card["total"], bus

    def start(self, *command, **environment):
        """A program that is told what to do by lines."""
        program = Program(self, command, environment)
        self.programs.append(program)
        return program


class Program:
    """Reads a command a line, answers each with a line of JSON."""

    def __init__(self, bench, command, environment):
        self.name = os.path.basename(command[0])
        self.log = os.path.join(bench.folder, f"program{len(bench.programs)}.log")
        self.waiting = b""
        with open(self.log, "w", encoding="utf-8") as file:
            self.child = subprocess.Popen(command, env={**bench.environment, **environment}, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=file, bufsize=0)
        self.pid = self.child.pid

    def tell(self, line):
        try:
            self.child.stdin.write((line + "\n").encode())
        except OSError as error:
            raise Failed(f"{self.name} ({self.pid}) has ended: {self.last_words()}") from error

    def answer(self, timeout=300):
        until = time.monotonic() + timeout
        while b"\n" not in self.waiting:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                raise Failed(f"{self.name} ({self.pid}) did not answer within {timeout} s")
            got = os.read(self.child.stdout.fileno(), 1 << 20)
            if not got:
                raise Failed(f"{self.name} ({self.pid}) has ended: {self.last_words()}")
            self.waiting += got
        line, _, self.waiting = self.waiting.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise Failed(f"{self.name} ({self.pid}) answered {line[:200]!r}") from error

    def say(self, line, timeout=300):
        self.tell(line)
        return self.answer(timeout)

    def last_words(self):
        """What a program that ends said last, or how it ended."""
        try:
            how = f"it said nothing and ended with status {self.child.wait(timeout=60)}"
        except subprocess.TimeoutExpired:
            how = "it said nothing and still runs"
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or [how])[-1]

    def end(self):
        """Ends it by itself; it must have been right."""
        self.child.stdin.close()
        if self.child.wait(timeout=120) != 0:
            raise Failed(f"{self.name} ({self.pid}) ended with {self.child.returncode}: {self.last_words()}")

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()


def together(programs, line):
    """All are told it at once; their answers."""
    for program in programs:
        program.tell(line)
    return [program.answer() for program in programs]


def end(programs):
    """Ends copies of bench/load; what they have in memory must be what they computed."""
    for program, answer in zip(programs, together(programs, "check")):
        if answer["wrong"]:
            raise Failed(f"{program.name} ({program.pid}): {answer['wrong']} words are wrong")
    for program in programs:
        program.end()


def bootstrap(values, figure=statistics.median, rounds=2000, part=0.95):
    """(low, high): the interval in which the figure of such a sample lies, by drawing from it again."""
    source = random.Random(1)
    drawn = sorted(figure(source.choices(values, k=len(values))) for _ in range(rounds))
    edge = (1 - part) / 2
    return drawn[int(edge * rounds)], drawn[min(int((1 - edge) * rounds), rounds - 1)]


def row(name, value, unit="", ceiling=None, against="ceiling", met=None, **more):
    """A row of a result (docs/benchmarks.md, "Files")."""
    entry = {"name": name, "value": value, "unit": unit}
    if ceiling:
        entry.update(ceiling=ceiling, ratio=value / ceiling, against=against)
    if met is not None:
        entry["met"] = bool(met)
    return {**entry, **more}


def write(path, benchmark, card, rows, **more):
    """The result as a file; card: {"card": name, "driver": number}"""
    if not path:
        return
    result = {"benchmark": benchmark, "date": datetime.date.today().isoformat(), **card, **more, "rows": rows}
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)  # whole, also when a signal ends the script meanwhile


def options(description, arguments=()):
    """The command line; arguments: (name, settings of add_argument) of the benchmark's own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="build tree (default build/gpu or build/dev)")
    parser.add_argument("--json", metavar="FILE", help="the result, as bench/plot.py draws it")
    parser.add_argument("--strict", action="store_true", help="exit status 1 also when a target is missed")
    for name, settings in arguments:
        parser.add_argument(name, **settings)
    return parser.parse_args()


def main(body):
    """Runs body(), which returns the rows, or None; what it cannot do is one line on stderr and exit status 1. SIGTERM ends it as an
    exception does, so that the daemon and the programs end with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        rows = body()
    except Failed as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(1 if "--strict" in sys.argv and any(each.get("met") is False for each in rows) else 0)
