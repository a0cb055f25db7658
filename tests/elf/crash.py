#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets gpushare-patch die at every step: the file is always the complete original or the complete new one.

The test build (gpushare-patch-fault) dies at step N without cleaning up, as kill -9 does. A run that was cut short must
also be no obstacle: the next one succeeds.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

DIED = 99


def outcomes(tool, arguments, path, before, after):
    """Dies at step 1, 2, ... until a run gets through; returns the number of steps, or exits with a reason."""
    seen = {"old": 0, "new": 0}
    for step in range(1, 1000):
        open(path, "wb").write(before)
        status = subprocess.run([tool, "-q", "--fault-step", str(step), *arguments, path], timeout=60).returncode
        now = open(path, "rb").read()
        if now not in (before, after):
            sys.exit(f"step {step} left a file that is neither the old nor the new one ({len(now)} bytes)")
        seen["old" if now == before else "new"] += 1
        left = [f for f in os.listdir(os.path.dirname(path)) if f.startswith(".gpushare")]
        for name in left:  # between naming and renaming a name can be left behind, never more than one
            os.unlink(os.path.join(os.path.dirname(path), name))
        if len(left) > 1 or (left and now == after):
            sys.exit(f"step {step} left {left}")
        if status == 0:
            if now != after:
                sys.exit(f"step {step}: said it was done, but the file is the old one")
            return step - 1, seen
        if status != DIED:
            sys.exit(f"step {step}: exit {status}")
    sys.exit("never got through")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", required=True, help="the test build gpushare-patch-fault")
    parser.add_argument("--runtime", required=True)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpushare-crash.") as folder:
        path = os.path.join(folder, "program")
        shutil.copy(shutil.which("ls"), path)
        original = open(path, "rb").read()
        arguments = ["--any", "--runtime", os.path.abspath(o.runtime)]
        subprocess.run([o.patch, "-q", *arguments, path], check=True)
        patched = open(path, "rb").read()
        if patched == original:
            sys.exit("nothing was patched")
        cases = [("patch", arguments, original, patched), ("restore", ["--restore"], patched, original),
                 ("patch, no sync", ["--no-sync", *arguments], original, patched)]
        if shutil.which("strip"):
            stripped = []
            for content in (original, patched):
                open(path, "wb").write(content)
                subprocess.run(["strip", path], check=True)
                stripped.append(open(path, "rb").read())
            cases.append(("restore after strip", ["--restore"], stripped[1], stripped[0]))
        for what, args, before, after in cases:
            steps, seen = outcomes(o.patch, args, path, before, after)
            print(f"{what}: died at each of {steps} steps: {seen['old']} times the old file, {seen['new']} times the new one")
            if steps < 8 or seen["old"] == 0 or seen["new"] < 2:
                sys.exit("too few steps were seen: is this the test build?")


if __name__ == "__main__":
    main()
