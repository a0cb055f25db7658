# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard's queries, as Grafana would send them to Prometheus (standard library only)."""
import json
import math
import os
import re

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../packaging/grafana/gpushare.json")
# what Grafana puts in for its variables, for a data source that scrapes each second
VARIABLES = {"$__rate_interval": "4s", "$__range": "60s", "$instance": ".*", "$device": ".*"}


def load():
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)


def panels(dashboard):
    """Those that show something: (panel, its targets)."""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield panel, panel["targets"]


def query(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    if "$" in expression:
        raise ValueError(f"a variable that is not known: {expression}")
    return expression


def metrics_in(expression):
    return set(re.findall(r"\bgpushare_[a-z_]+", expression))


def legend(target, labels):
    text = target["legendFormat"] or "{{name}} {{pid}}"
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), text)


def series(prometheus, target, start, end):
    """[(name, [(time, value)])] of finite values, as Prometheus answers."""
    found = prometheus.ask("query_range", query=query(target["expr"]), start=start, end=end, step=1)["result"]
    shown = []
    for each in found:
        values = [(at, float(value)) for at, value in each["values"]]
        shown.append((legend(target, each["metric"]), [(at, value) for at, value in values if math.isfinite(value)]))
    return [(name, values) for name, values in shown if values]
