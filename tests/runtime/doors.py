#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of doors.c with the right libcuda in reach, and checks what is logged. doors.py --build DIR"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import Card  # noqa: E402

failures = 0


def run(build, case, library, said="", **more):
    """said: what stderr must contain exactly once; empty: nothing may be said."""
    global failures
    with Card(build, daemon=False, GPUSHARE_LOCKD="/nonexistent") as card:
        more["LD_LIBRARY_PATH"] = os.path.join(build, "tests", library)
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "doors"), case], **more)
    good = code == 0 and out == "" and (err.count(said) == 1 if said else err == "")
    print(f"{'ok' if good else 'FAILED'}: {case} {more}" + ("" if good else f": exit {code}: {out}{err}"))
    failures += not good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    run(build, "absent", "nowhere")
    run(build, "handle", "simcuda")
    run(build, "lookups", "simcuda")
    run(build, "disabled", "simcuda", GPUSHARE_DISABLE="1")
    newer = "cuLaunchKernel was asked for in the ABI of CUDA 14.0"
    run(build, "newer", "runtime/newer", said=newer, GPUSHARE_LOG="stderr")
    run(build, "strict", "runtime/newer", said=newer, GPUSHARE_LOG="stderr", GPUSHARE_STRICT="1")
    sys.exit(1 if failures else 0)


main()
