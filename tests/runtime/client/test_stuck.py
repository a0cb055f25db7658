#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program whose work does not end, or waits for the host, while another one waits: how long others, and its own exit, wait.

test_stuck.py --build DIR
"""
import functools
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import PATIENCE, BuildTest, Card, Told, check, main  # noqa: E402

SLACK = 4  # seconds; what was wrong took 10 and more
DRAIN, CAPTURE = 2, 5  # seconds: client.h, capture.h


class Late(AssertionError):
    """Too slow, which a busy machine may be now and then."""


def in_time(good, text):
    if not good:
        raise Late(text)


def one_try_of_five(scene):
    """The scene may be late, but not every time."""
    @functools.wraps(scene)
    def tries(*arguments):
        for _ in range(4):
            try:
                return scene(*arguments)
            except Late as late:
                print(late, flush=True)
        return scene(*arguments)
    return tries


def until_state(told, *states):
    """A program that stops is stuck a moment later: that may be all that is seen of it."""
    entry = told.until(lambda known: known["state"] in (*states, "stuck"))
    in_time(entry["state"] in states, f"{entry['state']}, not {' or '.join(states)}")


def seconds_to_exit(told):
    start = time.monotonic()
    told.child.stdin.close()
    code = told.child.wait(timeout=PATIENCE)
    took = time.monotonic() - start
    check(code == 0, f"exit {code}")
    return took


@one_try_of_five
def others_go_on(build, words, limit, rest):
    """The one that fits beside a program that cannot stop does not wait for it, nor does it lose anything."""
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        told, large, small = (Told(card) for _ in range(3))
        check([told.say(word) for word in ("alloc 40", "poke", words)] == ["ok"] * 3, f"{words}: a program that cannot stop")
        large.tell("zero 40")
        until_state(told, "stopping")
        start = time.monotonic()
        answer = small.say("zero 10")
        took = time.monotonic() - start
        check(answer == "ok", f"{words}: the one that fits goes on: {answer}")
        in_time(took < limit + SLACK, f"{words}: the one that fits goes on after {took:.2f} s")
        # stuck, or the first of those that wait: then it has a turn again, which it cannot use otherwise either
        entry = told.until(lambda known: known["state"] in ("stuck", "runs"), timeout=limit + 30)
        in_time(entry["state"] in ("stuck", "runs"), f"{words}: {entry['state']}")
        check(large.answer(0) == "no answer", f"{words}: the one that does not fit waits")
        for word in rest:
            check(told.say(word) == "ok", f"{words}: {word}")
        check(large.answer() == "ok", f"{words}: the one that did not fit has its turn")
        check(told.say("check") == "ok", f"{words}: every byte")
        for program in (told, large, small):
            program.end()


def lacks_memory_beside_a_capture(build, first, *words):
    """The program's turn is over, but its capture is open: memory that it allocates then must come, or the capture cannot end. The driver
    records a set or a copy only of memory that is there."""
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        told = Told(card)
        check([told.say(word) for word in ("alloc 4", "relax", "capture")] == ["ok"] * 3, f"{words}: a capture")
        told.until(lambda known: known["demand"] >= 4 << 20)
        card.ctl(words[0], *(words[1:] or [str(told.child.pid)]))
        told.until(lambda known: known["state"] in ("stopping", "stuck"))
        answer = told.say(first)
        check(answer == "ok", f"{words}: {first}: {answer}")
        told.tell("captured")  # the capture ends; the launch behind it may wait for the next turn
        entry = told.until(lambda known: known["state"] not in ("stopping", "stuck"))
        check(entry["state"] not in ("stopping", "stuck"), f"{words}: it stops: {entry['state']}")
        card.ctl("resume", str(told.child.pid))
        answer = told.answer()
        check(answer == "ok", f"{words}: captured: {answer}")
        check(told.say("check") == "ok", f"{words}: every byte")
        told.end()


def captures_beside_an_old_drain(build):
    """The gate opens while the work is still waited for, since a thread waits there: a capture that begins then is not spoilt."""
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        told = Told(card, SIMCUDA_SLOW=f"cuCtxSynchronize:{DRAIN * 1250}")
        check(told.say("alloc 4") == "ok", "some memory")
        told.until(lambda known: known["demand"] >= 4 << 20)
        card.ctl("evict", "all")
        told.until(lambda known: known["state"] in ("stopping", "stuck"))
        check(told.say("capture") == "ok", "a capture begins")
        time.sleep(DRAIN)
        answer = told.say("captured")
        check(answer == "ok", f"a capture beside an old drain: {answer}")
        told.end()


class Stuck(BuildTest):
    @one_try_of_five
    def test_exits(self):
        """With a kernel that does not end: as fast as without gpushare, whether another program waits for the card or not."""
        took = {}
        for way, more in (("without gpushare", {"GPUSHARE_DISABLE": "1"}), ("nobody waits", {}), ("somebody waits", {})):
            with Card(self.build, **Told.SMALL_CONTEXTS) as card:
                told, other = Told(card, **more), Told(card)
                check([told.say("alloc 40"), told.say("spin")] == ["ok"] * 2, f"{way}: a kernel that does not end")
                if way == "somebody waits":
                    other.tell("zero 40")
                    until_state(told, "stopping", "stuck")
                took[way] = seconds_to_exit(told)
                print(f"exit, {way}: {took[way]:.2f} s")
                if way == "somebody waits":
                    check(other.answer() == "ok", "the other one goes on")
                other.end()
        for way in ("nobody waits", "somebody waits"):
            in_time(took[way] < took["without gpushare"] + SLACK, f"exit, {way}: {took[way]:.2f} s, without {took['without gpushare']:.2f}")

    @one_try_of_five
    def test_waits_for_the_host(self):
        """A kernel that ends when the host says so, which the host does after its next calls: they come through the gate."""
        with Card(self.build, **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check([told.say(words) for words in ("alloc 40", "poke", "spin")] == ["ok"] * 3, "a kernel that waits for the host")
            other.tell("zero 40")
            until_state(told, "stopping")
            start = time.monotonic()
            answers = [told.say(word) for word in ("poke", "capture", "captured")]
            took = time.monotonic() - start
            check(answers == ["ok"] * 3, f"the next calls: {answers}")
            in_time(took < DRAIN + SLACK, f"the next calls took {took:.2f} s")
            check(told.say("stop") == "ok" and other.answer() == "ok", "the kernel ends, and the other one has its turn")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_others_go_on_beside_a_kernel(self):
        others_go_on(self.build, "spin", DRAIN, ["stop"])

    def test_others_go_on_beside_a_capture(self):
        others_go_on(self.build, "capture", CAPTURE, ["poke", "captured"])

    def test_captures_beside_an_old_drain(self):
        captures_beside_an_old_drain(self.build)

    def test_lacks_memory_beside_a_capture_when_evicted(self):
        for first in ("alloc 50", "record 50"):
            lacks_memory_beside_a_capture(self.build, first, "evict", "all")

    def test_lacks_memory_beside_a_capture_when_paused(self):
        for first in ("alloc 50", "record 50"):
            lacks_memory_beside_a_capture(self.build, first, "pause")


if __name__ == "__main__":
    main()
