#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every query of the Grafana dashboard has an answer in a Prometheus that scrapes a run of simulated programs, and
promtool finds nothing wrong with the metrics."""
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dashboard  # noqa: E402
from watched import EVIL, PATIENCE, Prometheus, Watched, installed, wait_for  # noqa: E402  (tells where the others are)

from kit import BuildTest, main  # noqa: E402

REASON = installed("prometheus", "promtool")
SCRAPES = 5


class DashboardTest(BuildTest):
    def setUp(self):
        self.card = Watched(self.build)
        self.addCleanup(self.card.__exit__)

    def run_programs(self):
        """Two take turns all the time; one comes and goes."""
        for name in ("train", EVIL):
            self.card.share(name, 0.7)
        self.assertEqual(self.card.share("short", 0.2, seconds=0.5).wait(PATIENCE), 0)
        self.assertTrue(wait_for(lambda: all(p["turns"] > 0 for p in self.card.programs().values())))

    def test_every_metric_of_the_dashboard_exists(self):
        self.run_programs()
        text = self.card.get("/metrics")
        families = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
        known = set(families) | {name + end for name, kind in families.items() if kind == "histogram" for end in ("_bucket", "_sum", "_count")}
        for panel, targets in dashboard.panels(dashboard.load()):
            for target in targets:
                used = dashboard.metrics_in(target["expr"])
                self.assertTrue(used, panel["title"])
                self.assertEqual(used - known, set(), panel["title"])

    @unittest.skipIf(REASON, REASON)
    def test_every_query_has_an_answer(self):
        prometheus = Prometheus(self.card)
        begin = time.time()
        self.run_programs()
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.card.get("/metrics"), capture_output=True, text=True,
                                 check=False, timeout=PATIENCE)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        self.assertTrue(wait_for(lambda: prometheus.scrapes() >= SCRAPES))
        board = dashboard.load()
        for panel, targets in dashboard.panels(board):
            for target in targets:
                with self.subTest(panel=panel["title"], query=target["expr"]):
                    # some show what happens now and then, such as a switch that ended: asked until it has
                    self.assertTrue(wait_for(lambda t=target: dashboard.series(prometheus, t, begin, time.time())))
                    prometheus.ask("query", query=dashboard.query(target["expr"]))  # as a panel of one moment asks
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
                found = prometheus.ask("series", **{"match[]": dashboard.query(metric)})
                self.assertTrue(any(each.get(label) for each in found), variable["name"])


if __name__ == "__main__":
    main()
