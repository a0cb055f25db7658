#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that has no host memory for what must leave the card: GPUSHARE_SPILL, and what happens without room there.
test_spill.py --build DIR"""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import MIB, BuildTest, Card, Told, check, main, wait_for  # noqa: E402  (in the folder above)

BLOCKS = 6  # of 10 MiB
EDGE = 2 * MIB  # what every program holds for what lies beside its ranges


def spill_bytes(told, folder):
    """What the files that the program has open in the folder, all without a name, have on the disk."""
    total = 0
    base = f"/proc/{told.child.pid}/fd"
    for fd in os.listdir(base):
        try:
            path = os.readlink(f"{base}/{fd}")
            if path.startswith(folder + "/") and path.endswith("(deleted)"):
                total += os.stat(f"{base}/{fd}").st_blocks * 512
        except OSError:
            continue
    return total


def begin(card, folder):
    """Two programs; the first has 60 MiB on the card and next to no host memory any more."""
    told, other = Told(card, GPUSHARE_SPILL=folder), Told(card)
    check(told.say("alloc 10") == "ok", "10 MiB")
    told.make_room(other)  # now it has all that it makes when memory first moves
    for _ in range(BLOCKS - 1):
        check(told.say("alloc 10") == "ok", "10 MiB")
    check(told.say("limit 14") == "ok", "little memory")  # a block more, at most
    return told, other


def round_trip(told, other, text):
    gone = told.make_room(other)
    check(gone["on_host"] == BLOCKS * 10 * MIB, f"{text}: everything has left")
    return gone


def right(build, folder, gone_meanwhile=False):
    """Every byte comes back, unchanged ones do not go twice, what is freed leaves the disk, nothing is left behind."""
    with Card(build, memory="96MiB", **Told.SMALL_CONTEXTS) as card:
        told, other = begin(card, folder)
        first = round_trip(told, other, folder)
        used = spill_bytes(told, folder)
        check(20 * MIB <= used <= (BLOCKS * 10 + 1) * MIB, f"{used / MIB:g} MiB are in the file")
        check(os.listdir(folder) == [], "it has no name")
        if gone_meanwhile:
            os.rmdir(folder)
        check(told.say("check") == "ok", "every byte")
        second = round_trip(told, other, "again")
        check(second["moved_out"] == first["moved_out"], f"nothing has changed: {(second['moved_out'] - first['moved_out']) / MIB:g} of 0 MiB went out")
        for block in range(BLOCKS):
            check(told.say(f"change {block} {block}") == "ok", f"a byte of block {block}")
        third = round_trip(told, other, "changed")
        check(third["moved_out"] - second["moved_out"] == BLOCKS * 2 * MIB, f"changed: {(third['moved_out'] - second['moved_out']) / MIB:g} of {BLOCKS * 2} MiB went out")
        check(told.say("check") == "ok", "every byte")
        for block in range(BLOCKS):
            check(told.say(f"free {block}") == "ok", f"free {block}")
        check(wait_for(lambda: spill_bytes(told, folder) == 0), "what is freed leaves the disk")
        told.end()
        other.end()


def killed(build, folder):
    """Nothing is left of a program that was killed."""
    with Card(build, memory="96MiB", **Told.SMALL_CONTEXTS) as card:
        told, other = begin(card, folder)
        round_trip(told, other, "before kill -9")
        told.child.kill()
        told.child.wait()
        check(os.listdir(folder) == [], "the folder is empty")
        other.end()


def no_room(build, folder, disk, said):
    """Nowhere to go: the memory stays on the card and good, and that is said, once; others get none of what it takes: they are refused at
    once if that was found when it was to leave, and wait if its limits say so before (the program may end meanwhile; test_full.py has the
    end of such a wait)."""
    with Card(build, memory="96MiB", **Told.SMALL_CONTEXTS) as card:
        told, other = begin(card, folder)
        if disk:
            check(told.say("disk 16") == "ok", "files of 16 MiB at most")  # as a full disk: one block, then no more
        all_of_it = other.ask_for_all()
        found = "pinned" if disk else "stays"
        entry = told.until(lambda entry: entry[found] > EDGE)
        check(entry["demand"] + entry["pinned"] == BLOCKS * 10 * MIB + EDGE and entry[found] > EDGE, f"it stays: {entry}")
        third = Told(card)
        answer = third.say(f"zero {all_of_it}", timeout=50 if disk else 3)  # a minute is the bound (GS_SHORT_LIMIT_NS)
        check(answer == "error 2" or (answer == "no answer" and not disk), f"who asks for more than is left: {answer}")
        for child in (third.child, other.child):
            child.kill()
            child.wait()
        if disk:
            check(told.say("disk 0") == "ok", "files of any size")
        check(told.say("check") == "ok", "every byte")
        err = told.end(silent=False)
        check(err.count("GPUSHARE_SPILL") == 1 and err.count("\n") == 1 and said in err, f"it said: {err!r}")


class Spill(BuildTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gs-spill-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_right(self):
        right(self.build, self.folder)

    def test_right_without_direct_io(self):
        in_memory = tempfile.mkdtemp(prefix="gs-spill-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, in_memory, ignore_errors=True)
        right(self.build, in_memory, gone_meanwhile=True)

    def test_killed(self):
        killed(self.build, self.folder)

    def test_full_disk(self):
        no_room(self.build, self.folder, True, "no room for")

    def test_no_folder(self):
        no_room(self.build, self.folder + "/none", False, "No such file or directory")


if __name__ == "__main__":
    main()
