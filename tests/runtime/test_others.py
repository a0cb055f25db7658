#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who else is in the process: a library with a dlsym of its own, another libgpushare. test_others.py --build DIR"""
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import BuildTest, Card, check, main  # noqa: E402  (beside this file)


def built(build, name):
    return os.path.join(build, "tests", "runtime", name)


def patched(build, folder, file, name, *words):
    copy = os.path.join(folder, name)
    subprocess.run([os.path.join(build, "rewriter", "gpushare-patch"), "-q", "--any", *words, "-o", copy, file], check=True)
    return copy


def hooked(build, program, library, preload, below):
    """The program gets the interposer's functions, which call what they find behind themselves."""
    stats = {}
    with Card(build) as card:
        for others, name in (("libcuda", "plain"), ("libgpushare", "mine")):
            file = built(build, program)
            path = os.path.join(card.folder, "host_program-" + name)
            if others == "libcuda":
                shutil.copy(file, path)
            else:
                patched(build, card.folder, file, os.path.basename(path))
            stats[name] = os.path.join(card.folder, name)
            more = {"LD_PRELOAD": built(build, library)} if preload else {}
            code, out, err = card.run([path, "hooked", below if name == "mine" else "libcuda"], HOST_OTHERS_FROM=others,
                                      GPUSHARE_STATS=stats[name],
                                      LD_LIBRARY_PATH=card.environment["LD_LIBRARY_PATH"] + ":" + built(build, ""), **more)
            check(code == 0 and out + err == "", f"{program}, {library}, {name}: exit {code}: {out}{err}")
        with open(stats["mine"], encoding="utf-8") as file:
            check(json.load(file)["gated_calls"] > 0, f"{program}, {library}: the rest goes through libgpushare")


def two_copies(build, card):
    """Two libgpushare.so.1 as after a move or an upgrade: their paths."""
    made = []
    for name in ("first", "second"):
        os.mkdir(os.path.join(card.folder, name))
        made.append(os.path.join(card.folder, name, "libgpushare.so.1"))
        shutil.copy(os.path.join(build, "runtime", "libgpushare.so.1"), made[-1])
    return made


def gated_calls(file):
    with open(file, encoding="utf-8") as stats:
        return json.load(stats)["gated_calls"]


def copies(build, program_too):
    """Whoever is first works for both; nobody says anything."""
    with Card(build) as card:
        first, second = two_copies(build, card)
        guests = [patched(build, card.folder, built(build, "libguest.so"), f"guest{i}.so", "--runtime", copy)
                  for i, copy in enumerate((first, second))]
        program = built(build, "host_program")
        more = {"GPUSHARE_STATS": os.path.join(card.folder, "stats")}
        if program_too:  # the second copy comes with a library of the program's start
            program = patched(build, card.folder, program, "host_program-first", "--runtime", first)
            more["LD_PRELOAD"] = guests[1]
        code, out, err = card.run([program, "guests"] + guests, **more)
        what = f"two copies, program {'too' if program_too else 'not patched'}"
        check(code == 0 and out + err == "", f"{what}: exit {code}: {out}{err}")
        calls = gated_calls(more["GPUSHARE_STATS"])
        # one that meets a gate which is just being closed steps in twice; through both copies it would be 48
        check(24 <= calls < 48, f"{what}: {calls} of 24 gated calls went through the first")
        notes = [note["text"] for note in card.status().get("notes", [])]
        # the program has calls of its own, which go past where it is not patched
        wanted = [] if program_too else ["partly covered, memory not moved: the program itself calls the driver past gpushare; patch it "
                                         "with gpushare-patch"]
        check(notes == wanted, f"{what}: the notes: {notes}")


class Others(BuildTest):
    def test_comes_back(self):
        """One that would lead each question back to us is left out, as if it were not there: no loop."""
        with Card(self.build) as card:
            program = patched(self.build, card.folder, built(self.build, "host_program"), "host_program-mine")
            stats = os.path.join(card.folder, "stats")
            code, out, err = card.run([program, "alone"], GPUSHARE_STATS=stats,
                                      LD_PRELOAD=built(self.build, "libinterposer_comes_back.so"))
            check(code == 0 and out + err == "", f"it comes back: exit {code}: {out}{err}")
            check(gated_calls(stats) > 0, "and all goes through libgpushare")

    def test_preloaded(self):
        hooked(self.build, "host_program", "libinterposer.so", True, "libgpushare")

    def test_linked(self):
        hooked(self.build, "host_program_hooked", "libinterposer_linked.so", False, "libcuda")

    def test_two_copies_the_program_too(self):
        copies(self.build, True)

    def test_two_copies(self):
        copies(self.build, False)


if __name__ == "__main__":
    main()
