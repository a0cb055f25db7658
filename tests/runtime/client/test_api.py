#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The functions of gpushare.h on the simulated card: what a discard saves and what it never loses, being idle, suspending oneself,
the callback before memory leaves, hostile arguments, threads, children; the library absent; the Python module.

test_api.py --build DIR"""
import os
import random
import shutil
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from card import MIB, OPTIONS, Card, Told, main, sanitized, wait_for  # noqa: E402  (in the folder above)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BLOCK = 2  # MiB: what is left out as a whole


class Program(Told):
    def __init__(self, card, **more):
        super().__init__(card, command=("wishes",), **more)

    def number(self, command):
        return int(self.say(command))


class OnCard(unittest.TestCase):
    """A card for each test, with room for one of two programs."""
    environment = {}

    def setUp(self):
        self.card = Card(OPTIONS.build, memory="128MiB", **Told.SMALL_CONTEXTS, **self.environment)
        self.addCleanup(self.card.__exit__)
        self.told, self.other = Program(self.card), Told(self.card)

    def moved(self, name="moved_out"):
        return self.told.entry()[name]

    def out(self):
        """All memory of the program leaves: how many MiB were copied."""
        before = self.moved()
        gone = self.told.make_room(self.other)
        return (gone["moved_out"] - before) // MIB

    def settled(self, mib):
        """All of the program's memory is there, and the daemon has heard so."""
        self.told.until(lambda entry: entry["resident"] >= mib * MIB and entry["demand"] >= mib * MIB)


class Discard(OnCard):
    def test_discarded_memory_is_not_copied_and_comes_back_as_zeros(self):
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.settled(80)
        self.assertEqual(self.told.number("discard 0 0 81920"), 80 * MIB)
        self.assertEqual(self.out(), 0)
        self.assertEqual(self.told.say("read 0 0 80"), "0")
        self.assertEqual(self.moved("moved_in"), 0)

    def test_part_of_it_is_rounded_inwards_and_the_rest_is_kept(self):
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.settled(80)
        self.assertEqual(self.told.number("discard 0 1024 79872"), 76 * MIB)  # 1 MiB to 79 MiB
        self.assertEqual(self.out(), 4)
        self.assertEqual(self.told.say("read 0 0 2"), "1")
        self.assertEqual(self.told.say("read 0 78 2"), "1")
        self.assertEqual(self.told.say("read 0 2 76"), "0")

    def test_kept_again_nothing_of_that_is_lost(self):
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.settled(80)
        self.assertEqual(self.told.number("discard 0 0 81920"), 80 * MIB)
        self.assertEqual(self.told.number("keep 0 10241 1"), 0)  # a byte of the block at 10 MiB
        self.assertEqual(self.out(), BLOCK)
        self.assertEqual(self.told.say("read 0 10 2"), "1")

    def test_any_submission_ends_it(self):
        self.assertEqual(self.told.say("alloc 60"), "0")
        self.assertEqual(self.told.say("alloc 4"), "1")
        self.settled(64)
        self.assertEqual(self.told.number("discard 0 0 61440"), 60 * MIB)
        self.assertEqual(self.told.say("fill 1 0 4 9"), "ok")  # of other memory: nobody can know
        self.assertEqual(self.out(), 64)
        self.assertEqual(self.told.say("read 0 0 60"), "1")
        self.assertEqual(self.told.say("read 1 0 4"), "9")

    def test_written_after_it_every_byte_is_there(self):
        self.assertEqual(self.told.say("alloc 60"), "0")
        self.settled(60)
        self.assertEqual(self.told.number("discard 0 0 61440"), 60 * MIB)
        self.assertEqual(self.told.say("fill 0 5 7 77"), "ok")
        self.out()
        self.assertEqual(self.told.say("read 0 5 7"), "77")

    def test_while_it_is_out_and_again_and_again(self):
        """Contents that were lost once stay zeros; what is written later travels as ever."""
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.settled(80)
        self.told.say("discard 0 0 40960")
        self.assertEqual(self.out(), 40)
        self.assertEqual(self.told.number("discard 0 0 81920"), 80 * MIB)  # out already: to no effect
        self.assertEqual(self.told.say("read 0 40 40"), "1")
        self.assertEqual(self.told.say("read 0 0 40"), "0")
        self.settled(80)
        self.out()
        self.assertEqual(self.told.say("fill 0 6 10 5"), "ok")
        self.settled(80)
        self.out()
        self.assertEqual(self.told.say("read 0 6 10"), "5")
        self.assertEqual(self.told.say("read 0 0 6"), "0")
        self.assertEqual(self.told.say("read 0 16 24"), "0")
        self.assertEqual(self.told.say("read 0 40 40"), "1")

    def test_random_discards_lose_nothing_that_was_written(self):
        seed = int(os.environ.get("GS_SEED", str(time.time_ns() % 1000000)))
        dice = random.Random(seed)
        blocks = 20
        self.assertEqual(self.told.say(f"alloc {blocks * BLOCK}"), "0")
        model = [{1}] * blocks  # the values that each block may have
        for _ in range(6):
            for _ in range(dice.randrange(4)):
                first = dice.randrange(blocks)
                count = dice.randrange(1, blocks - first + 1)
                value = dice.randrange(1, 250)
                self.told.say(f"fill 0 {first * BLOCK} {count * BLOCK} {value}")
                model[first:first + count] = [{value}] * count
            for _ in range(dice.randrange(3)):
                first = dice.randrange(blocks)
                count = dice.randrange(1, blocks - first + 1)
                self.told.number(f"discard 0 {first * BLOCK * 1024} {count * BLOCK * 1024}")
                model[first:first + count] = [may | {0} for may in model[first:first + count]]
            if dice.random() < 0.5:
                self.settled(blocks * BLOCK)
                self.out()
            for i, may in enumerate(model):
                value = self.told.say(f"read 0 {i * BLOCK} {BLOCK}")
                self.assertIn(value, {str(v) for v in may}, f"block {i}, seed {seed}")
                model[i] = {int(value)}


