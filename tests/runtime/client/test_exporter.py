#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that one program exports and others open (CUDA IPC, runtime/client/ipc.c), with every byte checked.

test_exporter.py --build DIR [--seed S] [NAME...]
"""
import os
import random
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "gpu")]
from card import MIB, OPTIONS, Card, Told, main, sanitized, wait_for  # noqa: E402
from ipc_told import Process, facts, ranks  # noqa: E402

MEMORY = "192MiB"


class Scene(Card):
    def __init__(self, *options, memory=MEMORY, **environment):
        super().__init__(OPTIONS.build, memory=memory, options=["--idle", "5", *options], **Told.SMALL_CONTEXTS, **environment)
        self.program = os.path.join(OPTIONS.build, "tests", "runtime", "ipc_linked")
        self.processes = []

    def __exit__(self, *unused):
        for process in self.processes:
            if process.child.poll() is None:
                process.kill()
        super().__exit__(*unused)

    def process(self, **more):
        self.processes.append(Process(self.program, env={**self.environment, **more}))
        return self.processes[-1]

    def figures(self, pid):
        status = self.status()
        for device in status["devices"] if status else []:
            for program in device["programs"]:
                if program["pid"] == pid:
                    return program
        return {"shared": None, "pinned": None, "resident": None}

    def gangs(self, *processes):
        """(gang, why) of each."""
        figures = [self.figures(process.pid) for process in processes]
        return [(each.get("gang", 0), each.get("gang_why")) for each in figures]

    def are_gang(self, *processes):
        gangs = self.gangs(*processes)
        return gangs[0][0] != 0 and gangs == [(gangs[0][0], "memory")] * len(processes)

    def has_shared(self, process, size):
        return wait_for(lambda: self.figures(process.pid)["shared"] == size)


class Ipc(unittest.TestCase):
    def all_is_there(self, card):
        """Nobody holds memory of the card any more."""
        for process in card.processes:
            if process.child.poll() is None:
                process.end()
        process = card.process()
        process.word("alloc 4096")
        said = []

        def takes_all():
            said[:] = process.say(f"alloc {(card.capacity() >> 20) - 4 << 20}")
            return said[0] == "ok" and process.say(f"fill {said[1]} 1") == ["ok"]
        self.assertTrue(wait_for(takes_all), said)
        self.assertEqual(process.end(), 0)

    def test_facts(self):
        """The driver's own answers, call by call."""
        plain = os.path.join(OPTIONS.build, "tests", "gpu", "ipc")
        with Scene() as card:
            ours = facts(card.program, env=card.environment)
            if sanitized(OPTIONS.build):
                return  # its pieces go by dlsym, which a sanitizer's program has of its own
            native = facts(plain, env=card.environment)
        self.assertEqual(native, ours)

    def test_pairs(self):
        for way in ("fork", "spawn"):
            for options in ((), ("--hand-over", "no")):
                with Scene(*options) as card:
                    code, out, err = card.run([card.program, "pair", way, str(70 * MIB)])
                    self.assertEqual((code, out), (0, "ok\n"), err)

    def test_ranks(self):
        with Scene() as card:
            self.assertTrue(ranks(card.program, env=card.environment))

    def test_pinned_as_long_as_open(self):
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(24 * MIB, 1)
            self.assertTrue(card.has_shared(one, 0))
            piece = two.word(f"open {handle}")
            self.assertTrue(card.has_shared(one, 24 * MIB), card.figures(one.pid))
            self.assertGreaterEqual(card.figures(one.pid)["pinned"], 24 * MIB)
            again = two.word(f"open {handle}")
            self.assertEqual(two.say(f"close {again}"), ["ok"])
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertTrue(card.has_shared(one, 0))
            self.assertEqual(one.say("check 0 1"), ["ok"])
            self.all_is_there(card)

    def test_exit_that_takes_long(self):
        """What was closed a moment before is not kept while the program ends. That asks nothing of the driver, which may wait for work."""
        with Scene() as card:
            one, two = card.process(), card.process(SIMCUDA_SLOW="cuMemUnmap:600000")
            _, handle = one.make(24 * MIB, 1)
            for _ in range(2):
                piece = two.word(f"open {handle}")
                self.assertTrue(card.has_shared(one, 24 * MIB), card.figures(one.pid))
                self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertEqual(two.say("linger"), ["ok"])
            self.assertTrue(card.has_shared(one, 0), card.figures(one.pid))
            self.assertIsNone(two.child.poll())
            self.all_is_there(card)

    def test_small_chunks(self):
        """A program with overcommit has its memory in small chunks: their descriptors take several messages."""
        with Scene() as card:
            one = card.process(GPUSHARE_OVERCOMMIT="64MiB", GPUSHARE_OVERCOMMIT_GRAIN="2MiB")
            two = card.process()
            _, handle = one.make(70 * MIB, 1)
            piece = two.word(f"open {handle}")
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            self.assertEqual(two.say(f"fill {piece} 3"), ["ok"])
            self.assertEqual(one.say("check 0 3"), ["ok"])
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertTrue(card.has_shared(one, 0))
            self.all_is_there(card)

    def test_brought_in(self):
        """Memory that is not on the card comes in for the one that opens it, and stays while others want the card."""
        for options in ((), ("--hand-over", "no")):
            with Scene(*options, memory="144MiB") as card:
                one, two = card.process(), card.process()
                _, handle = one.make(48 * MIB, 1)
                large, more = two.word(f"alloc {80 * MIB}"), two.word(f"alloc {24 * MIB}")
                two.word(f"fill {large} 2")
                two.word(f"fill {more} 2")
                self.assertTrue(wait_for(lambda: card.figures(one.pid)["resident"] < 48 * MIB))
                self.assertEqual(two.say(f"free {more}"), ["ok"])  # what stays has room for 80 MiB beside it
                piece = two.word(f"open {handle}")
                for _ in range(3):
                    self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
                    self.assertEqual(two.say(f"check {large} 2"), ["ok"])
                    self.assertEqual(one.say("check 0 1"), ["ok"])
                self.assertEqual(two.say(f"fill {piece} 3"), ["ok"])
                self.assertEqual(one.say("check 0 3"), ["ok"])
                self.assertEqual(two.say(f"close {piece}"), ["ok"])
                self.all_is_there(card)

    def test_partners_are_a_gang(self):
        """As long as one has memory of the other open, and some seconds longer; also for a daemon that comes later."""
        with Scene() as card:
            one, two, three = card.process(), card.process(), card.process()
            _, handle = one.make(4 * MIB, 1)
            three.word(f"alloc {4 * MIB}")
            self.assertEqual(two.say(f"open {'00' * 64}"), ["error", "1"])
            self.assertEqual(two.say(f"open {handle[:32]}{'00' * 48}"), ["error", "1"])
            self.assertEqual(card.gangs(one, three), [(0, None)] * 2)
            piece = two.word(f"open {handle}")
            self.assertTrue(wait_for(lambda: card.are_gang(one, two)), card.gangs(one, two))
            card.stop_daemon(9)
            card.start_daemon()
            self.assertTrue(wait_for(lambda: card.are_gang(one, two)), card.gangs(one, two))
            self.assertEqual(card.gangs(three), [(0, None)])
            again = three.word(f"open {handle}")
            self.assertTrue(wait_for(lambda: card.are_gang(one, two, three)), card.gangs(one, two, three))
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertTrue(wait_for(lambda: card.gangs(two) == [(0, None)]), card.gangs(one, two, three))
            self.assertTrue(card.are_gang(one, three))
            self.assertEqual(three.say(f"close {again}"), ["ok"])
            self.assertTrue(wait_for(lambda: card.gangs(one, three) == [(0, None)] * 2), card.gangs(one, three))
            two.word(f"open {handle}")
            self.assertTrue(wait_for(lambda: card.are_gang(one, two)), card.gangs(one, two))

    def test_groups_of_partners(self):
        """A name counts instead of what is found, and `none` leaves the program alone."""
        with Scene() as card:
            one, two = card.process(GPUSHARE_GROUP="none"), card.process()
            three, four = (card.process(GPUSHARE_GROUP="mine") for _ in range(2))
            other = card.process()
            _, handle = one.make(4 * MIB, 1)
            _, theirs = other.make(4 * MIB, 1)
            for process in (two, three, four):
                process.word(f"open {handle}")
                process.word(f"open {theirs}")
            self.assertTrue(wait_for(lambda: card.are_gang(other, two)), card.gangs(other, two))
            self.assertTrue(wait_for(lambda: card.gangs(three, four) == [(card.gangs(three)[0][0], "group")] * 2))
            self.assertEqual(card.gangs(one), [(0, None)])
            self.assertNotIn(card.gangs(three)[0][0], (0, card.gangs(two)[0][0]))

    def test_full_card(self):
        """Memory is made anew although there is no room for a copy of it: something leaves for a moment."""
        with Scene("--hand-over", "no", memory="144MiB") as card:
            one, two = card.process(), card.process()
            _, handle = one.make(70 * MIB, 1)
            large, _ = one.make(44 * MIB, 2)
            piece = two.word(f"open {handle}")
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            self.assertEqual(one.say(f"check {large} 2"), ["ok"])
            self.assertEqual(one.say("fill 0 3"), ["ok"])
            self.assertEqual(two.say(f"check {piece} 3"), ["ok"])
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.all_is_there(card)

    def test_partner_that_is_not_patched(self):
        """It gets the driver's error; a remark says what to do."""
        plain = os.path.join(OPTIONS.build, "tests", "gpu", "ipc")
        if sanitized(OPTIONS.build):
            self.skipTest("the program without gpushare is not for a sanitizer's build")
        with Scene() as card:
            one = card.process()
            _, handle = one.make(4 * MIB, 1)
            two = Process(plain, env=card.environment)
            card.processes.append(two)
            self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            self.assertTrue(wait_for(lambda: any("GPUSHARE_MEMORY=native" in note["text"] for note in card.status()["notes"])))

    def test_opened_again(self):
        """What was closed a moment ago is there at once: the exporter is not asked. It is not kept for ever."""
        with Scene() as card:
            log = os.path.join(card.folder, "exporter.log")
            one, two = card.process(GPUSHARE_LOG=log), card.process()
            _, handle = one.make(4 * MIB, 1)

            def asked():
                with open(log, encoding="utf-8") as file:
                    return file.read().count("is open in another process:")

            def opens():
                piece = two.word(f"open {handle}")
                self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
                self.assertEqual(two.say(f"close {piece}"), ["ok"])
                return asked()

            self.assertTrue(wait_for(lambda: opens() == opens()))
            self.assertTrue(card.has_shared(one, 0))
            before = asked()
            self.assertEqual(opens(), before + 1)
            self.all_is_there(card)

    def test_freed_when_it_was_closed(self):
        """What is kept for the next open is not opened any more; an allocation and a small one."""
        with Scene() as card:
            one, two = card.process(), card.process()
            for size in 3 * (4 * MIB, 64 << 10):
                piece, handle = one.make(size, 1)
                opened = two.word(f"open {handle}")
                self.assertEqual(two.say(f"close {opened}"), ["ok"])
                self.assertEqual(one.say(f"free {piece}"), ["ok"])
                self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            piece, handle = one.make(110 * MIB, 1)
            opened = two.word(f"open {handle}")
            self.assertEqual(two.say(f"close {opened}"), ["ok"])
            self.assertEqual(one.say(f"free {piece}"), ["ok"])
            piece, _ = one.make(140 * MIB, 2)  # there is no room for both
            self.assertEqual(one.say(f"check {piece} 2"), ["ok"])
            self.all_is_there(card)

    def test_opened_by_threads(self):
        """Four threads open and close the same memory, while it is freed at some time."""
        with Scene() as card:
            one, two = card.process(), card.process()
            piece, handle = one.make(4 * MIB, 1)
            self.assertEqual(two.say(f"storm {handle} 2000"), ["ok"])
            two.tell(f"storm {handle} 300000")
            time.sleep(0.1)
            self.assertEqual(one.say(f"free {piece}"), ["ok"])
            self.assertIn(two.answer(), (["ok"], ["error", "1"]))  # "ok": one of them had it open at any time
            self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            self.all_is_there(card)

    def test_killed(self):
        """Either side; and a free while it is open."""
        with Scene() as card:
            one, two, three = card.process(), card.process(), card.process()
            _, handle = one.make(24 * MIB, 1)
            piece = two.word(f"open {handle}")
            three.word(f"open {handle}")
            three.kill()
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            one.kill()
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            one, two = card.process(), two
            kept, handle = one.make(24 * MIB, 4)
            piece = two.word(f"open {handle}")
            self.assertEqual(one.say(f"free {kept}"), ["ok"])
            one.make(24 * MIB, 5)
            self.assertEqual(two.say(f"check {piece} 4"), ["ok"])
            two.kill()
            self.all_is_there(card)

    def test_freed_while_it_is_opened(self):
        """Whoever comes first: the open gets the memory or the driver's error, and nothing is counted twice."""
        dice = random.Random(OPTIONS.seed)
        with Scene("--hand-over", "no") as card:
            one, two = card.process(), card.process()
            two.word("alloc 4096")
            for round_ in range(15):
                piece, handle = one.make(24 * MIB, round_)
                two.tell(f"open {handle}")
                time.sleep(dice.random() * 0.02)
                self.assertEqual(one.say(f"free {piece}"), ["ok"])
                said = two.answer()
                if said[0] == "ok":
                    self.assertEqual(two.say(f"check {said[1]} {round_}"), ["ok"])
                    self.assertEqual(two.say(f"close {said[1]}"), ["ok"])
                else:
                    self.assertEqual(said, ["error", "1"])
            self.assertTrue(wait_for(lambda: self.counted(card, one) == (0, 0)), card.figures(one.pid))
            self.all_is_there(card)

    @staticmethod
    def counted(card, process):
        figures = card.figures(process.pid)
        return figures["shared"], figures["resident"]

    def test_opener_killed(self):
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(24 * MIB, 1)
            two.word(f"open {handle}")
            self.assertTrue(card.has_shared(one, 24 * MIB))
            two.kill()
            self.assertTrue(card.has_shared(one, 0))
            self.all_is_there(card)

    def test_child_of_the_opener(self):
        """A child has nothing open: the memory may move although it lives."""
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(24 * MIB, 1)
            piece = two.word(f"open {handle}")
            child = int(two.word("child 300"))
            try:
                self.assertEqual(two.say(f"close {piece}"), ["ok"])
                self.assertTrue(card.has_shared(one, 0))
            finally:
                os.kill(child, 9)
            piece = two.word(f"open {handle}")
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            child = int(two.word("child 300"))  # as long as it is kept
            try:
                self.assertTrue(card.has_shared(one, 0))
            finally:
                os.kill(child, 9)

    def test_daemon_killed(self):
        with Scene() as card:
            one, two, three = card.process(), card.process(), card.process()
            _, handle = one.make(24 * MIB, 1)
            piece = two.word(f"open {handle}")
            self.assertEqual(three.word("alloc 4096"), "0")  # it knows the daemon
            card.stop_daemon(9)
            three.tell(f"open {handle}")  # it waits for the next one
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            card.start_daemon()
            self.assertEqual(three.answer(), ["ok", "1"])
            self.assertEqual(three.say("check 1 1"), ["ok"])
            self.assertTrue(card.has_shared(one, 24 * MIB))
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertEqual(three.say("check 1 1"), ["ok"])
            self.assertEqual(three.say("close 1"), ["ok"])
            self.assertTrue(card.has_shared(one, 0))
            self.all_is_there(card)

    def test_no_daemon(self):
        """The driver's refusal, at once; and a line on stderr."""
        with Scene() as card:
            handle = card.process().make(4 * MIB, 1)[1]
            alone = {"GPUSHARE_LOCKD": "/nonexistent", "GPUSHARE_SOCKET": os.path.join(card.folder, "none.sock")}
            one = card.process(**alone)
            piece = one.word(f"alloc {4 * MIB}")
            self.assertTrue(wait_for(lambda: one.say(f"handle {piece}") == ["error", "1"]))
            self.assertEqual(one.say(f"open {handle}"), ["error", "205"])

    def test_many_opens_at_once(self):
        with Scene() as card:
            one = card.process()
            handles = [one.make(2 * MIB, i)[1] for i in range(12)]
            others = [card.process() for _ in range(3)]
            for other in others:
                other.word("alloc 4096")
            for handle in handles:
                for other in others:
                    other.tell(f"open {handle}")
            for i in range(len(handles)):
                for other in others:
                    self.assertEqual(other.answer()[0], "ok", i)
            for other in others:
                for i in range(len(handles)):
                    self.assertEqual(other.say(f"check {i + 1} {i}"), ["ok"])
            self.all_is_there(card)

    def test_random(self):
        """Four processes export, open, write, close, free and die; the card is smaller than what they have."""
        dice = random.Random(OPTIONS.seed)
        with Scene(memory="128MiB") as card:
            model = Model(card, dice)
            for _ in range(140):
                model.step(self)
            self.all_is_there(card)


