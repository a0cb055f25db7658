#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the results of benchmarks as SVG: plot.py [-o FOLDER] RESULT.json...; FOLDER/<name of the result>.svg each.

What a result must look like: docs/benchmarks.md, "Files". Measured ceilings are drawn as a line across the bar that they limit.
--check writes nothing and fails when a picture is not what its result gives.
"""
import argparse
import json
import math
import os
import sys
from xml.sax.saxutils import escape

INK, FAINT, GRID = "#1f2933", "#5b6770", "#dde3e8"
OURS, OLD, MODEL, LIMIT = "#0b7a75", "#c8553d", "#e9a03b", "#7b2d8b"
FONT = "font-family='Helvetica, Arial, sans-serif'"


class Wrong(Exception):
    """The result cannot be drawn; the text says why."""


class Picture:
    def __init__(self, width, height, title, subtitle=""):
        self.width, self.height, self.parts = width, height, []
        self.text(16, 26, title, size=17, weight="bold")
        self.text(16, 46, subtitle, size=12, colour=FAINT)

    def text(self, x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
        self.parts.append(f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{colour}' text-anchor='{anchor}' "
                          f"font-weight='{weight}' {FONT}>{escape(words)}</text>")

    def line(self, x1, y1, x2, y2, colour=GRID, width=1.0, dash=""):
        self.parts.append(f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' "
                          f"stroke-width='{width}'" + (f" stroke-dasharray='{dash}'" if dash else "") + "/>")

    def box(self, x, y, width, height, colour):
        self.parts.append(f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 0.5):.1f}' height='{height:.1f}' fill='{colour}'/>")

    def dot(self, x, y, colour, radius=3.2):
        self.parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius}' fill='{colour}'/>")

    def path(self, points, colour, width=2.0, dash=""):
        self.parts.append("<polyline fill='none' stroke='" + colour + f"' stroke-width='{width}'" +
                          (f" stroke-dasharray='{dash}'" if dash else "") + " points='" +
                          " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + "'/>")

    def svg(self):
        return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' width='{self.width}' "
                f"height='{self.height}'>\n<rect width='100%' height='100%' fill='white'/>\n" + "\n".join(self.parts) + "\n</svg>\n")


def figure(value):
    """Three digits, without an exponent where it can be helped."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(top, about=5):
    """Round numbers from 0 to top."""
    step = 10 ** math.floor(math.log10(top / about))
    step *= next(factor for factor in (1, 2, 5, 10) if top / (step * factor) <= about + 1)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def number(row, key, needed=True):
    value = row.get(key)
    if value is None and not needed:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise Wrong(f"row '{row.get('name')}': {key} is {value!r}, not a number from 0 on")
    return float(value)


# --- bars ---

def source(result):
    return ", ".join(str(result[key]) for key in ("card", "date") if result.get(key)) + \
        (f", driver {result['driver']}" if result.get("driver") else "")


def bars(result, title, note=""):
    """One bar a row. With one unit for all: in that unit, the ceiling as a mark. Else: as part of the ceiling, to twice of it."""
    rows = result.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and row.get("name") for row in rows):
        raise Wrong("rows is no list of objects with a name")
    values = [(number(row, "value"), number(row, "ceiling", needed=False)) for row in rows]
    units = {row.get("unit", "") for row in rows}
    relative = len(units) > 1 or result.get("benchmark") == "sim"
    if relative and any(not ceiling for _, ceiling in values):
        raise Wrong("rows have different units, and one has no ceiling to compare with")
    if relative:
        lengths = [(min(value / ceiling, 2), 1.0) for value, ceiling in values]
    else:
        lengths = values
    top = max(max(length, ceiling or 0) for length, ceiling in lengths) * 1.04 or 1
    texts = []
    for row, (value, ceiling) in zip(rows, values):
        texts.append(f"{figure(value)} {row.get('unit', '')}".rstrip() +
                     (f" ({row.get('against', 'ceiling')} {figure(ceiling)}, {value / ceiling:.3f})" if ceiling else ""))
    left, width, step = max(250, 12 + round(6.6 * max(len(row["name"]) for row in rows))), 430, 30
    picture = Picture(max(880, left + width + 20 + 6 * max(map(len, texts))), 96 + step * len(rows) + 34, title,
                      ". ".join(part for part in (source(result), note) if part))
    bottom = 66 + step * len(rows)
    for tick in ticks(top):
        x = left + width * tick / top
        picture.line(x, 62, x, bottom)
        picture.text(x, bottom + 16, figure(tick), size=11, colour=FAINT, anchor="middle")
    picture.text(left, bottom + 34, result.get("scale", "part of the ceiling") if relative else units.pop(), size=11, colour=FAINT)
    for at, (row, (length, mark), text) in enumerate(zip(rows, lengths, texts)):
        y = 68 + step * at
        picture.text(left - 8, y + 15, row["name"], anchor="end")
        picture.box(left, y, width * length / top, step - 9, OLD if row.get("other") or row.get("met") is False else OURS)
        if mark:
            picture.line(left + width * mark / top, y - 3, left + width * mark / top, y + step - 6, LIMIT, 2.5)
        least = number(row, "at_least", needed=False)
        if least is not None:  # what nothing can be below
            x = left + width * min(least / values[at][1] if relative else least, top) / top
            picture.line(x, y - 3, x, y + step - 6, INK, 1.5, "3 2")
        picture.text(left + width + 8, y + 15, text, size=11)
    return picture


