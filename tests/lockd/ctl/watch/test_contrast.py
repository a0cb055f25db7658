#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All colours of the page of gpusharectl serve, and of the pictures of a terminal, can be read: at least 4.5 : 1 (scripts/look.py)."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../scripts"))
import look  # noqa: E402


class ContrastTest(unittest.TestCase):
    def test_known_pairs(self):
        self.assertAlmostEqual(look.contrast("#000", "#ffffff"), 21)
        self.assertAlmostEqual(look.contrast("#767676", "#fff"), 4.54, places=2)

    def test_page_and_terminal(self):
        self.assertGreater(len(list(look.all_pairs())), 40)
        self.assertEqual(look.bad_pairs(), [])


if __name__ == "__main__":
    unittest.main()
