#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Managed memory of programs has turns: on a simulated card that charges for faults and pushes out pages. test_managed.py --build DIR

managed.c is the program. What the pair costs is counted in pages that were pushed out and faults, which a busy machine does not
change; the times are only printed.
"""
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from card import MIB, PATIENCE, Card, Told  # noqa: E402

BUILD = ""
COSTS = {"SIMCUDA_FAULT_GBPS": "3", "SIMCUDA_PCIE_GBPS": "25", "SIMCUDA_KERNEL_NS": "20000000", "SIMCUDA_POISON": "0",
         **Told.SMALL_CONTEXTS}
ROUNDS = 60
BOTH = ("--quantum", "1000")


def program(*words):
    return [os.path.join(BUILD, "tests", "runtime", "managed"), *words]


def told(card, **more):
    return Told(card, command=["managed", "told"], **more)


class Pair(unittest.TestCase):
    """Two programs of 0.7 of the card each."""

    def pair(self, together, **more):
        """Runs two; their seconds, faults, pages pushed out."""
        with Card(BUILD, memory="256MiB", options=BOTH, **COSTS) as card:
            stats = [os.path.join(card.folder, f"stats{i}") for i in range(2)]
            began = time.monotonic()
            running = []
            for path in stats:
                child = card.start(program("work", f"{int(256 * 0.7)}MiB", str(ROUNDS)), SIMCUDA_STATS=path, **more)
                running.append(child)
                if not together:
                    child.wait(timeout=600)
            for child in running:
                _, err = child.communicate(timeout=600)
                self.assertEqual((child.returncode, err), (0, ""))
            seconds = time.monotonic() - began
            counted = []
            for path in stats:
                with open(path, encoding="utf-8") as file:
                    counted.append(json.load(file))
            return seconds, *(sum(one[what] for one in counted) for what in ("managed_faults", "managed_evicted", "managed_remote"))

    def test_two_take_turns_and_never_push_each_other_out(self):
        alone, faults_alone, _, _ = self.pair(together=False)
        turns, faults, evicted, remote = self.pair(together=True)
        wild, faults_wild, evicted_wild, _ = self.pair(together=True, GPUSHARE_DISABLE="1")
        print(f"one after the other {alone:.2f} s, {faults_alone} faults; with turns {turns:.2f} s ({turns / alone:.2f}), {faults} "
              f"faults, {evicted} pages pushed out; without {wild:.2f} s ({wild / alone:.2f}), {faults_wild} faults, "
              f"{evicted_wild} pushed out", flush=True)
        self.assertEqual(remote, 0)
        self.assertLessEqual(evicted, 10)
        self.assertGreater(evicted_wild, 500)
        self.assertLess(faults, 2 * faults_alone)  # each page once, and no more
        self.assertGreater(faults_wild, 2 * faults)


class Random(unittest.TestCase):
    """What a program is told, and every byte, is the same when its memory leaves and comes back all the time."""

    SEEDS = (1, 3)
    STEPS = "200"

    def said(self, seed, card, **more):
        return card.start([os.path.join(BUILD, "tests", "runtime", "managed_random"), str(seed), self.STEPS], **more)

    def test_answers_are_those_of_the_driver(self):
        moved = 0
        for seed in self.SEEDS:
            with self.subTest(seed=seed), Card(BUILD, memory="64MiB", SIMCUDA_FAULT_GBPS="50", **Told.SMALL_CONTEXTS) as card:
                expected = self.said(seed, card, GPUSHARE_DISABLE="1").communicate(timeout=PATIENCE)
                other = Told(card)
                self.assertEqual((other.say("zero 2"), other.say("free 0")), ("ok", "ok"))
                program = self.said(seed, card)
                while program.poll() is None:  # its answers are few: they fit into the pipe
                    if other.say(f"zero {(card.capacity() >> 20) - 2}") == "ok":
                        self.assertEqual(other.say("free 0"), "ok")
                        moved += 1
                self.assertEqual((program.returncode, program.communicate()), (0, expected))
                other.end()
        self.assertGreater(moved, 0)


class Turns(unittest.TestCase):
    def setUp(self):
        self.card = Card(BUILD, memory="64MiB", SIMCUDA_FAULT_GBPS="50", **Told.SMALL_CONTEXTS)
        self.addCleanup(self.card.__exit__)

    def test_managed_memory_is_demand_and_leaves_for_another_program(self):
        first, other = told(self.card), Told(self.card)
        self.assertEqual(first.say("alloc 24"), "ok")
        self.assertEqual(first.say("touch"), "ok")
        entry = first.until(lambda known: known["demand"] == 24 * MIB and known["resident"] == 24 * MIB)
        self.assertEqual((entry["demand"], entry["resident"]), (24 * MIB, 24 * MIB))
        first.make_room(other)
        self.assertEqual(first.say("expect 1"), "ok")  # the processor reads it where it is
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("expect 2"), "ok")
        self.assertEqual(first.say("free"), "ok")
        self.assertEqual(first.until(lambda known: known["demand"] == 0)["demand"], 0)
        other.end()
        first.end()

    def advice_and_prefetches(self, card, mib):
        first, other = told(card), Told(card)
        self.assertEqual(first.say(f"alloc {mib}"), "ok")
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("advise"), "ok")
        facts = "read-mostly 1 0 preferred -2 -1 prefetched 0 -2 accessed 0 -2"
        self.assertEqual(first.say("facts"), facts)
        first.until(lambda known: known["resident"] == known["demand"] != 0)
        first.make_room(other)
        self.assertEqual(first.say("facts"), facts)
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("facts"), facts)
        self.assertEqual(first.say("expect 2"), "ok")
        other.end()
        first.end()

    def test_advice_and_prefetches_are_as_before(self):
        self.advice_and_prefetches(self.card, 24)

    def test_advice_of_parts_larger_than_a_chunk(self):
        with Card(BUILD, memory="384MiB", SIMCUDA_FAULT_GBPS="50", **Told.SMALL_CONTEXTS) as card:
            self.advice_and_prefetches(card, 320)

    def attached(self, *commands):
        """What the program is told after these, with its memory moved in the middle, is what it was told before."""
        first, other = told(self.card), Told(self.card)
        self.assertEqual(first.say("alloc 24"), "ok")
        for command in commands:
            self.assertEqual(first.say(command), "ok")
        self.assertEqual(first.say("touch"), "ok")
        facts = "read-mostly 1 0 preferred -2 -1 prefetched 0 -2 accessed 0 -2"
        self.assertEqual(first.say("facts"), facts)
        first.until(lambda known: known["resident"] == known["demand"] != 0)
        first.make_room(other)
        self.assertEqual(first.say("facts"), facts)
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("facts"), facts)
        self.assertEqual(first.say("attach 2"), "ok")  # the driver's, but it has been moved
        self.assertEqual(first.say("facts"), facts)
        self.assertEqual(first.say("attach 1"), "ok")
        self.assertEqual(first.say("facts"), facts)
        self.assertEqual(first.say("expect 2"), "ok")
        self.assertEqual(first.say("free"), "ok")
        other.end()
        self.assertEqual(first.say("alloc 24"), "ok")  # at the same address, and nobody has said anything of it
        self.assertEqual(first.say("facts"), "read-mostly 0 0 preferred -2 -2 prefetched -2 -2 accessed -2 -2")
        first.end()

    def test_advice_outlives_an_attachment(self):
        self.attached("advise", "attach 2", "attach 1")

    def test_advice_that_was_given_during_an_attachment(self):
        self.attached("attach 2", "advise", "attach 1")

    def test_more_than_the_card_has_works_and_leaves_room_for_device_memory(self):
        first, other = told(self.card), Told(self.card)
        self.assertEqual(first.say("alloc 100"), "ok")
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("device 40"), "ok")
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("expect 2"), "ok")
        self.assertEqual(other.say("zero 40"), "ok")  # what of it is on the card leaves, counted or not
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("expect 3"), "ok")
        self.assertEqual(first.say("free"), "ok")
        other.end()
        first.end()

    def test_more_than_the_card_has_is_no_memory_of_a_stranger(self):
        """The driver removes it for the other program, which sees it in use for longer than the daemon needs to believe in strangers."""
        first, other = told(self.card), Told(self.card)
        self.assertEqual(other.say("zero 2"), "ok")
        self.assertEqual(first.say("alloc 100"), "ok")
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(other.say("free 0"), "ok")  # what is free is measured again
        time.sleep(3)
        self.assertEqual(other.say("zero 40"), "ok")
        self.assertEqual(first.say("expect 1"), "ok")
        other.end()
        first.end()

    def test_attached_to_the_host_it_is_the_drivers(self):
        first = told(self.card)
        self.assertEqual(first.say("alloc 24"), "ok")
        self.assertEqual(first.until(lambda known: known["demand"] == 24 * MIB)["demand"], 24 * MIB)
        self.assertEqual(first.say("attach 2"), "ok")
        self.assertEqual(first.until(lambda known: known["demand"] == 0)["demand"], 0)
        self.assertEqual(first.say("attach 1"), "ok")
        self.assertEqual(first.until(lambda known: known["demand"] == 24 * MIB)["demand"], 24 * MIB)
        self.assertEqual(first.say("touch"), "ok")
        self.assertEqual(first.say("expect 1"), "ok")
        self.assertEqual(first.say("free"), "ok")
        first.end()


if __name__ == "__main__":
    place = sys.argv.index("--build")
    BUILD = os.path.abspath(sys.argv[place + 1])
    del sys.argv[place:place + 2]
    unittest.main(warnings="ignore")
