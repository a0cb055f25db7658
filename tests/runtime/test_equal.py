#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs with the same bytes: memory that is handed over and holds what its next owner lacks is not copied. Every byte is checked.
test_equal.py --build DIR [--rounds N] [--first SEED]

--rounds: of test_rounds, in which programs change and share bytes at random and are killed at random moments, as is the daemon. 1000
rounds take half an hour."""
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, OPTIONS, PATIENCE, BuildTest, Card, Told, check, main  # noqa: E402  (beside this file)

SIZES = [20] * 5  # MiB: two programs of that do not fit on the card


class Pair(Card):
    """Two programs on a card that is too small for both. A program's contents follow from the sizes that it allocates one after the
    other, so those of the two are the same where they allocate the same."""

    def __init__(self, build, how=("alloc", "alloc"), **environment):
        super().__init__(build, memory="128MiB", options=["--idle", "5"], **Told.SMALL_CONTEXTS, **environment)
        self.how = how
        self.both = []

    def __enter__(self):
        super().__enter__()
        self.both = [Told(self) for _ in range(2)]
        for told, how in zip(self.both, self.how):
            for mib in SIZES:
                self.ok(told, f"{how} {mib}")
        return self

    @staticmethod
    def ok(told, command):
        answer = told.say(command)
        if answer != "ok":
            check(False, f"{command}: {answer}")

    def replace(self, told, how):
        """Kills the program and starts another in its place; bytes that the killed program had found."""
        entry = told.entry()
        told.child.kill()
        told.child.wait()
        self.both[self.both.index(told)] = fresh = Told(self)
        for mib in SIZES:
            self.ok(fresh, f"{how} {mib}")
        return entry["saved_equal"] if entry else 0

    def turn(self, told, change):
        """Bytes copied in, and found in memory of the other program, for one turn, in MiB. `check` reads all that is there."""
        self.ok(self.both[told is self.both[0]], "touch")  # so that it has left
        before = told.until(lambda entry: entry["resident"] < entry["demand"])
        if change:
            self.ok(told, change)
        self.ok(told, "check")
        after = told.until(lambda entry: entry["resident"] == entry["demand"]
                           and entry["moved_in"] + entry["saved_equal"] + entry["saved_zero"]
                           > before["moved_in"] + before["saved_equal"] + before["saved_zero"])
        return tuple((after[key] - before[key]) // MIB for key in ("moved_in", "saved_equal"))

    def until(self, what, true, change=None):
        """Turns to and fro until true(copied, equal): what a busy machine passes on too late is released instead."""
        end, seen = time.monotonic() + PATIENCE, []
        while time.monotonic() < end:
            for told in self.both:
                seen.append(self.turn(told, change))
                if len(seen) > 4 and true(*seen[-1]):
                    print(f"{what}: {seen[-1][0]} MiB copied, {seen[-1][1]} MiB found, in turn {len(seen)}", flush=True)
                    return
        check(False, f"{what}: {seen}")


class Equal(BuildTest):
    def test_same_contents(self):
        with Pair(self.build) as pair:
            pair.until("the same", lambda copied, equal: copied == 0 and equal >= 60)
            last = pair.both[0].entry()
            check(last["saved"] == last["saved_equal"] + last["saved_zero"] + last["saved_unchanged"] and last["saved_unchanged"] > 0,
                  f"all of it is told: {last}")

    def test_one_byte(self):
        """A block of 2 MiB with another byte is copied, and the rest is not."""
        with Pair(self.build) as pair:
            pair.ok(pair.both[0], "change 2 9")
            pair.until("one byte", lambda copied, equal: equal >= 60 and copied > 0 and copied % 20 == 2)

    def test_bytes_that_change(self):
        with Pair(self.build) as pair:
            pair.until("changes", lambda copied, equal: equal >= 20 and copied > 0, "change 1 3")

    def test_other_places(self):
        """The first of the one is missing in the other, which has another one at the end."""
        with Pair(self.build) as pair:
            pair.ok(pair.both[1], "alloc 20")
            pair.ok(pair.both[1], "free 0")
            pair.until("other places", lambda copied, equal: equal >= 60)

    def test_nothing_in_common(self):
        """What is handed over is looked at less and less, and used all the same."""
        with Pair(self.build) as pair:
            for number in range(5):
                for at in range(0, 20, 2):
                    pair.ok(pair.both[1], f"change {number} {at}")
            pair.until("nothing", lambda copied, equal: copied >= 60 and equal == 0)

    def test_own_memory(self):
        """Memory of cuMemCreate goes from program to program as well, also to memory of cuMemAlloc and back; and what has come may be
        exported by its new owner."""
        for how in (("export", "export"), ("export", "alloc")):
            with Pair(self.build, how) as pair:
                pair.until(f"memory of {how}", lambda copied, equal: equal >= 60)
                pair.ok(pair.both[0], "touch")
                pair.ok(pair.both[0], "bare 1")
                pair.ok(pair.both[0], "check")

    def test_rounds(self):
        """Whatever a program finds in memory of another, and whoever is killed meanwhile: its own bytes stay right."""
        dice, found = random.Random(OPTIONS.first), 0
        with Pair(self.build, ("alloc", "export")) as pair:
            for _ in range(OPTIONS.rounds):
                for told in dice.sample(pair.both, 2):
                    what = dice.random()
                    if what < 0.4:
                        pair.ok(told, f"change {dice.randrange(5)} {dice.randrange(20)}")
                    elif what < 0.5:
                        pair.ok(told, f"clear {dice.randrange(5)} {dice.randrange(4) * 4} 4")
                    elif what < 0.6:  # killed while its memory comes or goes, or that of the other
                        told.tell("check")
                        time.sleep(dice.random() * 0.05)
                        found += pair.replace(told, dice.choice(["alloc", "export"]))
                    elif what < 0.65:
                        told.tell("check")
                        time.sleep(dice.random() * 0.05)
                        pair.stop_daemon(signal.SIGKILL)
                        pair.start_daemon()
                        check(told.answer() == "ok", "every byte, with the daemon killed meanwhile")
                    else:
                        pair.ok(told, "check")
            found += sum((told.entry() or {"saved_equal": 0})["saved_equal"] for told in pair.both)
            for told in pair.both:
                pair.ok(told, "check")
        print(f"{OPTIONS.rounds} rounds, {found // MIB} MiB found in memory of others", flush=True)
        check(found > 0, "some of it was in memory of others")

    def test_without_hashes(self):
        with Pair(self.build, SIMCUDA_BUILTIN="0") as pair:
            pair.until("no hashes", lambda copied, equal: copied >= 60 and equal == 0)


if __name__ == "__main__":
    main(rounds=12, first=1)
