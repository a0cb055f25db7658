#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two jobs of two ranks on two cards, beyond the limit of both, without any setting: pairs.py PYTHON LIMIT-GIB OUT (by pairs.sh).
Compares checksums with those alone, and the time with one job after the other. GS_PAIR_BUDGET: seconds for all of it;
GS_PAIR_RUNS: repetitions of each kind (20). Writes OUT/pairs.json; a table last. Exit 1: something was not right."""
import json
import os
import statistics
import subprocess
import sys
import time

PYTHON, LIMIT, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BUDGET, RUNS = float(os.environ.get("GS_PAIR_BUDGET", "560")), int(os.environ.get("GS_PAIR_RUNS", "20"))
STEPS, HANG = int(os.environ.get("GS_PAIR_STEPS", "200")), 240  # HANG: seconds after which a pair counts as hung
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job_pair.py")
END = time.monotonic() + BUDGET


def start(kind):
    environment = {**os.environ, "GPUSHARE_DEVICE_LIMIT": f"{LIMIT}GiB", "GPUSHARE_QUIET": "1"}
    return subprocess.Popen([PYTHON, JOB, kind, str(LIMIT * 6 // 10), str(STEPS)], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def together(kinds):
    """(answers, seconds), or a text that says what went wrong."""
    began, jobs, answers, wrong = time.monotonic(), [start(kind) for kind in kinds], [], None
    for kind, job in zip(kinds, jobs):
        try:
            out, err = job.communicate(timeout=max(1.0, min(began + HANG, END) - time.monotonic()))
            answers.append(json.loads(out.splitlines()[-1]) if job.returncode == 0 else None)
            wrong = wrong or (None if job.returncode == 0 else f"{kind}: exit {job.returncode}: {err.strip().splitlines()[-1:]}")
        except subprocess.TimeoutExpired:
            wrong = wrong or ("hang" if time.monotonic() - began >= HANG else "out of time")
        except (ValueError, IndexError):
            wrong = wrong or f"{kind}: no answer"
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, 9)
            job.wait()
    return wrong or (answers, time.monotonic() - began)


def measure(name, kinds, alone, until):
    """Repeats it until that time."""
    row = {"case": name, "runs": 0, "right": 0, "hangs": 0, "seconds": [], "serial": sum(alone[kind][1] for kind in kinds), "wrong": []}
    while row["runs"] < RUNS and time.monotonic() < until:
        done = together(kinds)
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


def main():
    alone, rows = {}, []
    for kind in ("ddp", "fsdp", "single"):
        together([kind])  # files that are read for the first time
        done = together([kind])
        if isinstance(done, str):
            print(f"{kind} alone: {done}")
            return 1
        alone[kind] = (done[0][0]["checksum"], done[1])
        print(f"{kind} alone: {done[1]:.1f} s, {alone[kind][0]}", flush=True)
    cases = [("two DDP", ["ddp"] * 2), ("two FSDP", ["fsdp"] * 2), ("two DDP and one on a card", ["ddp", "ddp", "single"])]
    for i, (name, kinds) in enumerate(cases):
        now = time.monotonic()
        rows.append(measure(name, kinds, alone, now + (END - now) / (len(cases) - i)))
        print(f"{name}: {rows[-1]['right']} of {rows[-1]['runs']} right", flush=True)
        with open(os.path.join(OUT, "pairs.json"), "w", encoding="ascii") as file:
            json.dump({"limit_gib": LIMIT, "steps": STEPS, "alone": alone, "rows": rows}, file, indent=1)
    print(f"\n{'case':28} {'runs':>5} {'right':>6} {'hangs':>6} {'median s':>9} {'serial s':>9} {'ratio':>6}")
    for row in rows:
        median = f"{statistics.median(row['seconds']):.1f}" if row["seconds"] else "-"
        print(f"{row['case']:28} {row['runs']:5} {row['right']:6} {row['hangs']:6} {median:>9} {row['serial']:9.1f} {row['ratio'] or '-':>6}"
              f"  {'; '.join(sorted(set(row['wrong'])))}")
    return 0 if all(row["runs"] and row["right"] == row["runs"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
