#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scenes in which memory is handed over while something else happens: two devices, a limit, children of fork(), numbers closed and
used up, programs and daemons killed, a third program without room. Every byte is checked, and afterwards nobody holds anything.
test_handed_scenes.py --build DIR [SCENE...]"""
import argparse
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import PATIENCE, Card, Told, check, failures  # noqa: E402  (beside this file)

MEMORY = "128MiB"  # of a card: two programs of that do not fit
PIECES = [20] * 5  # MiB


class Scene(Card):
    """A card whose memory goes to and fro between programs that are told what to do."""

    def __init__(self, build, memory=MEMORY, **environment):
        super().__init__(build, memory=memory, options=["--idle", "5"], **Told.SMALL_CONTEXTS, **environment)
        self.programs, self.stats = [], []

    def program(self, *sizes):
        self.stats.append(os.path.join(self.folder, f"stats{len(self.stats)}"))
        told = Told(self, GPUSHARE_STATS=self.stats[-1])
        self.programs.append(told)
        for mib in sizes:
            self.ok(told, f"alloc {mib}")
        return told

    @staticmethod
    def ok(told, command):
        answer = told.say(command)
        if answer != "ok":
            check(False, f"{command}: {answer}")

    def turns(self, count):
        for _ in range(count):
            for told in self.programs:
                self.ok(told, "change 0 9")
                self.ok(told, "check")

    def end(self, what, some=True):
        """All end; memory was handed over; a new program can have the whole card."""
        for told in self.programs:
            told.end()
        taken = 0
        for name in self.stats:
            if os.path.exists(name):  # else it was killed
                with open(name, encoding="utf-8") as file:
                    taken += json.load(file)["taken_over"]
        check(taken > 0 or not some, f"{what}: {taken >> 20} MiB handed over")
        self.programs = []
        self.has_all(what)

    def has_all(self, what):
        """Nobody else holds memory of the card."""
        told = self.program(1)
        end = time.monotonic() + PATIENCE
        answer = "error"
        while answer != "ok" and time.monotonic() < end:  # it hears of the capacity a moment later
            answer = told.say(f"alloc {(self.capacity() >> 20) - 2}")
        check(answer == "ok", f"{what}: the whole card is there afterwards")
        told.end()


def two_devices(build):
    with Scene(build, SIMCUDA_DEVICES="2") as scene:
        for _ in range(2):
            told = scene.program(*PIECES)
            scene.ok(told, "device 1")
            for mib in PIECES:
                scene.ok(told, f"alloc {mib}")
        scene.turns(3)
        scene.end("two devices")


def limit(build):
    with Scene(build, memory="1GiB", GPUSHARE_DEVICE_LIMIT=MEMORY) as scene:
        for _ in range(2):
            scene.program(*PIECES)
        scene.turns(3)
        scene.end("a limit")


def children(build):
    """Workers that are forked and do not execute anything, as DataLoader's."""
    with Scene(build) as scene:
        both = [scene.program() for _ in range(2)]
        for told in both:
            scene.ok(told, "child")
            for mib in PIECES:
                scene.ok(told, f"alloc {mib}")
        for _ in range(3):
            for told, other in (both, both[::-1]):
                told.tell("change 0 9")
                for _ in range(4):
                    scene.ok(other, "child")
                check(told.answer() == "ok", "while children are forked")
                scene.ok(told, "check")
        for told in both:
            for i in range(len(PIECES)):
                scene.ok(told, f"free {i}")
            told.until(lambda entry: entry["resident"] == 0)
        scene.programs = []
        scene.has_all("children that live on")
        for told in both:
            scene.ok(told, "children")
        scene.programs = both
        scene.end("children")


def numbers(build):
    """A program closes what it does not know of; then it may open hardly anything."""
    with Scene(build) as scene:
        both = [scene.program(*PIECES) for _ in range(2)]
        scene.turns(2)
        scene.ok(both[1], "shut 64")
        scene.turns(1)
        scene.ok(both[0], "numbers 72")
        scene.turns(1)
        scene.ok(both[1], "numbers 40")
        scene.turns(1)
        scene.end("numbers")


def third(build):
    """One takes nearly all of the card; memory of three sizes."""
    with Scene(build) as scene:
        for sizes in ((20, 20, 2, 20, 20), (66, 2, 1), (20, 20, 20, 50, 2)):
            scene.program(*sizes)
        scene.turns(2)
        scene.end("a third program")


def freed(build):
    """What is on its way in is freed meanwhile."""
    with Scene(build) as scene:
        both = [scene.program(*PIECES) for _ in range(2)]
        scene.turns(1)
        for pause in (0, 0.01, 0.05):
            for told, other in (both, both[::-1]):
                told.tell("change 0 9")
                time.sleep(pause)
                scene.ok(other, "free 0")
                check(told.answer() == "ok", "beside one that frees")
                scene.ok(told, "check")
                scene.ok(other, "alloc 20")
        scene.turns(1)
        scene.end("freed")


def killed(build):
    """Programs die at any moment of a hand-off, and so does the daemon."""
    rng = random.Random(4)
    with Scene(build, SIMCUDA_PCIE_GBPS="4") as scene:
        told = scene.program(*PIECES)
        for _ in range(4):
            victim = scene.program(*PIECES)
            victim.tell("change 0 5")
            told.tell("change 0 9")
            time.sleep(rng.random() * 0.1)
            victim.child.kill()
            victim.child.wait()
            scene.programs.remove(victim)
            check(told.answer() == "ok", "a program was killed")
        other = scene.program(*PIECES)
        for _ in range(3):
            for one, two in ((told, other), (other, told)):
                one.tell("change 0 9")
                time.sleep(rng.random() * 0.1)
                scene.daemon.kill()
                scene.daemon.wait()
                scene.start_daemon()
                check(one.answer() == "ok", "the daemon was killed")
                scene.ok(two, "touch")
        scene.turns(2)
        scene.end("killed")


def main():
    scenes = {scene.__name__: scene for scene in (two_devices, limit, children, numbers, third, freed, killed)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("scene", nargs="*", choices=[*scenes, []])
    args = parser.parse_args()
    for name in args.scene or scenes:
        scenes[name](args.build)
    sys.exit(1 if failures else 0)


main()
