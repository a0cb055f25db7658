#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the lines of each top folder that tests have reached: scripts/coverage.py [build/coverage].

After  cmake --preset coverage && cmake --build build/coverage && ctest --test-dir build/coverage  it asks gcov about every
object that ran, merges the lines of files that were built several times, and prints one row for each folder.
"""
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("common", "wrap", "rewriter", "runtime", "lockd", "cluster")
BATCH = 50


def read_counts(build):
    """{file: {line: True if it ran}} of all objects below build."""
    lines = collections.defaultdict(dict)
    notes = sorted(map(str, build.rglob("*.gcno")))
    if not notes:
        sys.exit(f"coverage.py: no .gcno file below {build}; build the preset coverage first")
    for at in range(0, len(notes), BATCH):
        done = subprocess.run(["gcov", "--json-format", "--stdout", *notes[at:at + BATCH]], cwd=build, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        for text in done.stdout.splitlines():
            report = json.loads(text)
            for file in report["files"]:
                path = (pathlib.Path(report["current_working_directory"]) / file["file"]).resolve()
                for line in file["lines"]:
                    reached = lines[path].get(line["line_number"], False)
                    lines[path][line["line_number"]] = reached or line["count"] > 0
    return lines


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/coverage").resolve()
    ran, all_lines = collections.Counter(), collections.Counter()
    for path, lines in read_counts(build).items():
        if not path.is_relative_to(ROOT):
            continue
        folder = path.relative_to(ROOT).parts[0]
        if folder in FOLDERS:
            ran[folder] += sum(lines.values())
            all_lines[folder] += len(lines)
    print("folder      lines   reached")
    for folder in FOLDERS:
        part = 100 * ran[folder] / all_lines[folder] if all_lines[folder] else 0
        print(f"{folder:10} {all_lines[folder]:6}   {part:5.1f} %")


if __name__ == "__main__":
    main()
