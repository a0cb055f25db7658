#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that comes to a card which two busy ones keep full, but for the reserve: their memory leaves as far as the newcomer's
context needs it.

usage: test_newcomer.py BUILD-FOLDER [unittest options]"""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from moving import PATIENCE, Cards, wait_for  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))


class NewcomerTest(unittest.TestCase):
    def assert_right(self, hog):
        out, err = hog.communicate(timeout=PATIENCE)
        self.assertEqual((hog.returncode, err), (0, ""), out)
        self.assertIn("ok ", out)

    def fine_hog(self, cards, share, seconds):
        """In small pieces, so that no byte of the card is left over."""
        return cards.spawn([cards.hog, "--share", share, "--rounds", "1000000", "--seconds", str(seconds), "--chunk", "1MiB", "--quiet"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_full(self, cards):
        """So that no context of 4 MiB has room, for a while."""
        for _ in range(20):
            used = re.search(r"card 0: ([\d.]+) MiB used", cards.show())
            if used is None or float(used[1]) <= 60:
                return False
        return True

    def test_first_context_on_a_full_card(self):
        cards = Cards(BUILD, SIMCUDA_PCIE_GBPS="2")
        self.addCleanup(cards.__exit__)
        cards.start_daemon()
        busy = [self.fine_hog(cards, share, 30) for share in ("0.45", "0.45")]
        for hog in busy:
            cards.await_use(hog, 0)
        wait_for(lambda: self.is_full(cards), PATIENCE, "the card to be full")
        newcomer = self.fine_hog(cards, "0.3", 1)
        self.assert_right(newcomer)
        for hog in busy:
            self.assert_right(hog)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
