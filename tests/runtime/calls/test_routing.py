#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Routing is counted, and its absence is said: patched programs on the simulated card. test_routing.py --build DIR

NVIDIA's static cudart starts on the simulated driver, resolves its 440 names and then reports an error of its own
(CUDART.md): enough to count. A program whose CUDA calls cannot be seen says so once on stderr and in gpusharectl status.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import Card  # noqa: E402

failures = 0


def check(good, what, detail=""):
    global failures
    print(f"{'ok' if good else 'FAILED'}: {what}" + ("" if good else f": {detail}"))
    failures += not good


def patched(build, card, program):
    copy = os.path.join(card.folder, os.path.basename(program))
    subprocess.run([os.path.join(build, "rewriter", "gpushare-patch"), "-q", "--any", "-o", copy, program], check=True)
    return copy


def count_static_cudart(build):
    program = os.path.join(build, "samples", "vectoradd.nv")
    if not os.path.exists(program):
        print("skipped: no vectoradd.nv (NVIDIA's static cudart is not installed)")
        return
    with Card(build) as card:
        stats = os.path.join(card.folder, "stats")
        card.run([patched(build, card, program), "--rounds", "1"], GPUSHARE_STATS=stats)
        with open(stats, encoding="utf-8") as file:
            counted = json.load(file)
        check(counted["lookups"] == 440, "440 of 440 look-ups of NVIDIA's static cudart answered by us", counted)
        check(counted["substituted"] > 150 and counted["escaped"] == 0, "the covered ones with our own", counted)


def unseen(build, *words):
    text = "none of its calls reached gpushare"
    with Card(build) as card:
        code, _, err = card.run([patched(build, card, os.path.join(build, "tests", "runtime", "escape")), *words])
        check(code == 0 and err.count("\n") == 1 and text in err, f"{words[0]}: one line on stderr", f"{code}: {err}")
        notes = card.status().get("notes", [])
        check(any(note["kind"] == "unrouted" and text in note["text"] for note in notes),
              f"{words[0]}: a note in gpusharectl status", notes)


def silent(build):
    with Card(build) as card:
        code, out, err = card.run([patched(build, card, os.path.join(build, "tests", "runtime", "escape")), "none"])
        check((code, out, err) == (0, "", ""), "no CUDA: nothing is said", (code, out, err))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    count_static_cudart(build)
    unseen(build, "deepbind", os.path.join(build, "tests", "runtime", "libdeepbind.so"))
    unseen(build, "namespace")
    silent(build)
    sys.exit(1 if failures else 0)


main()
