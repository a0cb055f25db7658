#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/benchmarks.md from the newest result of each benchmark: page.py [--check] [PAGE].

A result is docs/results/NAME-CARD-DATE.json (docs/benchmarks.md, "Files"); of those with the same NAME and CARD the newest
counts. The table stands between the two marks; --check writes nothing and
fails when the page holds another one.
"""
import argparse
import glob
import json
import os
import re
import sys

import plot

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "benchmarks.md")
MARKS = "<!-- bench/page.py writes this table -->\n", "<!-- end of the table -->\n"
MOST = 3  # figures of a result in the table; of a larger one, the misses
STEM = re.compile(r"(?P<name>.+?)(-(?P<card>[hb]\d00(-x\d)?))?-(?P<date>\d{4}-\d\d-\d\d)$")


def newest(folder):
    """{(name, card): (date, file, rows)}: the newest result of each benchmark on each kind of card."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        stem = STEM.match(os.path.splitext(os.path.basename(path))[0])
        if not stem:
            continue
        with open(path, encoding="utf-8") as file:
            try:
                result = plot.with_rows(json.load(file))
            except plot.Wrong:
                continue  # a record of tests, not of a benchmark
        rows = result.get("rows") or []
        key = stem["name"], (stem["card"] or "–").upper()
        if rows and stem["date"] > found.get(key, ("",))[0]:
            found[key] = stem["date"], os.path.basename(path), rows
    return found


def met(row):
    """Whether a row's goal is met; None: it has none."""
    return row.get("met") if row.get("ceiling") and not row.get("other") else None


def figure(row):
    value = " ".join(part for part in (plot.figure(row["value"]), row.get("unit")) if part)
    asked = f" ({row.get('against', 'ceiling')} {plot.figure(row['ceiling'])})" if row.get("ceiling") else ""
    text = f"{row['name']}: {value}{asked}"
    return f"**{text}**" if met(row) is False else text


def goals(rows):
    asked = [met(row) for row in rows if met(row) is not None]
    return f"{sum(asked)} of {len(asked)} met" if asked else "–"


def table(folder):
    lines = ["| benchmark | figures (bold: goal not met) | goals | card | date |", "|---|---|---|---|---|"]
    for (name, card), (date, file, rows) in sorted(newest(folder).items()):
        ours = [row for row in rows if not row.get("other")]
        if len(ours) > MOST:
            ours = ([row for row in ours if met(row) is False] or ours)[:MOST]
        lines.append(f"| [{name}](results/{file}) | {'; '.join(map(figure, ours))} | {goals(rows)} | {card} | {date} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", default=PAGE)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with open(options.page, encoding="utf-8") as file:
        page = file.read()
    try:
        before, rest = page.split(MARKS[0])
        old, after = rest.split(MARKS[1])
        new = table(os.path.join(os.path.dirname(options.page), "results"))
    except (ValueError, plot.Wrong) as error:
        sys.exit(f"page.py: {options.page}: {error}")
    if options.check and new != old:
        sys.exit(f"page.py: {options.page} is older than docs/results; run bench/page.py")
    if not options.check:
        with open(options.page, "w", encoding="utf-8") as file:
            file.write(before + MARKS[0] + new + MARKS[1] + after)


if __name__ == "__main__":
    main()