class DiscardCopied(Discard):
    """The same without the kernel that hashes: everything that is kept is copied each time."""
    environment = {"SIMCUDA_BUILTIN": "0"}


class Calls(OnCard):
    def test_hostile_arguments_are_errors(self):
        self.assertEqual(self.told.say("bad"), "ok")
        self.told.end()

    def test_threads_call_everything(self):
        self.assertEqual(self.told.say("threads"), "ok")
        self.told.end()

    def test_a_child_begins_without_what_its_parent_said(self):
        self.assertEqual(self.told.say("alloc 8"), "0")
        self.assertEqual(self.told.say("pressure hang"), "0")
        self.assertEqual(self.told.say("suspend"), "0")
        self.assertEqual(self.told.say("fork"), "ok")
        self.assertEqual(self.told.say("resume"), "0")
        self.assertEqual(self.told.say("read 0 0 8"), "1")
        self.told.end()

    def test_idle_gives_the_turn_away_at_once(self):
        for setting in ("quantum", "idle"):
            self.card.set(setting, "3600000")  # nothing else would end the turn
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.assertEqual(self.told.say("idle"), "0")
        answer = self.other.say("alloc 80")
        self.assertEqual(answer, "ok")
        self.assertEqual(self.other.say("touch"), "ok")

    def test_a_program_suspends_itself_and_goes_on(self):
        self.assertEqual(self.told.say("alloc 20"), "0")
        self.assertEqual(self.told.say("suspend"), "0")
        gone = self.told.until(lambda entry: entry["paused"] and entry["resident"] == 0)
        self.assertTrue(gone["paused"] and gone["resident"] == 0, gone)
        self.assertEqual(self.told.say("begin"), "ok")
        self.told.until(lambda entry: entry["state"] == "paused")
        self.assertEqual(self.told.say("begun"), "no")
        self.assertEqual(self.told.say("resume"), "0")
        self.assertTrue(wait_for(lambda: self.told.say("begun") == "yes"))
        self.assertEqual(self.told.say("read 0 1 19"), "1")

    def test_suspended_without_a_daemon_its_memory_leaves_with_the_next_one(self):
        self.assertEqual(self.told.say("alloc 20"), "0")
        self.told.until(lambda entry: entry["resident"] != 0)
        self.card.stop_daemon()
        self.assertEqual(self.told.say("suspend"), "0")
        self.card.start_daemon()
        gone = self.told.until(lambda entry: entry["paused"] and entry["demand"] != 0 and entry["resident"] == 0)
        self.assertEqual(gone["resident"], 0, gone)

    def test_suspended_it_stays_so_with_the_next_daemon_and_gpusharectl_ends_it(self):
        self.assertEqual(self.told.say("alloc 20"), "0")
        self.assertEqual(self.told.say("suspend"), "0")
        self.told.until(lambda entry: entry["paused"] and entry["resident"] == 0)
        self.card.stop_daemon()
        self.card.start_daemon()
        again = self.told.until(lambda entry: entry["paused"])
        self.assertTrue(again["paused"], again)
        ctl = os.path.join(OPTIONS.build, "lockd", "gpusharectl")
        subprocess.run([ctl, "--socket", self.card.socket, "resume", str(self.told.child.pid)], env=self.card.environment,
                       check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.told.say("read 0 0 20"), "1")

    def test_resuming_does_not_end_what_a_person_paused(self):
        self.assertEqual(self.told.say("alloc 20"), "0")
        ctl = os.path.join(OPTIONS.build, "lockd", "gpusharectl")
        self.told.until(lambda entry: entry["demand"] != 0)
        subprocess.run([ctl, "--socket", self.card.socket, "pause", str(self.told.child.pid)], env=self.card.environment,
                       check=True, stdout=subprocess.DEVNULL)
        for word in ("suspend", "resume"):
            self.assertEqual(self.told.say(word), "0")
        gone = self.told.until(lambda entry: entry["paused"])
        time.sleep(0.2)  # it would come late, if at all
        self.assertTrue(self.told.entry()["paused"], gone)


