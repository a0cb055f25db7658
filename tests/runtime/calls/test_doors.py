#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of doors.c with the right libcuda in reach, and checks what is logged. test_doors.py --build DIR"""
import argparse
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
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


def sanitized(build):
    """A program with ThreadSanitizer, whose runtime asks our dlsym before anything of it works, begins and ends."""
    global failures
    with Card(build, daemon=False, GPUSHARE_LOCKD="/nonexistent") as card:
        program = os.path.join(card.folder, "sanitized")
        source = program + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write('#include <dlfcn.h>\nint main(void) { return dlsym(RTLD_DEFAULT, "getpid") == 0; }\n')
        made = subprocess.run(["cc", "-fsanitize=thread", source, "-o", program], capture_output=True, check=False)
        if made.returncode != 0:
            print("skipped: cc has no ThreadSanitizer")
            return
        library = os.path.join(build, "runtime", "libgpushare.so.1")
        code, out, err = card.run([program], LD_PRELOAD=library)  # first, as in a patched program
    good = code == 0 and out + err == ""
    print(f"{'ok' if good else 'FAILED'}: sanitized" + ("" if good else f": exit {code}: {out}{err}"))
    failures += not good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    run(build, "absent", "nowhere")
    run(build, "handle", "simcuda")
    run(build, "lookups", "simcuda")
    run(build, "disabled", "simcuda", GPUSHARE_DISABLE="1")
    newer = "the program requested cuLaunchKernel in the form of CUDA 14.0"
    run(build, "newer", "runtime/newer", said=newer, GPUSHARE_LOG="stderr")
    run(build, "strict", "runtime/newer", said=newer, GPUSHARE_LOG="stderr", GPUSHARE_STRICT="1")
    sanitized(build)
    sys.exit(1 if failures else 0)


main()
