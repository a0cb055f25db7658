#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs larger than the card: what has no room there lies in host memory, at the same addresses.
test_overcommit.py --build DIR"""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, BuildTest, Card, Told, check, main, wait_for  # noqa: E402  (beside this file)

CARD = 128  # MiB
OPTIONS = ["--idle", "5"]


class Beyond(Card):
    """A card of 128 MiB and programs that may have 128 MiB more."""

    def __init__(self, build, more="128MiB", options=(), **environment):
        super().__init__(build, memory=f"{CARD}MiB", options=OPTIONS + list(options), GPUSHARE_OVERCOMMIT=more, **Told.SMALL_CONTEXTS,
                         **environment)

    def control(self, *words):
        ctl = os.path.join(self.build, "lockd", "gpusharectl")
        subprocess.run([ctl, "--socket", self.socket, *words], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def program(self, *sizes, command="alloc", **more):
        told = Told(self, **more)
        for mib in sizes:
            ok(told, f"{command} {mib}")
        return told


def ok(told, command, expected="ok"):
    answer = told.say(command)
    check(answer == expected, f"{command}: {answer}")


class Overcommit(BuildTest):
    def test_one_program_larger_than_the_card(self):
        """Every byte is right, the card is full, the rest is host memory; freed, it is all there again."""
        with Beyond(self.build) as card:
            told = card.program(1, 48, 48, 48, 48)
            ok(told, "check")
            entry = told.until(lambda entry: entry["host_used"] >= 72 * MIB)
            check(entry["host_used"] >= 72 * MIB, f"host memory is said: {entry}")
            check(entry["demand"] <= card.capacity(), f"the card's part is no more than the card: {entry}")
            ok(told, "alloc 100", "error 2")
            for block in (1, 2, 3, 4):
                ok(told, f"change {block} 20")
                ok(told, f"clear {block} 30 2")
            ok(told, "check")
            for block in (4, 2, 1):
                ok(told, f"free {block}")
            entry = told.until(lambda entry: entry["host_used"] <= 52 * MIB)
            check(entry["host_used"] <= 52 * MIB, f"freed host memory is given back: {entry}")
            for _ in range(3):
                ok(told, "alloc 48")
            ok(told, "alloc 30")
            ok(told, "check")
            told.end()

    def test_one_allocation_larger_than_the_card(self):
        """It lies in both."""
        with Beyond(self.build) as card:
            told = card.program(180)
            ok(told, "change 0 3")
            ok(told, "change 0 170")
            ok(told, "check")
            ok(told, "alloc 80", "error 2")
            ok(told, "free 0")
            ok(told, "alloc 190")
            ok(told, "check")
            told.end()

    def use(self, told, block, mib, times):
        for _ in range(times):
            ok(told, f"clear {block} 0 {mib}")
            ok(told, "touch")  # waits for it

    def test_what_is_used_comes_in(self):
        """Memory beyond the card that is used more than what is on it changes places with that, and every byte stays right."""
        with Beyond(self.build) as card:
            stats, driver = os.path.join(card.folder, "stats"), os.path.join(card.folder, "driver")
            told = card.program(54, 54, 54, 54, GPUSHARE_STATS=stats, SIMCUDA_STATS=driver, SIMCUDA_HOST_GBPS="2")
            for block, other in ((2, 3), (0, 1)):
                self.use(told, block, 40, 28)
                self.use(told, other, 4, 4)
                self.use(told, block, 40, 28)
                ok(told, f"change {block} 45")
                ok(told, "check")
            told.end()
            with open(stats, encoding="utf-8") as file:
                exchanged = json.load(file)["exchanged"]
            with open(driver, encoding="utf-8") as file:
                over_bus = json.load(file)["host_chunk_bytes"]
            # all four times, 40 MiB each, on a machine that is quick enough; without exchanges: none
            check(exchanged >= 80 * MIB, f"exchanged {exchanged >> 20} MiB")
            check(over_bus < 4 * 40 * 28 * MIB * 3 // 4, f"{over_bus >> 20} MiB went over the bus")

    def test_launches_of_graphs_are_counted(self):
        """What a captured graph uses is used with each of its launches, not with the capture alone."""
        with Beyond(self.build) as card:
            stats = os.path.join(card.folder, "stats")
            told = card.program(54, 54, 54, 54, GPUSHARE_STATS=stats, SIMCUDA_HOST_GBPS="2")
            for _ in range(40):
                ok(told, "graph 2 4")
            ok(told, "check")
            told.end()
            with open(stats, encoding="utf-8") as file:
                exchanged = json.load(file)["exchanged"]
            # all four times, 40 MiB each, on a machine that is quick enough; without exchanges: none
            check(exchanged >= 80 * MIB, f"exchanged {exchanged >> 20} MiB")

    def train(self, steps, **more):
        """MiB over the bus by the kernels of a program that uses its memory as training does: four weights, four gradients, eight
        moments, which only the end of a step uses, and twelve activations, on the way there and on the way back."""
        weights, gradients, moments, activations = range(4), range(4, 8), range(8, 16), range(16, 28)
        with Beyond(self.build, GPUSHARE_OVERCOMMIT_GRAIN="2MiB", SIMCUDA_HOST_GBPS="1", SIMCUDA_CARD_GBPS="24") as card:
            driver = os.path.join(card.folder, "driver")
            told = card.program(*[6] * 28, SIMCUDA_STATS=driver, **more)
            for _ in range(steps):
                for number, block in enumerate(activations):
                    ok(told, f"launch {weights[number // 3]} 2")
                    ok(told, f"launch {block} 3")
                for number, block in reversed(list(enumerate(activations))):
                    ok(told, f"launch {block} 5")
                    ok(told, f"launch {weights[number // 3]} 2")
                    ok(told, f"launch {gradients[number // 3]} 1")
                for block in (*weights, *gradients, *moments):
                    ok(told, f"launch {block} 1")
                ok(told, "touch")
            ok(told, "check")
            told.end()
            with open(driver, encoding="utf-8") as file:
                return json.load(file)["host_chunk_bytes"] >> 20

    def test_training(self):
        """What each step uses least lies beyond the card after some steps, after more of them on a busy machine."""
        once, placed = self.train(12, GPUSHARE_PLACEMENT="once"), []
        while not placed or placed[-1] >= 0.6 * once:
            placed.append(self.train(12 << len(placed)) >> len(placed))
            check(len(placed) < 5, f"{placed} MiB over the bus in 12 steps, {once} as allocated")

    def test_placed_once(self):
        """With placement disabled nothing comes in, however much it is used."""
        with Beyond(self.build) as card:
            stats, driver = os.path.join(card.folder, "stats"), os.path.join(card.folder, "driver")
            told = card.program(54, 54, 54, 54, GPUSHARE_PLACEMENT="once", GPUSHARE_STATS=stats, SIMCUDA_STATS=driver, SIMCUDA_HOST_GBPS="2")
            self.use(told, 2, 40, 28)
            self.use(told, 3, 40, 28)
            ok(told, "check")
            told.end()
            with open(stats, encoding="utf-8") as file:
                exchanged = json.load(file)["exchanged"]
            check(exchanged == 0, f"exchanged {exchanged >> 20} MiB")

    def test_off(self):
        """Without the setting nothing is beyond the card."""
        with Beyond(self.build, more="0") as card:
            told = card.program(100)
            ok(told, "alloc 48", "error 2")
            told.end()

    def test_hand_off(self):
        """Others move the card's part and nothing else."""
        with Beyond(self.build) as card:
            stats = os.path.join(card.folder, "stats")
            told = card.program(100, 60, GPUSHARE_STATS=stats)
            other = card.program(80, GPUSHARE_OVERCOMMIT="0")
            for turn in range(4):
                ok(told, f"change 0 {turn}")
                ok(told, f"change 1 {turn}")
                ok(other, f"change 0 {turn}")
                ok(told, "check")
                ok(other, "check")
            told.end()
            other.end()
            with open(stats, encoding="utf-8") as file:
                moved = json.load(file)
            check(0 < moved["moved_out"] <= 8 * CARD * MIB, f"the card's part moves: {moved}")

    def test_contexts_come_later(self):
        """Others' contexts take memory for good that a program had: as much of its memory goes beyond the card."""
        with Beyond(self.build) as card:
            told = card.program(100, 20)
            others = [card.program(GPUSHARE_OVERCOMMIT="0") for _ in range(10)]
            for other in others:
                ok(other, "check")
            check(wait_for(lambda: card.status()["devices"][0]["external"] >= 20 * MIB), f"the contexts count: {card.status()}")
            ok(others[0], "zero 60")
            ok(others[0], "free 0")
            ok(told, "change 0 3")
            ok(told, "change 1 3")
            ok(told, "check")
            entry = told.until(lambda entry: entry["over"] >= 8 * MIB)
            check(entry["over"] >= 8 * MIB, f"some lies beyond the card: {entry}")
            for other in others:
                other.end()
            told.end()

    def test_all_kinds_of_memory_on_a_full_card(self):
        """Nobody waits for what cannot come, if other memory can go beyond the card for it."""
        for seed in (5, 5, 5, 8, 9, 12):
            with Card(self.build, memory="72MiB", GPUSHARE_OVERCOMMIT="64MiB", GPUSHARE_OVERCOMMIT_GRAIN="2MiB") as card:
                code, out, err = card.run([os.path.join(self.build, "tests", "runtime", "soak"), "--seed", str(seed), "--seconds", "2",
                                           "--threads", "4", "--memory", "96MiB", "--largest", "12MiB"])
                check(code == 0 and out.startswith("ok"), f"seed {seed}: {code}: {out} {err}")

    def test_suspended(self):
        """Suspended, its part of the card goes to others."""
        with Beyond(self.build) as card:
            told = card.program(100, 60)
            card.control("suspend", str(told.child.pid))
            other = card.program(100, GPUSHARE_OVERCOMMIT="0")
            ok(other, "check")
            other.end()
            card.control("resume", str(told.child.pid))
            ok(told, "check")
            told.end()

    def test_setting(self):
        """The daemon's setting is for programs that say nothing themselves; the status says how much is beyond the card."""
        with Beyond(self.build, more="", options=["--overcommit", "128MiB"]) as card:
            told = card.program(110, 60)
            ok(told, "check")
            entry = told.until(lambda entry: entry["over"] != 0)
            check(40 * MIB <= entry["over"] <= entry["host_used"], f"the status: {entry}")
            told.end()
            told = card.program(110, GPUSHARE_OVERCOMMIT="0")
            ok(told, "alloc 60", "error 2")
            told.end()

    def test_host_limit(self):
        """The daemon's limit on host memory holds for what is beyond the card."""
        with Beyond(self.build, options=["--host", "64MiB"]) as card:
            told = card.program(110)
            ok(told, "alloc 100", "error 2")
            ok(told, "alloc 40")
            ok(told, "check")
            entry = told.until(lambda entry: entry["host_used"] != 0)
            check(entry["host_used"] <= 64 * MIB, f"the limit: {entry}")
            told.end()

    def test_own_memory(self):
        """cuMemCreate's that may be exported stays on the card; of cuMemAlloc's no handle is given for what is beyond."""
        with Beyond(self.build) as card:
            told = card.program(100)
            ok(told, "export 48", "error 2")
            ok(told, "alloc 48")
            ok(told, "check")
            told.end()

    def test_kills(self):
        """What a killed program had, on the card and beyond, others can have."""
        with Beyond(self.build) as card:
            for _ in range(3):
                told = card.program(100, 80)
                told.child.send_signal(signal.SIGKILL)
                told.child.wait()
            told = card.program(100, 80)
            card.stop_daemon(signal.SIGKILL)
            ok(told, "change 1 70")
            card.start_daemon()
            ok(told, "check")
            told.end()

    def test_fork(self):
        """A child has nothing of it, and its end takes nothing."""
        with Beyond(self.build) as card:
            told = card.program(100, 80)
            ok(told, "child")
            ok(told, "change 1 70")
            ok(told, "children")
            ok(told, "check")
            told.end()

    def test_no_daemon(self):
        """Where nobody makes room the card's room is what is free there."""
        with Beyond(self.build, GPUSHARE_LOCKD="/bin/false") as card:
            card.stop_daemon()
            told = card.program(100, 80)
            ok(told, "check")
            told.end(silent=False)

    def test_failing_driver(self):
        """Without host memory an allocation fails, and nothing of it stays."""
        with Beyond(self.build, SIMCUDA_FAIL="cuMemMap:p0.3:999:7") as card:
            told = Told(card)
            answers = [told.say("alloc 30") for _ in range(12)]
            check(set(answers) <= {"ok", "error 2"} and "error 2" in answers, f"answers: {answers}")
            ok(told, "check")
            told.end()


if __name__ == "__main__":
    main()