class Pressure(OnCard):
    """The callback frees memory before it moves; whatever it does, the other program gets its turn."""

    def free_in_time(self):
        """One round: the program has 40 MiB more, which its callback frees when the other one needs the room. Was it called in time?"""
        called = self.told.number("called")
        demand = self.told.entry()["demand"]
        block = self.told.say("alloc 40")
        self.told.until(lambda entry: entry["demand"] >= demand + 40 * MIB)
        self.assertEqual(self.told.say(f"pressure free {block}"), "0")
        self.assertEqual(self.other.say("alloc 100"), "ok")
        in_time = self.told.number("called") > called
        if in_time:
            self.told.until(lambda entry: entry["demand"] == demand)
        else:
            self.assertEqual(self.told.say("pressure none"), "0")
            self.assertEqual(self.told.say(f"free {block}"), "0")
        self.assertEqual(self.other.say("free 0"), "ok")
        return in_time

    def test_what_the_callback_frees_does_not_move(self):
        self.assertEqual(self.told.say("alloc 20"), "0")
        self.settled(20)
        self.assertTrue(any(self.free_in_time() for _ in range(20)), "the callback was never called in 20 rounds")
        self.assertEqual(self.told.say("read 0 0 20"), "1")

    def test_a_callback_that_hangs_holds_up_nobody(self):
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.assertEqual(self.told.say("pressure hang"), "0")
        for _ in range(2):  # it is not called again before it has returned
            self.assertEqual(self.other.say("alloc 80"), "ok")
            self.assertEqual(self.other.say("free 0"), "ok")
            self.assertEqual(self.told.say("read 0 0 80"), "1")
        self.assertIn(self.told.say("called"), ("0", "1"))

    def test_a_callback_that_calls_cuda_for_ever_holds_up_nobody(self):
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.assertEqual(self.told.say("pressure call"), "0")
        for _ in range(2):
            self.assertEqual(self.other.say("alloc 80"), "ok")
            self.assertEqual(self.other.say("touch"), "ok")
            self.assertEqual(self.other.say("free 0"), "ok")
        self.assertIn(self.told.say("called"), ("0", "1"))
        self.assertEqual(self.told.say("read 0 0 80"), "1")

    def test_without_a_callback_nothing_is_called(self):
        self.assertEqual(self.told.say("alloc 80"), "0")
        self.assertEqual(self.told.say("pressure free 0"), "0")
        self.assertEqual(self.told.say("pressure none"), "0")
        self.assertEqual(self.other.say("alloc 80"), "ok")
        self.assertEqual(self.told.say("called"), "0")