class Model:
    """What each of four processes has, and what must be in it."""

    def __init__(self, card, dice):
        self.card, self.dice = card, dice
        self.places = [None] * 4
        self.memory = {}  # handle: [owner, seed, freed]
        self.have = [dict() for _ in range(4)]  # index of a piece: (handle, opened)

    def step(self, test):
        dice = self.dice
        who = dice.randrange(4)
        process = self.places[who]
        if process is None:
            self.places[who] = self.card.process()
            return
        have, what = self.have[who], dice.random()
        own = [index for index, (_, opened) in have.items() if not opened]
        if what < 0.2 and len(own) < 3:
            seed = dice.randrange(1000)
            piece, handle = process.make(dice.choice([2 * MIB, 4 * MIB, 10 * MIB]), seed)
            self.memory[handle] = [who, seed, False]
            have[piece] = (handle, False)
        elif what < 0.5 and self.memory:
            handle = dice.choice(list(self.memory))
            self.open(test, who, handle)
        elif what < 0.7 and have:
            index = dice.choice(list(have))
            known = self.memory[have[index][0]]
            known[1] = dice.randrange(1000)
            test.assertEqual(process.say(f"fill {index} {known[1]}"), ["ok"])
        elif what < 0.85 and have:
            index = dice.choice(list(have))
            test.assertEqual(process.say(f"check {index} {self.memory[have[index][0]][1]}"), ["ok"])
        elif what < 0.95 and have:
            index = dice.choice(list(have))
            handle, opened = have.pop(index)
            test.assertEqual(process.say(f"{'close' if opened else 'free'} {index}"), ["ok"])
            self.memory[handle][2] |= not opened
        elif what > 0.975:
            process.kill()
            self.places[who] = None
            for handle, opened in have.values():
                self.memory[handle][2] |= not opened
            have.clear()

    def open(self, test, who, handle):
        owner, _, freed = self.memory[handle]
        said = self.places[who].say(f"open {handle}")
        mine = any(known == handle and opened for known, opened in self.have[who].values())
        if freed and not mine:
            test.assertEqual(said, ["error", "1"])
        elif owner == who and not mine:
            test.assertEqual(said, ["error", "201"])
        else:
            test.assertEqual(said[0], "ok", (said, freed, mine))
            if mine and self.dice.random() < 0.5:  # a second open of the same: one close of it
                test.assertEqual(self.places[who].say(f"close {said[1]}"), ["ok"])
            else:
                self.have[who][said[1]] = (handle, True)


main(seed=1)
