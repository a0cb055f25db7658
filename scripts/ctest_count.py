#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up ctest's JUnit files: prints 'N passed, N failed, N skipped' and names what failed or was skipped.

Exit 1 if anything failed or if nothing ran at all."""
import sys
import xml.etree.ElementTree as ElementTree

counts = {"passed": 0, "failed": 0, "skipped": 0}
for path in sys.argv[1:]:
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        if status in ("notrun", "disabled") or case.find("skipped") is not None:
            kind = "skipped"
        elif status == "run" and case.find("failure") is None:
            kind = "passed"
        else:
            kind = "failed"
        counts[kind] += 1
        if kind != "passed":
            print(f"{kind}: {case.get('name')} ({path})")
print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
sys.exit(1 if counts["failed"] or not counts["passed"] else 0)