class Absent(unittest.TestCase):
    def setUp(self):
        self.card = Card(OPTIONS.build, daemon=False)
        self.addCleanup(self.card.__exit__)
        self.program = os.path.join(self.card.folder, "absent")
        shutil.copy2(os.path.join(OPTIONS.build, "tests", "runtime", "absent"), self.program)

    def test_without_the_library_every_call_is_no_such_function(self):
        self.assertEqual(self.card.run([self.program]), (0, "0 -38\n", ""))

    def test_patched_it_finds_them(self):
        if sanitized(OPTIONS.build):
            self.skipTest("a sanitizer's library lives in the programs")
        subprocess.run([os.path.join(OPTIONS.build, "rewriter", "gpushare-patch"), "--any", self.program], check=True,
                       stdout=subprocess.DEVNULL, env=self.card.environment)
        self.assertEqual(self.card.run([self.program]), (0, "1 -14\n", ""))

    def test_disabled_they_say_so(self):
        if sanitized(OPTIONS.build):
            self.skipTest("a sanitizer's library lives in the programs")
        subprocess.run([os.path.join(OPTIONS.build, "rewriter", "gpushare-patch"), "--any", self.program], check=True,
                       stdout=subprocess.DEVNULL, env=self.card.environment)
        self.assertEqual(self.card.run([self.program], GPUSHARE_DISABLE="1"), (0, "1 -38\n", ""))


class Python(unittest.TestCase):
    """The module, in an interpreter with the library and in one without."""
    SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from gpushare_patch import api
print(api.available(), api.set_class("batch"), api.idle(), api.on_pressure(print), api.on_pressure(None), api.suspend(), api.resume())
for call in (lambda: api.set_class("fast"), lambda: api.discard("x"), lambda: api.discard(5), lambda: api.discard(-1, 1),
             lambda: api.on_pressure(5), lambda: api.discard(0, 1), lambda: api.keep(4096, 1 << 62)):
    try:
        print(call())
    except (ValueError, TypeError, OSError) as error:
        print(type(error).__name__)
class Tensor:
    def data_ptr(self): return 1 << 40
    def is_contiguous(self): return False
try:
    api.discard(Tensor())
except ValueError:
    print("not contiguous")
"""
    WRONG = ["ValueError", "TypeError", "TypeError", "ValueError", "TypeError"]

    def run_script(self, **environment):
        with Card(OPTIONS.build, daemon=False, **environment) as card:
            code, out, err = card.run([sys.executable, "-c", self.SCRIPT, os.path.join(ROOT, "python")])
        self.assertEqual((code, err), (0, ""))
        return out.splitlines()

    def test_without_the_library_nothing_happens(self):
        self.assertEqual(self.run_script(), ["False False False False False False False", *self.WRONG, "0", "False", "not contiguous"])

    def test_with_it_every_call_arrives(self):
        if sanitized(OPTIONS.build):
            self.skipTest("a sanitizer's library lives in the programs")
        lines = self.run_script(LD_PRELOAD=os.path.join(OPTIONS.build, "runtime", "libgpushare.so.1"))
        self.assertEqual(lines, ["True True True True True True True", *self.WRONG, "OSError", "OSError", "not contiguous"])


main()