def gate_rows(result):
    return [{"name": "call, the driver's own", "value": result.get("bare_ns"), "unit": "ns", "other": True},
            {"name": "call through the gate", "value": result.get("gated_ns"), "unit": "ns"},
            {"name": "the gate alone", "value": result.get("gate_ns"), "unit": "ns", "ceiling": 5, "against": "goal",
             "met": (result.get("gate_ns") or 0) <= 5}]


def alloc_rows(result):
    rows = []
    for each in result["results"]:
        size = next(f"{each['bytes'] >> shift} {unit}" for shift, unit in ((30, "GiB"), (20, "MiB"), (0, "B")) if each["bytes"] >> shift)
        rows.append({"name": f"{size}, {'freed before' if each['way'] == 'again' else 'fresh'}", "value": each["ratio"],
                     "unit": "of the driver's own", "ceiling": 1.1, "against": "at most", "met": each["ratio"] <= 1.1})
    return rows


def patch_rows(result):
    rows = []
    for row in result["rows"]:
        name = row["file"]
        rows.append({"name": f"{name}: cp", "value": row["cp_s"], "unit": "s", "other": True})
        rows.append({"name": f"{name}: patch", "value": row["patch_no_sync_s"], "unit": "s", "ceiling": row["cp_s"], "against": "cp"})
        rows.append({"name": f"{name}: cp + sync", "value": row["cp_and_sync_s"], "unit": "s", "other": True})
        rows.append({"name": f"{name}: patch, synced", "value": row["patch_s"], "unit": "s", "ceiling": row["cp_and_sync_s"],
                     "against": "cp + sync"})
    return rows


ROWS = {"gate": gate_rows, "alloc": alloc_rows, "patch": patch_rows}  # results with fields of their own


def with_rows(result):
    """A result as read from its file, as an object with rows; patch_bench.py --json prints a list."""
    if isinstance(result, list) and result and isinstance(result[0], dict) and "patch_no_sync_s" in result[0]:
        result = {"benchmark": "patch", "rows": result}
    if not isinstance(result, dict) or not isinstance(result.get("benchmark"), str):
        raise Wrong("no object with a 'benchmark'")
    return {**result, "rows": ROWS[result["benchmark"]](result)} if result["benchmark"] in ROWS else result


# --- overhead ---

def solo(result):
    """The ratio of each pair as a dot, the median and its interval, in percent above the unpatched worker's time; the limit as a line."""
    rows, limit = result["rows"], number(result, "limit")
    reach = max(2.5 * limit, 1.1 * max(abs(edge - 1) for row in rows for edge in (row["low"], row["high"])))
    left, width, step = 250, 430, 44
    picture = Picture(880, 100 + step * len(rows) + 34, "What gpushare costs a program that is alone on the card",
                      f"{source(result)}. Time of the same work over unpatched; {result['pairs']} pairs, interval of the median 95 %")
    bottom = 66 + step * len(rows)

    def place(ratio):
        return left + width * (0.5 + (min(max(ratio - 1, -reach), reach)) / (2 * reach))

    for tick in (-1, -0.5, 0, 0.5, 1):
        picture.line(place(1 + tick * reach), 62, place(1 + tick * reach), bottom, INK if tick == 0 else GRID)
        picture.text(place(1 + tick * reach), bottom + 16, f"{tick * reach * 100:+.2f} %", size=11, colour=FAINT, anchor="middle")
    picture.line(place(1 + limit), 58, place(1 + limit), bottom, LIMIT, 2.5)
    picture.text(place(1 + limit), bottom + 32, f"asked for: at most {limit * 100:+.1f} %", size=11, colour=LIMIT, anchor="middle")
    for at, row in enumerate(rows):
        y = 68 + step * at
        colour = OLD if row.get("other") or row.get("met") is False else OURS
        picture.text(left - 8, y + 20, row["name"], anchor="end")
        for ratio in row["ratios"]:
            picture.dot(place(ratio), y + 28, GRID, 2)
        picture.box(place(row["low"]), y + 10, place(row["high"]) - place(row["low"]), 10, colour)
        picture.line(place(row["value"]), y + 5, place(row["value"]), y + 25, INK, 2.5)
        picture.text(left + width + 8, y + 19, f"{(row['value'] - 1) * 100:+.3f} % ({(row['low'] - 1) * 100:+.3f} to {(row['high'] - 1) * 100:+.3f})", size=11)
    return picture


