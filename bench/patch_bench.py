#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times gpushare-patch against a copy of the same file, in the same run.

Two pairs are measured, alternating, --rounds times, best and median: writing to the page cache (cp, and gpushare-patch
--no-sync) and writing to the disk (cp and sync FILE, and gpushare-patch as it is). Files: those given; default libcublasLt of the toolkit
and one of 2.3 GB made from it by lengthening its last section. Prints both times, their ratio and the peak memory; exit 1
if the ratio of the first pair is above --limit or the memory above --memory.
"""
import argparse
import glob
import json
import os
import shutil
import statistics
import struct
import sys
import tempfile
import time


def timed(*commands):
    """Wall seconds of all commands, and the peak memory (MB) of the largest."""
    peak = 0
    start = time.monotonic()
    for command in commands:
        pid = os.posix_spawn(command[0], command, os.environ)
        _, status, usage = os.wait4(pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)}: status {status}")
        peak = max(peak, usage.ru_maxrss / 1024)
    return time.monotonic() - start, peak


def enlarge(source, target, size):
    """A copy with one more section of random bytes behind everything, named as the last one; a valid ELF file."""
    old = os.path.getsize(source)
    shutil.copyfile(source, target)
    with open(target, "r+b") as out:
        head = bytearray(out.read(64))
        shoff, = struct.unpack_from("<Q", head, 40)
        shnum, = struct.unpack_from("<H", head, 60)
        out.seek(shoff)
        table = bytearray(out.read(64 * shnum))
        extra = bytearray(table[-64:])
        start = (old + 63) // 64 * 64
        length = (size - start - 64 * (shnum + 1)) // 64 * 64
        struct.pack_into("<IQQQQIIQQ", extra, 4, 1, 0, 0, start, length, 0, 0, 1, 0)  # PROGBITS, not loaded
        struct.pack_into("<Q", head, 40, start + length)
        struct.pack_into("<H", head, 60, shnum + 1)
        out.seek(0)
        out.write(head)
        out.seek(start)
        block, left = os.urandom(1 << 20), length
        while left:
            left -= out.write(block[:left])
        out.write(table + extra)


def measure(options, path, folder):
    copy, new = os.path.join(folder, "copy"), os.path.join(folder, "new")
    cp, sync = shutil.which("cp"), shutil.which("sync")
    patch = [options.patch, "-q", "--runtime", options.runtime, "--any", "-o", new, path]
    times, peak, load = {"cp": [], "patch": [], "cp_sync": [], "patch_sync": []}, 0, os.getloadavg()[0]
    with open(path, "rb") as f:  # into the page cache
        while f.read(1 << 20):
            pass
    for _ in range(options.rounds):
        for name, commands in (("cp", [[cp, path, copy]]), ("patch", [patch[:1] + ["--no-sync"] + patch[1:]]),
                               ("cp_sync", [[cp, path, copy], [sync, copy]]), ("patch_sync", [patch])):
            for leftover in (copy, new):
                if os.path.exists(leftover):
                    os.unlink(leftover)
            os.sync()
            seconds, used = timed(*commands)
            times[name].append(seconds)
            if name.startswith("patch"):
                peak = max(peak, used)
    best = {name: min(t) for name, t in times.items()}
    median = {name: statistics.median(t) for name, t in times.items()}
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "rounds": options.rounds,
            "load": [round(load, 1), round(os.getloadavg()[0], 1)],
            "cp_s": round(best["cp"], 3), "patch_no_sync_s": round(best["patch"], 3), "ratio": round(best["patch"] / best["cp"], 3),
            "cp_and_sync_s": round(best["cp_sync"], 3), "patch_s": round(best["patch_sync"], 3),
            "ratio_synced": round(best["patch_sync"] / best["cp_sync"], 3),
            "ratio_of_medians": round(median["patch"] / median["cp"], 3),
            "ratio_of_medians_synced": round(median["patch_sync"] / median["cp_sync"], 3), "peak_mb": round(peak, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", required=True, help="gpushare-patch")
    parser.add_argument("--runtime", required=True, help="a runtime library")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.2)
    parser.add_argument("--memory", type=float, default=32, help="MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scratch", default=None, help="folder on the file system to be measured")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpushare-bench.", dir=options.scratch) as folder:
        files = list(options.files)
        if not files:
            found = sorted(glob.glob("/usr/local/cuda/lib64/libcublasLt.so.[0-9]*"), key=len)
            if not found:
                print("skipped: no libcublasLt in /usr/local/cuda/lib64; name a file")
                return 77
            files = [shutil.copy(os.path.realpath(found[0]), os.path.join(folder, "libcublasLt")),
                     os.path.join(folder, "2.3 GB")]
            enlarge(files[0], files[1], 2_300_000_000)
        rows = [measure(options, path, folder) for path in files]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        for r in rows:
            print(f"{r['file']} ({r['bytes'] / 1e6:.0f} MB): cp {r['cp_s']} s, patch --no-sync {r['patch_no_sync_s']} s, ratio {r['ratio']} "
                  f"(medians {r['ratio_of_medians']}); cp + sync {r['cp_and_sync_s']} s, patch {r['patch_s']} s, ratio {r['ratio_synced']} "
                  f"(medians {r['ratio_of_medians_synced']}); peak {r['peak_mb']} MB; load {r['load'][0]} to {r['load'][1]}")
    return 1 if any(r["ratio"] > options.limit or r["peak_mb"] > options.memory for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
