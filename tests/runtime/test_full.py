#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A full card: a program whose memory cannot be placed gets an error, or host memory at its addresses, or waits for a bounded time.
test_full.py --build DIR Full|Minute"""
import os
import resource
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, BuildTest, Card, Told, check, main, sanitized  # noqa: E402  (beside this file)

CARD, CONTEXT = 128, 24  # MiB; a context is larger than the daemon's reserve
SLOW = "cuMemCreate:60"  # ms: the client thread measures the card between the claim of memory and its making


def full_card(build, **environment):
    return Card(build, memory=f"{CARD}MiB", SIMCUDA_CONTEXT_MEMORY=f"{CONTEXT}MiB", **environment)


def ok(told, command, expected="ok"):
    answer = told.say(command)
    check(answer == expected, f"{command}: {answer}")


def limited(card):
    """A program that may not take host memory (ulimit -d)."""
    if sanitized(card.build):
        raise unittest.SkipTest("a sanitizer's own memory is larger than any such limit")
    return Told(card, lambda: resource.setrlimit(resource.RLIMIT_DATA, (100 * MIB, 100 * MIB)))


class Full(BuildTest):
    def test_memory_that_is_claimed_and_not_made_yet_is_not_measured(self):
        """The card seems no larger than it is, however long the driver takes to make memory."""
        with full_card(self.build, SIMCUDA_SLOW=SLOW) as card:
            told = Told(card)
            for _ in range(4):
                ok(told, "alloc 20")
                device = card.status()["devices"][0]
                check(device["capacity"] <= (CARD - CONTEXT) * MIB, f"capacity {device['capacity'] >> 20} MiB")
            ok(told, "alloc 40", "error 2")
            told.end()

    def test_memory_that_is_released_and_still_counted_is_not_measured(self):
        """The same while memory goes."""
        with full_card(self.build, SIMCUDA_SLOW="cuMemRelease:20") as card:
            told = Told(card)
            for _ in range(4):
                ok(told, "alloc 80")
                ok(told, "free 0")
                ok(told, "alloc 110", "error 2")
            told.end()

    def test_alone_until_there_is_no_more(self):
        """It is told so, and goes on with what it has."""
        with full_card(self.build, SIMCUDA_SLOW=SLOW) as card:
            told = Told(card)
            answers = [told.say("alloc 10") for _ in range(12)]
            check("ok" in answers and "error 2" in answers, f"{answers}")
            check(answers == sorted(answers, reverse=True), f"all after the first refusal are refused: {answers}")
            ok(told, "check")
            told.end()

    def test_all_that_is_free_can_be_used(self):
        with full_card(self.build, SIMCUDA_SLOW=SLOW) as card:
            told = Told(card)
            ok(told, "alloc 30")
            ok(told, "fill")
            ok(told, "check")
            told.end()

    def test_a_limit_near_the_cards_size(self):
        """The card has less than the limit says: the program is told so."""
        with full_card(self.build, GPUSHARE_DEVICE_LIMIT=f"{CARD - 8}MiB", SIMCUDA_SLOW=SLOW) as card:
            told = Told(card)
            answers = [told.say("alloc 10") for _ in range(13)]
            check(answers[:9] == ["ok"] * 9 and answers[-1] == "error 2", f"{answers}")
            ok(told, "check")
            told.end()

    def test_what_the_card_has_no_room_for_lies_in_host_memory(self):
        """Another process takes memory that the daemon believes to be free, since it is stopped just then. The program that was given
        it waits for a bounded time, which status explains, and then has host memory at its addresses; later all is on the card."""
        with full_card(self.build) as card:
            told = Told(card)
            ok(told, "alloc 10")
            told.until(lambda entry: entry["resident"] >= 10 * MIB)
            card.daemon.send_signal(signal.SIGSTOP)
            foreign = Told(card, GPUSHARE_DISABLE="1")
            ok(foreign, "alloc 40")
            told.tell("alloc 60")
            card.daemon.send_signal(signal.SIGCONT)
            entry = told.until(lambda entry: entry["demand"] >= 60 * MIB)
            check(entry["state"] in ("moving", "does not fit", "stuck", "stopping"), f"it does not say that it runs: {entry['state']}")
            check(told.answer() == "ok", "it goes on")
            entry = told.until(lambda entry: entry["over"] != 0)
            check(entry["over"] != 0, f"what has no room is beyond the card: {entry}")
            ok(told, "check")
            foreign.end()
            entry = told.until(lambda entry: entry["over"] == 0)
            check(entry["over"] == 0, f"it has come back: {entry}")
            ok(told, "check")
            told.end()

    def test_limits_of_the_process_itself(self):
        """Two programs that may not take host memory (ulimit -d): the second one gets no part of the card while the first one has what it
        needs of it, and status says so. It has all when the first one ends."""
        with full_card(self.build) as card:
            first, second = limited(card), limited(card)
            ok(first, "alloc 20")
            ok(second, "alloc 20")
            ok(first, "alloc 30")
            entry = first.until(lambda entry: entry["stays"] >= 50 * MIB)
            check(entry["stays"] == entry["resident"] == 50 * MIB, f"nothing of it can leave: {entry}")
            second.tell("alloc 20")
            entry = second.until(lambda entry: entry["state"] == "does not fit")
            check((entry["state"], entry["resident"]) == ("does not fit", 20 * MIB), f"it gets no part: {entry}")
            ok(first, "check")
            first.end()
            check(second.answer() == "ok", "it has all when there is room")
            ok(second, "check")
            second.end()

    def test_room_is_asked_for_in_turns_only(self):
        """A program whose memory cannot be moved, and that has no turn (it is paused), waits for its turn with a call that finds the card
        full: what it asks for counts in its turns only. It is not told OUT_OF_MEMORY meanwhile."""
        with full_card(self.build) as card:
            native = Told(card, GPUSHARE_MEMORY="native")
            ok(native, "alloc 2")
            native.until(lambda entry: entry["state"] != "")
            other = Told(card)
            ok(other, "alloc 40")
            other.until(lambda entry: entry["resident"] >= 40 * MIB)
            card.ctl("pause", str(native.child.pid))
            native.until(lambda entry: entry["state"] == "paused")
            native.tell("alloc 50")
            answer = native.answer(timeout=8)  # it asks for 5 s in its turns
            check(answer == "no answer", f"it waits while it is paused: {answer}")
            card.ctl("resume", str(native.child.pid))
            answer = native.answer()
            check(answer == "ok", f"and has its memory then: {answer}")
            ok(native, "check")
            ok(other, "check")
            native.end()
            other.end()


class Minute(BuildTest):
    """The longest wait, GS_SHORT_LIMIT_NS."""

    def test_what_cannot_be_placed_by_these_limits_fails(self):
        """The same where the first one does not end: the wait does, with an error."""
        with full_card(self.build) as card:
            first, second = limited(card), limited(card)
            ok(first, "alloc 50")
            first.until(lambda entry: entry["stays"] >= 50 * MIB)
            ok(second, "alloc 10")
            second.tell("alloc 40")
            check(second.answer() == "error 2", "it is told so")
            second.tell("free 1\ncheck")  # at once: the library has not looked at what is missing meanwhile
            check((second.answer(), second.answer()) == ("ok", "ok"), "what is left is there")
            ok(first, "check")
            first.end()
            second.end()


if __name__ == "__main__":
    main()
