#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that read beside their arrays, on a simulated card (tests/gpu/beside.c). test_beside.py --build DIR"""
import argparse
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, Card, Told, check, failures  # noqa: E402  (beside this file)

ILLEGAL_ADDRESS = "700"
BLOCKS = ("large", "small", "pitched", "ordered")
ACCESSES = [f"{block} {side}" for block in BLOCKS for side in ("below", "above")]


def answers(build, what, **more):
    with Card(build, memory="128MiB", **more) as card:
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "beside_linked"), what, "16"])
        said = dict(line.split(": ") for line in out.splitlines())
        check(code == 0 and err == "" and list(said) == ACCESSES, f"{what} {more}: exit {code}, {len(said)} accesses: {err}")
        return said


def reads(build):
    """Every row beside can be read, as without gpushare, where allocations lie side by side (below the first one is nothing)."""
    plain, ours = answers(build, "read", GPUSHARE_DISABLE="1"), answers(build, "read")
    check(plain.pop("large below") == ILLEGAL_ADDRESS and set(plain.values()) == {"0"}, f"without gpushare: {plain}")
    check(set(ours.values()) == {"0"}, f"every row beside can be read: {ours}")


def writes(build):
    """What is beside can only be read."""
    ours = answers(build, "write")
    for access in ACCESSES:
        if access != "small above":  # another piece of the same slab
            check(ours[access] == ILLEGAL_ADDRESS, f"written {access}: {ours[access]}")


def without(build):
    """A driver that knows no memory for reading only: it can be read all the same. None at all there: programs run."""
    ours = answers(build, "read", SIMCUDA_FAIL="cuMemSetAccess:2:801,cuMemSetAccess:4:801")
    check(ours["large below"] == ours["large above"] == "0", f"only read and write: {ours}")
    ours = answers(build, "read", SIMCUDA_FAIL="cuMemSetAccess:2:801,cuMemSetAccess:3:801")
    check(ours["large below"] == ours["large above"] == ILLEGAL_ADDRESS and ours["pitched below"] == ours["pitched above"] == "0",
          f"none for the first one: {ours}")


def moved(build):
    """The rows can be read before and after the array was moved out and in; what lies there counts as pinned, once."""
    with Card(build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
        ready, go = (os.path.join(card.folder, name) for name in ("ready", "go"))
        stays = Told(card, command=["beside_linked", "stay", "64", ready, go])
        stays.until(lambda entry: os.path.exists(ready) or stays.child.poll() is not None)
        entry = stays.entry()
        check(entry is not None and entry["pinned"] == 2 * MIB, f"2 MiB of it stay: {entry}")
        other = Told(card)
        gone = stays.make_room(other)
        check(gone["moved_out"] > 64 * MIB and gone["pinned"] == 2 * MIB, f"its memory has left: {gone['moved_out'] / MIB:g} MiB")
        open(go, "w", encoding="utf-8").close()
        check(stays.answer() == "ok", "the rows beside, before and after")
        stays.end()
        other.end()


def given_back(build):
    """With its last context a device's 2 MiB go."""
    with Card(build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
        told = Told(card)
        check(told.say("zero 4") == "ok", "4 MiB")
        entry = told.until(lambda entry: entry["pinned"] == 2 * MIB, 20)
        check(entry["pinned"] == 2 * MIB and told.say("leave") == "ok", "2 MiB stay, until the context has ended")
        entry = told.until(lambda entry: entry["pinned"] == 0, 20)
        said = subprocess.run([os.path.join(build, "tests", "simcuda", "simcuda-card")], env=card.environment, capture_output=True,
                              text=True, check=True).stdout
        check(entry["pinned"] == 0 and re.search(rf"pid {told.child.pid} +moves +0 B ", said), f"nothing stays: {said}")
        told.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    build = parser.parse_args().build
    reads(build)
    writes(build)
    without(build)
    moved(build)
    given_back(build)
    sys.exit(1 if failures else 0)


main()
