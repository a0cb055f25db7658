#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the results of run.sh as JSON: report.py RESULTS.tsv COMMIT-FILE LIMIT CARD"""
import json, os, platform, subprocess, sys
from datetime import datetime, timezone


def commit(path):
    try:
        return open(path).read().strip()
    except OSError:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        return found.stdout.strip()


rows = [line.rstrip("\n").split("\t", 3) for line in open(sys.argv[1])]
card = [part.strip() for part in sys.argv[4].split(",")] + ["", "", ""]
json.dump({
    "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    "commit": commit(sys.argv[2]),
    "card": card[0], "card_memory": card[1], "driver": card[2],
    "limit": sys.argv[3],
    "host": {"kernel": platform.release(), "cpus": os.cpu_count(), "libc": " ".join(platform.libc_ver())},
    "cases": [{"result": r[0], "name": r[1], "seconds": float(r[2]), "detail": r[3]} for r in rows],
}, sys.stdout, indent=1)
print()
