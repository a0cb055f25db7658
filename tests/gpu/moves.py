#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs change cards while they run: moves.py BUNDLE WORK LIMIT CASE... (by moves.sh, which has patched WORK/hog).
Writes $OUT/moves.json; a table last. Exit 1: something was not right."""
import json
import os
import re
import statistics
import subprocess
import sys
import time

BUNDLE, WORK, LIMIT, CASES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
HERE = os.path.dirname(os.path.abspath(__file__))
BOUND = 120  # seconds after which something counts as hung
MOVES, MOVES_TORCH = int(os.environ.get("GS_MOVES", "200")), int(os.environ.get("GS_MOVES_TORCH", "20"))
BYTES, SECONDS = os.environ.get("GS_MOVES_BYTES", "7GiB"), float(os.environ.get("GS_MOVES_SECONDS", "150"))
POOL_SECONDS = float(os.environ.get("GS_POOL_SECONDS", "8"))
POOL_BYTES, PROGRAMS = os.environ.get("GS_POOL_BYTES", "10GiB"), 8
KINDS = 2 if os.environ.get("GS_POOL_SHORT") else 3


class Wrong(Exception):
    pass


class Daemon:
    """One of our own, with these options."""

    def __init__(self, name, *options):
        self.socket, self.log = f"{WORK}/{name}.sock", f"{WORK}/{name}.log"
        self.environment = {**os.environ, "GPUSHARE_SOCKET": self.socket, "GPUSHARE_QUIET": "1"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([f"{BUNDLE}/lockd/gpushare-lockd", "--socket", self.socket, *options], stderr=log)
        wait_for(lambda: '"running": true' in self.ctl("status", "--json")[1], "the daemon")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()

    def start(self, command, name, **more):
        out = open(f"{WORK}/{name}.out", "wb")
        with out:
            return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**self.environment, **more})

    def ctl(self, *arguments):
        done = subprocess.run([f"{BUNDLE}/lockd/gpusharectl", *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=BOUND)
        return done.returncode, done.stdout + done.stderr

    def cards_of(self, pid):
        """UUIDs of the cards that the daemon shows it on, with its resident bytes."""
        code, said = self.ctl("status", "--json")
        devices = json.JSONDecoder().raw_decode(said)[0]["devices"] if code == 0 else []  # a remark may follow
        return {device["uuid"]: program["resident"] for device in devices for program in device["programs"] if program["pid"] == pid}


def wait_for(what, name, seconds=BOUND):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise Wrong(f"{name}: not within {seconds} s")
        time.sleep(0.05)


def last_line(name):
    with open(f"{WORK}/{name}.out", encoding="utf-8", errors="replace") as out:
        return ([line for line in out.read().splitlines() if line.strip()] or [""])[-1]


def cards():
    """UUIDs as the driver counts the cards."""
    named = os.environ.get("GS_MOVES_CARDS")
    return named.split() if named else subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True,
                                                      text=True, check=True).stdout.split()


def finish(process, name, seconds=BOUND):
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Wrong(f"{name} did not end: {last_line(name)}") from None
    if code != 0:
        raise Wrong(f"{name} ended with {code}: {last_line(name)}")


def move(daemon, process, uuid, name, seconds):
    began = time.monotonic()
    code, said = daemon.ctl("move", str(process.pid), uuid)
    took = time.monotonic() - began
    if code != 0:
        raise Wrong(f"move {len(seconds) + 1} of {name}: exit {code}: {said.strip()}; the program: {process.poll()} {last_line(name)}")
    seconds.append(took)
    # the program tells the daemon of its new card as soon as it runs again
    wait_for(lambda: list(daemon.cards_of(process.pid)) == [uuid], f"{name} to be shown on {uuid} after move {len(seconds)}")


def times(seconds):
    if not seconds:
        return {"moves": 0}
    return {"moves": len(seconds), "median_s": round(statistics.median(seconds), 3), "least_s": round(min(seconds), 3),
            "most_s": round(max(seconds), 3)}


def case_hog(row):
    """It checks every page in every round."""
    seconds, uuids = [], cards()
    row["bytes"] = BYTES
    with Daemon("hog") as daemon:
        hog = daemon.start([f"{WORK}/hog", "--bytes", BYTES, "--rounds", "1000000", "--seconds", str(SECONDS + 10), "--quiet"], "hog")
        try:
            wait_for(lambda: sum(daemon.cards_of(hog.pid).values()) > 0, "the hog to begin")
            end = time.monotonic() + SECONDS
            while len(seconds) < MOVES and time.monotonic() < end and hog.poll() is None:
                move(daemon, hog, uuids[(len(seconds) + 1) % 2], "hog", seconds)
                wait_for(lambda: sum(daemon.cards_of(hog.pid).values()) > 0 or hog.poll() is not None, "its memory to come")
        finally:
            row.update(times(seconds))
            row["daemon"] = tail(daemon.log)
            finish(hog, "hog", SECONDS + BOUND)
    row["said"] = last_line("hog")


def tail(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        return log.read().splitlines()[-12:]


def case_torch(row):
    """The same checksum as alone."""
    job = [os.path.join(HERE, "job_moved.py"), str(MOVES_TORCH * 3)]
    plain = subprocess.run([os.environ["GS_PYTHON_PLAIN"], *job], capture_output=True, text=True, check=False)
    if plain.returncode != 0:
        raise Wrong(f"unpatched: {plain.stderr[-300:]}")
    seconds, uuids, middle = [], cards(), f"{WORK}/torch.middle"
    with Daemon("torch") as daemon:
        torch = daemon.start([os.environ["GS_PYTHON_PATCHED"], *job], "torch", GS_MOVED_MIDDLE=middle)
        try:
            for number in range(MOVES_TORCH):
                wait_for(lambda n=number: os.path.exists(f"{middle}{n}") or torch.poll() is not None, "PyTorch's middle")
                move(daemon, torch, uuids[(number + 1) % 2], "torch", seconds)
                with open(f"{middle}{number}.done", "wb"):
                    pass
        finally:
            row.update(times(seconds))
            row["daemon"] = tail(daemon.log)
            for number in range(len(seconds), MOVES_TORCH):
                with open(f"{middle}{number}.done", "wb"):
                    pass
            finish(torch, "torch")
    row["said"] = last_line("torch")
    if row["said"] != plain.stdout.splitlines()[-1]:
        raise Wrong(f"checksum {row['said']}, alone {plain.stdout.splitlines()[-1]}")


def work_of(seconds):
    """Rounds of a hog that take so long on one card alone."""
    def run(rounds):
        began = time.monotonic()
        subprocess.run([f"{WORK}/hog", "--bytes", POOL_BYTES, "--repeat", "20", "--rounds", str(rounds), "--quiet"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "GPUSHARE_DISABLE": "1"})
        return time.monotonic() - began
    few, more = run(2), run(12)
    return max(1, round(seconds / ((more - few) / 10)))


def touch_host_memory():
    """A virtual machine may get its memory only when it is first used, which takes seconds for each GiB: not while it is timed."""
    size = int(re.match(r"\d+", POOL_BYTES)[0]) << {"M": 20, "G": 30}[POOL_BYTES[-3]]
    touch = f"import mmap; mmap.mmap(-1, {size}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)"  # MAP_POPULATE
    for child in [subprocess.Popen([sys.executable, "-c", touch]) for _ in range(PROGRAMS)]:
        child.wait()


def makespan(name, rounds, options, places):
    with Daemon(name, *options) as daemon:
        began, programs = time.monotonic(), []
        for number in range(PROGRAMS):
            more = {"GPUSHARE_DEVICE_LIMIT": LIMIT}
            if places:
                more["CUDA_VISIBLE_DEVICES"] = str(number % 2)
            programs.append(daemon.start([f"{WORK}/hog", "--bytes", POOL_BYTES, "--repeat", "20", "--rounds", str(rounds), "--seed", str(number),
                                          "--quiet"], f"{name}{number}", **more))
        for number, program in enumerate(programs):
            finish(program, f"{name}{number}", 4 * BOUND)
        took = time.monotonic() - began
        moves = sum("moved" in line for line in open(daemon.log, encoding="utf-8", errors="replace"))
    return took, moves


def case_pool(row):
    """Eight equal programs, of which only one fits a card at a time; all begin on the first."""
    touch_host_memory()
    rounds = work_of(POOL_SECONDS)
    row["rounds"] = rounds
    row["even_share"] = POOL_SECONDS * PROGRAMS / 2  # no order can be quicker
    for name, options, places in (("placed", (), True), ("waiting", ("--balance", "waiting"), False), ("off", (), False))[:KINDS]:
        row[name], moves = makespan(name, rounds, options, places)
        row[name] = round(row[name], 1)
        row[name + "_moves"] = moves
        print(f"pool {name}: {row[name]} s", flush=True)
    row["of_placed"] = round(row["waiting"] / row["placed"], 3)
    row["said"] = f"{row['of_placed']} of placed" + (f", {round(row['waiting'] / row['off'], 3)} of without" if "off" in row else "")


def main():
    rows = []
    for case in CASES:
        row = {"case": case, "right": False}
        try:
            globals()[f"case_{case}"](row)
            row["right"] = True
        except Wrong as wrong:
            row["wrong"] = str(wrong)
        rows.append(row)
        with open(os.path.join(os.environ["OUT"], "moves.json"), "w", encoding="ascii") as file:
            json.dump({"cards": cards(), "limit": LIMIT, "rows": rows}, file, indent=1)
        if not row["right"]:
            print("\n".join(["", *row.get("daemon", [])]), flush=True)
    print(f"\n{'case':6} {'right':6} {'moves':>6} {'median s':>9} {'most s':>7}")
    for row in rows:
        print(f"{row['case']:6} {'yes' if row['right'] else 'NO':6} {row.get('moves', row.get('waiting_moves', '-')):>6} {row.get('median_s', '-'):>9} "
              f"{row.get('most_s', '-'):>7}  {row.get('wrong') or re.sub(r' (seconds|gpu_seconds)=[^ ]*', '', row.get('said', ''))}")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
