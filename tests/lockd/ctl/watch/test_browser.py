#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of gpusharectl serve in headless Chromium, while two programs take turns on a simulated card."""
import glob
import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from watched import BUSY_PERCENT, EVIL, Browser, Watched, installed, wait_for  # noqa: E402  (tells where the others are)

from kit import BuildTest, main  # noqa: E402

PHASES = {"compute", "stop", "copy_out", "copy_in", "wait", "paused"}
REASON = installed("chromium")


@unittest.skipIf(REASON, REASON)
class BrowserTest(BuildTest):
    def setUp(self):
        self.card = Watched(self.build)
        self.addCleanup(self.card.__exit__)
        self.children = [self.card.share(name, 0.7) for name in ("train", EVIL)]
        self.browser = Browser(self.card.folder)
        self.addCleanup(self.browser.close)
        self.browser.show(self.card.page)
        self.browser.wait("document.querySelectorAll('tbody tr').length === 2")

    def text(self, selector):
        return self.browser.evaluate(f"[...document.querySelectorAll({selector!r})].map(each => each.textContent)")

    def test_page_shows_a_run_of_two_programs(self):
        # who is there, by name, and nothing of a name is HTML
        self.assertIn(EVIL, "".join(self.text("tbody tr td:first-child")))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertEqual(self.browser.events("Page.javascriptDialogOpening", "Runtime.exceptionThrown"), [])
        # memory on the card, and on the host
        self.browser.wait("document.querySelectorAll('#devices .bar div').length > 0")
        self.browser.wait("document.querySelectorAll('#hostbar .bar div').length > 0")
        # what the card really does, beside the permission to run
        self.browser.wait(f"document.querySelector('#devices .soft').textContent.includes('busy {BUSY_PERCENT} %')")
        heads = self.text("#devices th")
        self.assertLess(heads.index("Allowed"), heads.index("Busy"))
        for text in self.text("tbody td[data-head=Busy]"):
            self.assertRegex(text, r"^\d+ %$")
        # words are explained, every piece of the bar has its legend, and the page is no wider than any window
        self.browser.wait("document.querySelectorAll('#devices th[title]').length > 2")
        pieces = self.browser.evaluate("[...document.querySelectorAll('#devices .bar div')].map(e => e.title.split(':')[0])")
        legend = "\n".join(self.text("#devices .legend span"))
        self.assertEqual([piece for piece in pieces if piece not in legend], [])
        for width in (390, 768, 1280, 1920):
            self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
            # the page is drawn anew each second; then states and the newest side of the timeline are visible
            outside = f"[...document.querySelectorAll('.state, #devices svg rect')].filter(e => e.getBoundingClientRect().right > {width} + 1).length"
            self.browser.wait(f"document.documentElement.scrollWidth <= {width} && {outside} === 0")
            self.assertEqual(len(self.text(".state")), 2)
        # turns pass: each of both is seen at the head of the queue, and what each did is on the timeline
        heads = set()
        self.assertTrue(wait_for(lambda: heads.update(t for t in self.text(".queue span") if t.startswith("1. ")) or len(heads) == 2), heads)
        # in several states
        self.browser.wait("new Set([...document.querySelectorAll('#devices svg rect')].map(r => r.getAttribute('fill'))).size >= 2")
        rows = self.text("#devices svg text")
        self.assertIn(f"train {self.children[0].pid}", rows)
        # the token is not in the address bar, where others see it; the page broke none of its own rules
        self.assertEqual(self.browser.evaluate("location.href"), f"http://127.0.0.1:{self.card.port}/")
        self.assertEqual([e for e in self.browser.events("Log.entryAdded") if "Content Security" in e["entry"]["text"]], [])
        self.download_a_trace()
        self.children[0].kill()
        self.browser.wait("document.querySelectorAll('tbody tr').length === 1")
        self.browser.wait("document.querySelector('.queue').textContent === 'Nobody waits.'")
        self.children[1].kill()  # or it would start the next daemon
        self.children[1].wait()
        self.card.stop_daemon()
        self.browser.wait("document.getElementById('problem').textContent.includes('No gpushare-lockd')")

    def download_a_trace(self):
        self.assertEqual(self.browser.evaluate("document.getElementById('trace').dataset.seconds"), "10")
        self.browser.evaluate("document.getElementById('trace').dataset.seconds = 2")  # the test is short
        # in one step: some seconds later it is enabled again, and this machine may be busy for so long
        self.assertTrue(self.browser.evaluate("document.getElementById('trace').click(), document.getElementById('trace').disabled"))
        self.assertTrue(wait_for(lambda: any(e["state"] == "completed" for e in self.browser.events("Browser.downloadProgress"))))
        with open(glob.glob(os.path.join(self.card.folder, "gpushare-trace*.json"))[0], encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        phases = {e["name"] for e in events if e["ph"] == "X"}
        self.assertTrue(phases and phases <= PHASES, phases)
        self.assertLessEqual({child.pid for child in self.children}, {e["pid"] for e in events})
        self.browser.wait("!document.getElementById('trace').disabled")  # the page goes on


if __name__ == "__main__":
    main()
