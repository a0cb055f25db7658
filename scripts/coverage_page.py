#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/coverage.md from wrap/coverage.md.in: lists and tables of wrap/driver_api.def take the places of its lines @NAME.

usage: scripts/coverage_page.py [--check]    --check: changes nothing; exit status 1 if it would"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/coverage.md"
Row = collections.namedtuple("Row", "kind symbol base since variant family")
CLASSES = {
    "PASS": ("passed", "goes to the driver untouched; never replaced"),
    "GATE": ("gated", "submits GPU work or needs device memory in place: runs inside the gate"),
    "SYNC": ("noted", "waits for GPU work or asks about it: outside the gate, noted as activity"),
    "ROOM": ("room", "may take device memory that cannot be moved: when the card is full, room is asked for and it is tried again"),
    "HOOK": ("own", "has a body of its own in runtime/"),
}
FAMILIES = {
    "LAUNCH": "Launches",
    "COPY": "Copies",
    "SET": "Fills",
    "WORK": "Other queued work",
    "EVENT": "Events between streams",
    "ALLOC": "Memory, arrays, textures",
    "MODULE": "Modules, libraries, kernels",
    "CTX": "Devices' contexts",
    "CAPTURE": "Stream capture and graphs",
    "SYNC": "Waiting and asking",
    "QUERY": "Queries",
    "INIT": "Start",
    "RESOLVE": "Looking functions up",
    "CKPT": "Checkpoints",
    "OTHER": "Others",
}


def version(since):
    return f"{since // 1000}.{since % 1000 // 10}"


def make_head(rows):
    return [f"Every function that libcuda exports (CUDA {version(max(row.since for row in rows))}: {len(rows)}) and what gpushare does when a "
            "program calls it."]


def make_classes(rows):
    return [f"- **{name}** ({sum(row.kind == kind for row in rows)}): {meaning}" for kind, (name, meaning) in CLASSES.items()]


def make_counts(rows):
    lines = ["| family | " + " | ".join(name for name, _ in CLASSES.values()) + " | all |", "|---|" + "--:|" * (len(CLASSES) + 1)]
    for family, meaning in [*FAMILIES.items(), (None, "**all**")]:
        those = [row for row in rows if family in (None, row.family)]
        lines.append(f"| {meaning} | " + " | ".join(str(sum(row.kind == kind for row in those)) for kind in CLASSES) + f" | {len(those)} |")
    return lines


def make_families(rows):
    """One line for each base name of a family and class: its symbols, with the version in which each appeared."""
    lines = make_counts(rows)
    for family, meaning in FAMILIES.items():
        lines += ["", f"## {meaning}"]
        for kind in reversed(CLASSES):
            bases = collections.defaultdict(list)
            for row in rows:
                if (row.family, row.kind) == (family, kind):
                    bases[row.base].append(f"`{row.symbol}` ({version(row.since)})")
            if bases:
                lines += ["", f"### {meaning}: {CLASSES[kind][0]}", ""]
            lines += [f"- `{base}`: {', '.join(symbols)}" for base, symbols in bases.items()]
    return lines


def make_page():
    table = (ROOT / "wrap/driver_api.def").read_text(encoding="utf-8")
    rows = [Row(kind, symbol, base, int(since), variant, family) for kind, symbol, base, since, variant, family in
            re.findall(r"^GS_(PASS|GATE|SYNC|ROOM|HOOK)\((\w+),\s*(\w+),\s*(\d+),\s*(\w*),\s*(\w+)", table, re.M)]
    unknown = {row.family for row in rows} - set(FAMILIES)
    if unknown:
        sys.exit(f"coverage_page.py: no heading for the family {', '.join(unknown)}")
    parts = {"@head": make_head(rows), "@classes": make_classes(rows), "@families": make_families(rows),
             "@side": [f"- `{base}`" for base in re.findall(r"^GS_SIDE\((\w+)\)", table, re.M)]}
    text = (ROOT / "wrap/coverage.md.in").read_text(encoding="utf-8")
    return "\n".join("\n".join(parts.get(line, [line])) for line in text.split("\n"))


def main():
    made = make_page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif made != PAGE.read_text(encoding="utf-8"):
        sys.exit("docs/coverage.md is not what wrap/driver_api.def makes: run 'ninja coverage_doc' and commit the page")


if __name__ == "__main__":
    main()
