#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""balance = waiting on simulated cards: of programs that take turns on one card some move to the other one, by themselves, and
their memory is right. What cannot move is said.

usage: test_balance.py BUILD-FOLDER [unittest options]"""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from moving import PATIENCE, Cards, wait_for  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
MIB = 1 << 20


class BalanceTest(unittest.TestCase):
    def cards(self, *options, **environment):
        cards = Cards(BUILD, options, **environment)
        self.addCleanup(cards.__exit__)
        cards.start_daemon()
        return cards

    def test_one_of_two_that_wait_moves(self):
        cards = self.cards("--balance", "waiting")
        hogs = [cards.start_hog(share="0.7") for _ in range(2)]
        wait_for(lambda: "was moved from" in cards.said(), PATIENCE, "a move")
        wait_for(lambda: sorted(cards.used(hog, 1) > MIB for hog in hogs) == [False, True], PATIENCE, "one on each card")
        for hog in hogs:
            cards.end_hog(hog)
        self.assertEqual(cards.said().count("was moved from"), 1)

    def test_off_nobody_moves_until_it_is_set(self):
        cards = self.cards()
        hogs = [cards.start_hog(share="0.7") for _ in range(2)]
        for hog in hogs:
            cards.await_use(hog, 0)
        time.sleep(8)
        self.assertNotIn("was moved from", cards.said())
        self.assertEqual(cards.ctl("set", "balance", "waiting")[0], 0)
        wait_for(lambda: "was moved from" in cards.said(), PATIENCE, "a move")
        for hog in hogs:
            cards.end_hog(hog)

    def test_one_that_does_not_see_the_other_card_is_told(self):
        cards = self.cards("--balance", "waiting")
        hidden = [cards.start_hog(share="0.5", CUDA_VISIBLE_DEVICES="0") for _ in range(3)]
        other = cards.start_hog(share="0.1", CUDA_VISIBLE_DEVICES="1")
        wait_for(lambda: "it does not see that GPU" in cards.said(), PATIENCE, "the remark")
        for hog in (*hidden, other):
            cards.end_hog(hog)
        self.assertNotIn("was moved from", cards.said())


if __name__ == "__main__":
    unittest.main()
