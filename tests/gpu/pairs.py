#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two jobs of two ranks on two cards, beyond the limit of both, without any setting: pairs.py PYTHON LIMIT-GIB OUT [CASE]... (by pairs.sh).
Compares checksums with those alone, and the time with one job after the other. The long cases have ten times the steps, for the
ratio; the others repeat starts and ends. GS_PAIR_BUDGET: seconds for all of it; GS_PAIR_RUNS: repetitions of each kind (20);
GS_PAIR_STEPS: of a short job (200). Writes OUT/pairs.json; a table last. Exit 1: something was not right."""
import json
import os
import select
import statistics
import subprocess
import sys
import time

PYTHON, LIMIT, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BUDGET, RUNS = float(os.environ.get("GS_PAIR_BUDGET", "560")), int(os.environ.get("GS_PAIR_RUNS", "20"))
STEPS, HANG = int(os.environ.get("GS_PAIR_STEPS", "200")), 240  # HANG: seconds after which a pair counts as hung
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job_pair.py")
END = time.monotonic() + BUDGET
CASES = {"ddp": ("two DDP", ["ddp"] * 2, STEPS), "fsdp": ("two FSDP", ["fsdp"] * 2, STEPS),
         "grow": ("two DDP that grow, met by a file", ["grow"] * 2, STEPS),
         "third": ("two DDP and one on a card", ["ddp", "ddp", "single"], STEPS),
         "ddp-long": ("two DDP, long", ["ddp"] * 2, 10 * STEPS), "fsdp-long": ("two FSDP, long", ["fsdp"] * 2, 10 * STEPS)}
CHOSEN = sys.argv[4:]


class Jobs:
    """One job_pair.py, which runs one job after the other."""

    def __init__(self):
        environment = {**os.environ, "GPUSHARE_DEVICE_LIMIT": f"{LIMIT}GiB", "GPUSHARE_QUIET": "1"}
        self.process = subprocess.Popen([PYTHON, JOB], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        bufsize=0, start_new_session=True)

    def start(self, kind, steps):
        self.process.stdin.write(f"{kind} {LIMIT * 6 // 10} {steps}\n".encode())

    def answer(self, until):
        """Its next line, parsed; None after that time."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                return None
            read = os.read(self.process.stdout.fileno(), 4096)
            if not read:
                return {"error": "its process has ended"}
            line += read
        return {} if line == b"ready\n" else json.loads(line)

    def end(self):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()


class Crew:
    """So many of them, made anew after a hang."""

    def __init__(self):
        self.all = []

    def get(self, count):
        new = [Jobs() for _ in range(count - len(self.all))]
        self.all += new
        for each in new:
            if each.answer(min(END, time.monotonic() + HANG)) != {}:
                raise SystemExit("pairs.py: job_pair.py does not begin: see above")
        return self.all[:count]

    def end(self):
        for each in self.all:
            each.end()
        self.all = []

    def together(self, kinds, steps):
        """(answers, seconds), or a text that says what went wrong."""
        jobs = self.get(len(kinds))
        began = time.monotonic()
        for kind, each in zip(kinds, jobs):
            each.start(kind, steps)
        answers = [each.answer(min(began + HANG, END)) for each in jobs]
        seconds = time.monotonic() - began
        if None in answers:
            self.end()
            return "hang" if time.monotonic() - began >= HANG else "out of time"
        wrong = [answer["error"] for answer in answers if "error" in answer]
        return "; ".join(wrong) or (answers, seconds)


def measure(crew, name, kinds, steps, alone, until):
    """Repeats it until that time."""
    row = {"case": name, "steps": steps, "runs": 0, "right": 0, "hangs": 0, "seconds": [], "wrong": [],
           "serial": sum(alone[kind][1] for kind in kinds)}
    while row["runs"] < RUNS and time.monotonic() < until:
        done = crew.together(kinds, steps)
        if done == "out of time":
            break
        row["runs"] += 1
        if isinstance(done, str):
            row["hangs"] += done == "hang"
            row["wrong"].append(done)
            continue
        same = all(answer["right"] and answer["checksum"] == alone[kind][0] for kind, answer in zip(kinds, done[0]))
        row["right"] += same
        row["seconds"].append(done[1])
        if not same:
            row["wrong"].append("another checksum")
    row["ratio"] = round(statistics.median(row["seconds"]) / row["serial"], 3) if row["seconds"] else None
    return row


def measure_alone(crew, kind, steps):
    """(checksum, seconds)"""
    done = crew.together([kind], steps)
    if isinstance(done, str):
        raise SystemExit(f"pairs.py: {kind} alone: {done}")
    print(f"{kind} alone, {steps} steps: {done[1]:.1f} s, {done[0][0]['checksum']}", flush=True)
    return done[0][0]["checksum"], done[1]


def main():
    crew, rows, alone = Crew(), [], {}
    unknown = [name for name in CHOSEN if name not in CASES]
    if unknown:
        raise SystemExit(f"pairs.py: no case {unknown[0]}; there are: {', '.join(CASES)}")
    cases = [CASES[name] for name in CHOSEN or CASES]
    crew.get(max(len(kinds) for _, kinds, _ in cases))
    for kind in sorted({kind for _, kinds, _ in cases for kind in kinds}):
        crew.together([kind], 1)  # files that are read for the first time
    for i, (name, kinds, steps) in enumerate(cases):
        alone.setdefault(steps, {}).update({kind: measure_alone(crew, kind, steps) for kind in kinds if kind not in alone.get(steps, {})})
        now = time.monotonic()
        rows.append(measure(crew, name, kinds, steps, alone[steps], now + (END - now) / (len(cases) - i)))
        print(f"{name}: {rows[-1]['right']} of {rows[-1]['runs']} right", flush=True)
        with open(os.path.join(OUT, "pairs.json"), "w", encoding="ascii") as file:
            json.dump({"limit_gib": LIMIT, "alone": alone, "rows": rows}, file, indent=1)
    crew.end()
    print(f"\n{'case':32} {'runs':>5} {'right':>6} {'hangs':>6} {'median s':>9} {'serial s':>9} {'ratio':>6}")
    for row in rows:
        median = f"{statistics.median(row['seconds']):.1f}" if row["seconds"] else "-"
        print(f"{row['case']:32} {row['runs']:5} {row['right']:6} {row['hangs']:6} {median:>9} {row['serial']:9.1f} {row['ratio'] or '-':>6}"
              f"  {'; '.join(sorted(set(row['wrong'])))}")
    return 0 if all(row["runs"] and row["right"] == row["runs"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
