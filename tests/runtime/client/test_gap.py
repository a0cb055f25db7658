#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon that is away for a moment where programs cannot start one: allocations and shared memory as without the gap.
test_gap.py --build DIR"""
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "gpu")]
from card import MIB, BuildTest, Card, Told, check, main  # noqa: E402
from ipc_told import Process  # noqa: E402

PROMISED = 5  # seconds: GS_ALONE_AFTER_NS
SPARE = 1


class Gap(Card):
    def __init__(self, build):
        super().__init__(build, memory="192MiB", **Told.SMALL_CONTEXTS, GPUSHARE_LOCKD="/nonexistent")
        self.lockd = os.path.join(build, "lockd", "gpushare-lockd")

    def comes_back(self, seconds, times):
        time.sleep(seconds)
        self.start_daemon()
        times.append(time.monotonic())


def programs_notice_nothing(build, seconds):
    """False: this machine was too busy for a gap of that length."""
    with Gap(build) as card:
        one, two = (Process(os.path.join(build, "tests", "runtime", "ipc_linked"), env=card.environment) for _ in range(2))
        _, handle = one.make(8 * MIB, 1)
        two.word(f"open {handle}")
        times = [time.monotonic()]
        card.stop_daemon(signal.SIGKILL)
        back = threading.Thread(target=card.comes_back, args=(seconds, times))
        back.start()
        one.tell(f"alloc {16 * MIB}")
        answers = [one.answer()]
        if answers[0][0] == "ok":
            one.tell(f"fill {answers[0][1]} 2")
            answers += [one.answer(), one.say(f"handle {answers[0][1]}")]
        if answers[-1][0] == "ok":
            answers += [two.say(f"open {answers[-1][1]}")]
        if answers[-1][0] == "ok":
            answers += [two.say(f"check {answers[-1][1]} 2")]
        back.join()
        in_time = times[1] - times[0] < PROMISED - SPARE
        if in_time:
            check([answer[0] for answer in answers] == ["ok"] * 5, f"gap of {seconds} s: {answers}")
        one.kill()
        two.kill()
        return in_time


class Gaps(BuildTest):
    def test_gaps(self):
        for seconds in (0.05, 0.3, 1, 3):
            check(any(programs_notice_nothing(self.build, seconds) for _ in range(5)), f"no gap of {seconds} s could be made")


if __name__ == "__main__":
    main()
