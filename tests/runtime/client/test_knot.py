#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two jobs of two ranks on two cards, which fit together, need more memory at one moment: a rank of each needs what the other job has, and
the others wait for it in kernels that cannot stop. test_knot.py --build DIR"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import BuildTest, Card, Told, check, main  # noqa: E402

LONG = 180  # seconds: until jobs have ended, on a machine that is busy with other things
ROUNDS = 150


class Knot(BuildTest):
    def job(self, card, name, grows, **more):
        """Its ranks. The one that grows is on the card of its number."""
        ranks = []
        for rank in range(2):
            command = [os.path.join(self.build, "tests", "runtime", "ranks"), os.path.join(card.folder, name), str(rank), "2", str(ROUNDS),
                       "20", "none"]
            if rank == grows:
                command.append(os.path.join(card.folder, "growth"))
            ranks.append(card.start(command, CUDA_VISIBLE_DEVICES=f"{rank},{1 - rank}", GPUSHARE_GROUP=name,
                                    GPUSHARE_LOG=os.path.join(card.folder, f"{name}{rank}.log"), **more))
        return ranks

    def end(self, ranks):
        until = time.monotonic() + LONG
        for rank in ranks:
            out, err = rank.communicate(timeout=max(1, until - time.monotonic()))
            check((rank.returncode, out.split(), err) == (0, ["all", "ok"], ""), f"{rank.returncode} {out} {err}")

    def logs(self, card, word):
        """The ranks whose logs have it."""
        found = []
        for name in ("a0", "a1", "b0", "b1"):
            with open(os.path.join(card.folder, f"{name}.log"), encoding="utf-8") as file:
                if word in file.read():
                    found.append(name)
        return found

    def test_both_jobs_end(self):
        """What one of them lacks goes beyond the card, comes back in a later turn, and holds what was written to it, also for a process that opens it."""
        with Card(self.build, memory="64MiB", options=["--quantum", "200"], SIMCUDA_DEVICES="2", SIMCUDA_TIMESLICE="0", **Told.SMALL_CONTEXTS) as card:
            self.end(self.job(card, "a", 0) + self.job(card, "b", 1))
            went = self.logs(card, "went beyond the card")
            check(went != [] and set(went) <= {"a0", "b1"}, f"beyond the card went memory of {went}")
            back = self.logs(card, "no memory is beyond the card any more")
            check(back == went, f"{went} went, {back} came back")

    def test_one_job_grows(self):
        """The other one can stop: nothing goes beyond the card."""
        with Card(self.build, memory="64MiB", options=["--quantum", "200"], SIMCUDA_DEVICES="2", SIMCUDA_TIMESLICE="0", **Told.SMALL_CONTEXTS) as card:
            with open(os.path.join(card.folder, "growth"), "wb") as file:
                file.write(bytes(4) + (1).to_bytes(4, "little"))  # nobody else is waited for
            self.end(self.job(card, "a", 0) + self.job(card, "b", None))
            went = self.logs(card, "went beyond the card")
            check(went == [], f"beyond the card went memory of {went}")


if __name__ == "__main__":
    main()