# --- servers beside training ---

CLASSES = {"default": OURS, "interactive": MODEL, "batch": OLD, "background": FAINT}
OTHERS = ("#2f6db5", "#8a5a2b", INK)  # other systems, in the order of the cells


def decades(low, high):
    """1, 2, 5, 10... from the last one below to the first one above."""
    steps = [digit * 10.0 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for digit in (1, 2, 5)]
    return [step for at, step in enumerate(steps)
            if steps[min(at + 1, len(steps) - 1)] > low and (at == 0 or steps[at - 1] < high)]


def frontier_panel(picture, x, y, width, height, cells, part, colours):
    """One quantile of the latency against what training keeps: a line for each class, a point for each rate; the ideal dashed."""
    values = [number(cell, key) for cell in cells for key in (part, "ideal_" + part)]
    scale = decades(min(values), max(values))
    low, high = math.log(scale[0]), math.log(scale[-1])

    def place(kept, seconds):
        return x + width * min(kept, 1), y + height * (1 - (math.log(seconds) - low) / (high - low))

    for kept in (0, 0.2, 0.4, 0.6, 0.8, 1):
        picture.line(place(kept, 1)[0], y, place(kept, 1)[0], y + height)
        picture.text(place(kept, 1)[0], y + height + 15, f"{kept:g}", size=11, colour=FAINT, anchor="middle")
    for seconds in scale:
        picture.line(x, place(0, seconds)[1], x + width, place(0, seconds)[1])
        picture.text(x - 6, place(0, seconds)[1] + 4, f"{seconds:g} s", size=11, colour=FAINT, anchor="end")
    picture.text(x + width / 2, y + height + 32, "what training keeps of its rate alone", size=11, colour=FAINT, anchor="middle")
    picture.text(x + width / 2, y - 8, f"{part} of the requests", anchor="middle", weight="bold")
    for name, colour in colours.items():
        mine = sorted((cell for cell in cells if cell["class"] == name), key=lambda cell: cell["rate"])
        points = [place(number(cell, "kept"), cell[part]) for cell in mine]
        picture.path(points, colour)
        for cell, point in zip(mine, points):
            picture.dot(*point, colour)
            picture.text(point[0] + 5, point[1] - 5, f"{cell['rate']:g}", size=9, colour=colour)
    best = {cell["rate"]: place(number(cell, "ideal_kept"), cell["ideal_" + part]) for cell in cells}
    picture.path([best[rate] for rate in sorted(best)], LIMIT, 1.5, "6 4")
    for point in best.values():
        picture.dot(*point, LIMIT)


