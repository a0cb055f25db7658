#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has spin search every interleaving of handoff.pml, and see that it finds what is broken on purpose.

usage: test_handoff.py [--all] [CC]      exit 77: spin is not installed

Without --all what takes seconds: two programs, one of them killed or the daemon restarted. With it (a quarter of an hour, 3 GiB) also
both, a waiting program that gives up, and three programs, each with one target on its way at a time; of their states 12 bytes of a
hash are kept. Last what has no end on such a machine, three programs' turns and three with a kill and a restart: two minutes of it, a few
bits a state; that finds a fault or finds none in the part that was seen, and proves nothing.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "handoff.pml")
SAFETY, LIVENESS = ["-DSAFETY", "-DNOCLAIM", "-DCOLLAPSE"], ["-DNFAIR=6", "-DCOLLAPSE"]
HASHES = ["-DSAFETY", "-DNOCLAIM", "-DHC4"]
BITS, BITS_LIVENESS = ["-DSAFETY", "-DNOCLAIM", "-DBITSTATE"], ["-DNFAIR=6", "-DBITSTATE"]
WAYS = {id(LIVENESS): ["-a", "-f", "-m100000"], id(SAFETY): ["-m100000"], id(HASHES): ["-m5000000", "-w26"],
        id(BITS): ["-m2000000", "-w32", "-k3", "-Q2"], id(BITS_LIVENESS): ["-a", "-f", "-m2000000", "-w32", "-k3", "-Q2"]}

# what it is, how it is searched, the model's settings, is a fault to be found?
QUICK = [
    ("a program killed, the daemon restarted: memory", SAFETY, "KILLS=1 RESTARTS=1 REGRETS=0", False),
    ("a program killed: turns", LIVENESS, "KILLS=1 RESTARTS=0 REGRETS=0", False),
    ("the daemon restarted: turns", LIVENESS, "KILLS=0 RESTARTS=1 REGRETS=0", False),
    ("memory moves before work has finished", SAFETY, "KILLS=0 RESTARTS=0 BREAK_DRAIN", True),
    ("budgets count as lowered once sent", SAFETY, "KILLS=0 RESTARTS=0 BREAK_ECHO", True),
    ("an earlier daemon's budget is used", SAFETY, "KILLS=0 RESTARTS=1 BREAK_RECONNECT", True),
    ("turns never end", LIVENESS, "KILLS=0 RESTARTS=0 BREAK_QUANTUM", True),
]
LONG = [
    ("all of it: memory", SAFETY, "KILLS=1 RESTARTS=1 REGRETS=1", False),
    ("a program killed, one gives up: turns", LIVENESS, "KILLS=1 RESTARTS=0 REGRETS=1", False),
    ("the daemon restarted, one gives up: turns", LIVENESS, "KILLS=0 RESTARTS=1 REGRETS=1", False),
    ("three programs: memory", HASHES, "N=3 KILLS=0 RESTARTS=0 REGRETS=0 FLIGHT=1", False),
    ("three programs: turns, a part", BITS_LIVENESS, "N=3 KILLS=0 RESTARTS=0 REGRETS=0 FLIGHT=1", False),
    ("three, one killed, the daemon restarted: memory, a part", BITS, "N=3 KILLS=1 RESTARTS=1 REGRETS=0 FLIGHT=1", False),
    ("three programs, turns never end", BITS_LIVENESS, "N=3 KILLS=0 RESTARTS=0 REGRETS=0 FLIGHT=1 BREAK_QUANTUM", True),
]


def search(cc, how, settings):
    """(errors, states) of the whole search; with few bits a state, of what two minutes see of it."""
    with tempfile.TemporaryDirectory(prefix="gpushare-spin-") as folder:
        subprocess.run(["spin", "-a", *["-D" + each for each in settings.split()], MODEL], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([cc, "-O1", "-w", "-DMEMLIM=8000", *how, "-o", "pan", "pan.c"], cwd=folder, check=True)
        said = subprocess.run(["./pan", *WAYS[id(how)]], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    errors, states = re.search(r"errors: (\d+)", said), re.search(r"(\d+(?:\.\d+e\+\d+)?) states, stored", said)
    cut = "Search not completed" in said and "-DBITSTATE" not in how
    if errors is None or states is None or "max search depth" in said or (cut and errors[1] == "0"):
        sys.exit(f"the search with {settings} came to no end:\n{said}")
    return int(errors[1]), int(float(states[1]))


def main():
    arguments = [each for each in sys.argv[1:] if each != "--all"]
    cc = arguments[0] if arguments else "cc"
    if shutil.which("spin") is None:
        print("skipped: spin is not installed (scripts/packages.txt)")
        sys.exit(77)
    wrong = 0
    for what, how, settings, broken in QUICK + (LONG if "--all" in sys.argv else []):
        errors, states = search(cc, how, settings)
        wrong += (errors != 0) != broken
        print(f"{'ok' if (errors != 0) == broken else 'WRONG':6}{'broken: ' if broken else ''}{what}: "
              f"{'a fault' if errors else 'no fault'}, {states} states", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
