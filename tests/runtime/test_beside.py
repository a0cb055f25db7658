#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that read beside their arrays, on a simulated card (tests/gpu/beside.c). test_beside.py --build DIR"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, BuildTest, Card, Told, check, main  # noqa: E402  (beside this file)

ILLEGAL_ADDRESS = "700"
BLOCKS = ("large", "small", "pitched", "ordered")
ACCESSES = [f"{block} {side}" for block in BLOCKS for side in ("below", "above")]


def answers(build, what, **more):
    with Card(build, memory="128MiB", **more) as card:
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "beside_linked"), what, "16"])
        said = dict(line.split(": ") for line in out.splitlines())
        check(code == 0 and err == "" and list(said) == ACCESSES, f"{what} {more}: exit {code}, {len(said)} accesses: {err}")
        return said


class Beside(BuildTest):
    def test_reads(self):
        """Every row beside can be read, as without gpushare, where allocations lie side by side (below the first one is nothing)."""
        plain, ours = answers(self.build, "read", GPUSHARE_DISABLE="1"), answers(self.build, "read")
        check(plain.pop("large below") == ILLEGAL_ADDRESS and set(plain.values()) == {"0"}, f"without gpushare: {plain}")
        check(set(ours.values()) == {"0"}, f"every row beside can be read: {ours}")

    def test_writes(self):
        """What is beside can only be read."""
        ours = answers(self.build, "write")
        for access in ACCESSES:
            if access != "small above":  # another piece of the same slab
                check(ours[access] == ILLEGAL_ADDRESS, f"written {access}: {ours[access]}")

    def test_without(self):
        """A driver that knows no memory for reading only: it can be read all the same. None at all there: programs run."""
        ours = answers(self.build, "read", SIMCUDA_READ_ONLY="0")
        check(set(ours.values()) == {"0"}, f"only read and write: {ours}")
        ours = answers(self.build, "read", SIMCUDA_READ_ONLY="never")
        check({ours[f"{block} {side}"] for block in ("large", "pitched") for side in ("below", "above")} == {ILLEGAL_ADDRESS},
              f"none at all: {ours}")

    def test_moved(self):
        """The rows can be read before and after the array was moved out and in; what lies there counts as pinned, once."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
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

    def test_given_back(self):
        """With its last context a device's 2 MiB go."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told = Told(card)
            check(told.say("zero 4") == "ok", "4 MiB")
            entry = told.until(lambda entry: entry["pinned"] == 2 * MIB)
            check(entry["pinned"] == 2 * MIB and told.say("leave") == "ok", "2 MiB stay, until the context has ended")
            entry = told.until(lambda entry: entry["pinned"] == 0)
            said = subprocess.run([os.path.join(self.build, "tests", "simcuda", "simcuda-card")], env=card.environment, capture_output=True,
                                  text=True, check=True).stdout
            check(entry["pinned"] == 0 and re.search(rf"pid {told.child.pid} +moves +0 B ", said), f"nothing stays: {said}")
            told.end()


if __name__ == "__main__":
    main()
