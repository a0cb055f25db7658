#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the two pictures of a real run that README shows, and the guide's: scripts/terminal_svg.py [RUN] [--out docs] [--check].

RUN is what ./demo.sh printed (default: the run on a real card that docs/results keeps). docs/terminal.svg shows its lines
unchanged; docs/together.svg shows the seconds of its closing table as bars; docs/status.svg shows what scripts/status_run.sh
printed on the simulated card. --check writes nothing and fails when the
pictures are not those of RUN. New pictures: ./demo.sh >docs/results/demo-CARD-DATE.txt, then this script with that file.
"""
import argparse
import pathlib
import re
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ROOT / "docs/results/demo-h200-2026-11-23.txt"
STATUS = ROOT / "docs/results/status-sim-2026-11-23.txt"
# what is shown: sections by the beginning of their headings; a kept run may be older than the numbers of the steps
SHOWN = re.compile(r"\d\. (Two unpatched|The same file|Two patched|What it cost)|All as|one after")
COLUMNS = 119
CELL, LINE, TOP, PAD = 7.23, 17, 48, 16
PROMPT, HEAD, TEXT, BACK, BAR, DIM = "#7ee787", "#ffffff", "#e6edf3", "#161b22", "#30363d", "#8b949e"
BARS = (("two, one after the other", "one after the other", DIM),
        ("two at once, patched", "at once, patched", "#2da44e"),
        ("two at once, linked", "at once, linked", "#2da44e"))


def read_run(path):
    text = re.sub(r"\x1b\[[0-9;]*m", "", path.read_text())
    if "All as it should be." not in text:
        sys.exit(f"terminal_svg.py: {path}: that run of demo.sh did not end well")
    return [line.rstrip() for line in text.splitlines()]


def select_lines(lines):
    """The sections of SHOWN, whole, each with its heading."""
    shown, inside = [], False
    for line in lines:
        if line and not line.startswith("    "):
            inside = SHOWN.match(line)
        if inside:
            shown.append(line)
    while shown and not shown[-1]:
        shown.pop()
    return shown


def draw_line(text, row, columns):
    if len(text) > columns:
        sys.exit(f"terminal_svg.py: longer than {columns} columns: {text}")
    look = f'fill="{HEAD}" font-weight="bold"' if text and not text.startswith(" ") else f'fill="{TEXT}"'
    return f'<text x="{PAD}" y="{TOP + row * LINE}" {look} xml:space="preserve">{escape(text)}</text>'


def draw_terminal(lines, title, command, columns):
    width, height = round(columns * CELL + 2 * PAD), TOP + (len(lines) + 1) * LINE
    dots = "".join(f'<circle cx="{20 + 20 * i}" cy="14" r="6" fill="{colour}"/>'
                   for i, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")))
    body = "\n".join(draw_line(line, row + 1, columns) for row, line in enumerate(lines) if line)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="What {command} printed on {escape(title)}">\n'
            f'<rect width="{width}" height="{height}" rx="8" fill="{BACK}"/>\n'
            f'<path d="M0 28 V8 a8 8 0 0 1 8 -8 H{width - 8} a8 8 0 0 1 8 8 V28 z" fill="{BAR}"/>\n{dots}\n'
            f'<text x="{width / 2}" y="19" text-anchor="middle" fill="{DIM}" font-family="sans-serif" font-size="12">'
            f'{escape(title)}</text>\n'
            f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">\n'
            f'<text x="{PAD}" y="{TOP}" fill="{PROMPT}" xml:space="preserve">$ {command}</text>\n'
            f'{body}\n</g>\n</svg>\n')


def find_seconds(lines, name):
    for line in lines:
        if match := re.fullmatch(rf"\s+{re.escape(name)}\s+([0-9.]+)\s+[0-9.]+\s+[0-9]+", line):
            return float(match[1])
    sys.exit(f"terminal_svg.py: the run has no line '{name}'")


def draw_bars(lines, title):
    rows = [(label, find_seconds(lines, name), colour) for name, label, colour in BARS]
    scale = 460 / max(seconds for _, seconds, _ in rows)
    height = 52 + 38 * len(rows)
    parts = []
    for i, (label, seconds, colour) in enumerate(rows):
        y = 46 + 38 * i
        parts.append(f'<text x="180" y="{y + 18}" text-anchor="end">{escape(label)}</text>'
                     f'<rect x="192" y="{y}" width="{seconds * scale:.0f}" height="26" rx="3" fill="{colour}"/>'
                     f'<text x="{202 + seconds * scale:.0f}" y="{y + 18}" font-weight="bold">{seconds:.1f} s</text>')
    body = "\n".join(parts)
    said = "; ".join(f"{label} {seconds:.1f} s" for label, seconds, _ in rows)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" '
            f'role="img" aria-label="Seconds until two programs are done: {said}" '
            f'font-family="sans-serif" font-size="14" fill="#223">\n<rect width="760" height="{height}" fill="#fff"/>\n'
            f'<text x="20" y="26" font-weight="bold">Seconds until two programs, 70 % of the memory each, are done '
            f'({escape(title.split(",")[0])})</text>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, nargs="?", default=RUN, metavar="RUN")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    lines = read_run(options.run)
    title = next(match[1] for line in lines if (match := re.match(r"(?:0\. The programs|    card): (.*)", line)))
    status = STATUS.read_text().splitlines()
    pictures = {"terminal.svg": draw_terminal(select_lines(lines), title, "./demo.sh", COLUMNS),
                "together.svg": draw_bars(lines, title),
                "status.svg": draw_terminal(status[1:], "the simulated card", status[0].removeprefix("$ "), 80)}
    old = [name for name, text in pictures.items()
           if not (options.out / name).exists() or (options.out / name).read_text() != text]
    if options.check:
        if old:
            sys.exit(f"terminal_svg.py: not what {options.run} makes: {', '.join(old)}; run scripts/terminal_svg.py")
        return
    for name in old:
        (options.out / name).write_text(pictures[name])
        print(f"wrote {options.out / name}")


if __name__ == "__main__":
    main()
