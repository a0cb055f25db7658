#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that is told to stop in the middle of a capture can finish it, also behind a gate that it has shut itself.

test_shut.py --build DIR; see shut.c
"""
import argparse
import os
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import Card  # noqa: E402  (beside this file)

SECONDS = 50  # less than the minute after which a capture counts as forgotten


def expect(child, *lines):
    for line in lines:
        ready, _, _ = select.select([child.stdout], [], [], SECONDS)
        said = os.read(child.stdout.fileno(), len(line) + 1).decode() if ready else "nothing"
        if said != line + "\n":
            print(f"FAILED: said {said!r}, not {line!r}; {child.poll()}")
            sys.exit(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    args = parser.parse_args()
    with Card(args.build, memory="64MiB") as card:
        def control(*words):
            ctl = os.path.join(args.build, "lockd", "gpusharectl")
            subprocess.run([ctl, "--socket", card.socket, *words], env=card.environment, check=True, stdout=subprocess.DEVNULL)

        child = subprocess.Popen([os.path.join(args.build, "tests", "runtime", "shut")], env=card.environment,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        card.children.append(child)
        expect(child, "ready")
        control("pause", str(child.pid))
        until = time.monotonic() + SECONDS
        while not card.status()["devices"][0]["programs"][0]["paused"] and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # it has heard of it: nothing tells, since it goes on
        child.stdin.write(b"\n")
        expect(child, "captured", "ready")
        control("resume", str(child.pid))
        child.stdin.write(b"\n")
        expect(child, "ok")
        if child.wait(timeout=SECONDS) != 0:
            print(f"FAILED: exit {child.returncode}")
            sys.exit(1)
    print("ok")


main()