def serving(result):
    """Bars of the cases, and below them the frontier."""
    cells = result.get("frontier") or []
    if result.get("rows"):
        picture = bars(result, result["title"], result.get("note", ""))
    else:
        picture = Picture(880, 60, result["title"], source(result))
    if not cells:
        return picture
    others = sorted({cell["class"] for cell in cells} - set(CLASSES))
    colours = {name: colour for name, colour in {**CLASSES, **dict(zip(others, OTHERS * len(others)))}.items()
               if any(cell["class"] == name for cell in cells)}
    top = picture.height + 40
    picture.height, picture.width = top + 350, max(picture.width, 900)
    picture.text(16, top - 26, "A server beside training; at each point: requests a second", size=13, weight="bold")
    for at, part in enumerate(("p50", "p99")):
        frontier_panel(picture, 60 + 430 * at, top, 375, 250, cells, part, colours)
    legend = {**colours, "ideal: the server always goes first": LIMIT}
    for at, (name, colour) in enumerate(legend.items()):
        picture.box(60 + 215 * (at % 4), top + 300 + 20 * (at // 4), 14, 10, colour)
        picture.text(80 + 215 * (at % 4), top + 309 + 20 * (at // 4), name)
    return picture


# --- the thesis ---

def panel(picture, x, y, width, height, column, result):
    """One program of Table 12.2: seconds over serial against the quantum."""
    old = [cell for cell in result["old"] if cell["column"] == column]
    ours = [cell for cell in result["ours"] if cell["column"] == column]
    fixed = [cell for cell in ours if cell["row"] != "quantum automatic"]
    automatic = next(cell for cell in ours if cell["row"] == "quantum automatic")
    bare = next(cell for cell in old if cell["row"] == "no scheduler")
    swept = [cell for cell in old if cell["row"].startswith("quantum ")]
    serial = fixed[0]["seconds"] / fixed[0]["over_serial"]
    low, high = 0.6, 2.05

    def place(quantum, ratio):
        return (x + width * math.log(quantum / 4.5) / math.log(1100 / 4.5),
                y + height * (1 - (min(max(ratio, low), high) - low) / (high - low)))

    for quantum in (5, 10, 20, 50, 100, 200, 500, 1000):
        picture.line(place(quantum, low)[0], y, place(quantum, low)[0], y + height)
        picture.text(place(quantum, low)[0], y + height + 15, str(quantum), size=11, colour=FAINT, anchor="middle")
    for ratio in (0.75, 1, 1.25, 1.5, 1.75, 2):
        picture.line(x, place(5, ratio)[1], x + width, place(5, ratio)[1], INK if ratio == 1 else GRID)
        picture.text(x - 6, place(5, ratio)[1] + 4, f"{ratio:g}", size=11, colour=FAINT, anchor="end")
    bound = fixed[0]["lower_bound_over_serial"]
    picture.line(x, place(5, bound)[1], x + width, place(5, bound)[1], LIMIT, 1.5, "6 4")

    def quantum_of(cell):
        return float(cell["row"].split()[1])
    picture.path([place(quantum_of(cell), cell["model"] / serial) for cell in swept], MODEL)
    for cell in swept:
        picture.dot(*place(quantum_of(cell), cell["published"] / serial), OLD, 5 if cell["calibrated"] else 3.2)
    picture.path([place(quantum_of(cell), cell["over_serial"]) for cell in fixed], OURS, 2.4)
    end = place(1000, automatic["over_serial"])
    picture.parts.append(f"<path d='M{x + width + 4:.1f},{end[1]:.1f} l9,-5 v10 z' fill='{OURS}'/>")
    picture.text(x + width / 2, y - 8, f"{column.replace('_', ', ')} / {100 - int(column[-2:])} GPU/CPU; no scheduler: "
                 f"{bare['published'] / serial:.2f} (model {bare['model'] / serial:.2f})", size=12, anchor="middle", weight="bold")


def thesis(result):
    picture = Picture(900, 750, "Two copies at once on one P100: Table 12.2 of the 2021 thesis, rebuilt",
                      "Seconds over serial, against the quantum in seconds. Simulated (bench/sim).")
    for at, column in enumerate(("big_90", "big_50", "small_90", "small_50")):
        panel(picture, 60 + 430 * (at % 2), 90 + 310 * (at // 2), 375, 250, column, result)
    legend = ((OLD, "thesis, measured (large: calibrated on)"), (MODEL, "the thesis' way, modelled"), (OURS, "gpushare, modelled; arrow: automatic quantum"),
              (LIMIT, "CPU part + both GPU parts after each other"))
    for at, (colour, words) in enumerate(legend):
        picture.box(60 + 430 * (at % 2), 700 + 20 * (at // 2), 14, 10, colour)
        picture.text(82 + 430 * (at % 2), 709 + 20 * (at // 2), words)
    return picture


# --- files ---

TITLES = {"handoff": ("A hand-off: one program's memory out, the next one's in", ""),
          "release": ("Copies both ways, and what is done to the memory meanwhile", ""),
          "sim": ("Policies in the simulator, against what is asked of them", ""),
          "sched": ("gpushare-lockd with a thousand programs, against what is asked of it", ""),
          "gate": ("What a gated call costs", "Shorter is better."),
          "alloc": ("cuMemAlloc and cuMemFree, a pair", "Shorter is better."),
          "patch": ("gpushare-patch against a copy of the same file", "Shorter is better.")}
TITLES["lock"] = TITLES["sched"]  # its name in results until 2026-11-24


def draw(result):
    """A picture of a result as read from its file."""
    try:
        result = with_rows(result)
        special = {"thesis": thesis, "solo": solo, "serving": serving}.get(result["benchmark"])
        if special:
            return special(result)
        title, note = TITLES.get(result["benchmark"], (result["benchmark"], ""))
        return bars(result, result.get("title") or title, result.get("note", note))
    except (KeyError, StopIteration, TypeError, IndexError, ZeroDivisionError, ValueError) as error:
        raise Wrong(f"{type(error).__name__} {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="compare with the pictures in FOLDER, write nothing")
    options = parser.parse_args()
    status = 0
    for path in options.results:
        target = os.path.join(options.output, os.path.splitext(os.path.basename(path))[0] + ".svg")
        try:
            with open(path, encoding="utf-8") as file:
                svg = draw(json.load(file)).svg()
            if not options.check:
                with open(target, "w", encoding="utf-8") as file:
                    file.write(svg)
                continue
            with open(target, encoding="utf-8") as file:
                if file.read() != svg:
                    raise Wrong(f"{target} is older; run bench/plot.py -o {options.output} {path}")
        except (OSError, ValueError, Wrong) as error:
            print(f"plot.py: {path}: {error}", file=sys.stderr)
            status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
