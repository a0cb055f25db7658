#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/monitoring.md from what `gpusharectl metrics` says without a daemon: all families, which come from the table of
figures, and no series.

usage: scripts/metrics_doc.py [--build build/dev] [--check]    --check: changes nothing; exit status 1 if it would"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = os.path.join(ROOT, "docs/monitoring.md")
TABLE = re.compile(r"(<!-- metrics: begin[^\n]*-->\n).*(<!-- metrics: end -->)", re.S)


def make_table(text):
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    return "\n| metric | type | meaning |\n|---|---|---|\n" + "".join(f"| `{name}` | {kind} | {helps[name]} |\n" for name, kind in kinds) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/dev"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    listed = subprocess.run([os.path.join(options.build, "lockd/gpusharectl"), "--socket", "/nowhere/x", "metrics"], check=True,
                            capture_output=True, text=True).stdout
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    made = TABLE.sub(lambda found: found[1] + make_table(listed) + found[2], page)
    if made == page:
        return
    if options.check:
        sys.exit("docs/monitoring.md: the table of metrics is not that of gpusharectl metrics; run scripts/metrics_doc.py")
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(made)


if __name__ == "__main__":
    main()
