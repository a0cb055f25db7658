#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patches the files of hard_builds.py, and checks that each is right or refused for the right reason.

A file is right when the program (hard.c) still finds everything about itself in order, its dlsym calls arrive in the
stand-in library, the same holds after strip, a second run changes nothing, and --restore gives the same bytes back.
"""
import argparse
import collections
import concurrent.futures
import copy
import json
import os
import shutil
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
from hard_bench import CROSS, HERE, SYSROOT, USER, Bench, NotHere, sh
from hard_builds import cases


def behaviour(b, path, flags):
    env = {"STANDIN_REPORT": "1", "LD_LIBRARY_PATH": b.libcuda + ":/usr/local/cuda/lib64"}
    if "aarch64" in flags:
        return 0, "right\n", "standin: dlsym 1 driver 0"
    if "qemu" in flags:
        return sh(["qemu-aarch64", "-L", SYSROOT, path], b.folder, env)
    if "versioned" in flags:
        return sh([b.user, path, "HARD_2"], b.folder, env)
    return sh([b.user, path] if "library" in flags else [path], b.folder, env)


def counted(err):
    """(dlsym, driver) calls that the stand-in saw."""
    for line in err.splitlines():
        if line.startswith("standin:"):
            words = line.split()
            return int(words[2]), int(words[4])
    return 0, 0


def sections(data):
    """[(name, type, flags, address, size)] of the section headers; [] without headers."""
    off, (n, names) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<HH", data, 60)
    if not n:
        return []
    rows = [struct.unpack_from("<IIQQQQ", data, off + 64 * i) for i in range(n)]
    start = rows[names][4]
    return [(data[start + r[0]:data.index(b"\0", start + r[0])].decode(), *r[1:4], r[5]) for r in rows]


def dynamic_tags(data):
    phoff, n = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for i in range(n):
        kind, _, off, _, _, size = struct.unpack_from("<IIQQQQ", data, phoff + 56 * i)
        if kind == 2:
            tags = [struct.unpack_from("<Q", data, off + at)[0] for at in range(0, size - 15, 16)]
            return tags[:tags.index(0)] if 0 in tags else tags
    return []


def check_tables(old, new):
    """Every section header is still there, in its place, and the one new dynamic entry precedes the first DT_NEEDED."""
    before, after = sections(old), sections(new)
    if len(after) < len(before):
        return f"{len(before)} section headers became {len(after)}"
    for a, b in zip(before, after):
        moved = a[0] in (".dynstr", ".shstrtab")
        if not moved and (a[:3], a[4]) != (b[:3], b[4]):
            return f"section {a} became {b}"
    given_up = [0x6ffffff9, 24, 0x6fffffff]  # DT_RELACOUNT, DT_BIND_NOW, DT_VERNEEDNUM
    tags, now = dynamic_tags(old), dynamic_tags(new)
    first = tags.index(1) if 1 in tags else 0
    wanted = tags[:first] + [1] + tags[first:]
    if now != wanted and not any(now == wanted[:i] + wanted[i + 1:] for i, t in enumerate(wanted) if t in given_up):
        return f"dynamic tags {tags} became {now}"
    return None


def check_right(b, path, flags, tool):
    original = open(path, "rb").read()
    problem = check_plan(path, flags, tool)
    if problem:
        return problem
    before = behaviour(b, path, flags)
    if before[0] != (3 if "driver" in flags else 0):
        raise RuntimeError("the unpatched file does not run: " + before[2])
    status, out, err = sh(tool + [path])
    if status != 0:
        return f"patch: exit {status}: {err.strip()}"
    patched = open(path, "rb").read()
    problem = check_run(b, path, flags) or check_tables(original, patched)
    if problem:
        return problem
    headers = int.from_bytes(patched[60:62], "little")
    if "overlay" in flags and (len(patched) != len(original) or patched[-7000:] != b"PAYLOAD" * 1000):
        return "the payload moved"
    if "overlay" in flags and "note: strip would break this file" not in out:  # it would start, and not be routed
        return "no warning of strip"
    if headers and "note: strip would break this file" not in out and "overlay" not in flags:  # strip drops any payload
        copy = path + ".stripped" + (".so" if "library" in flags else "")
        if "aarch64" not in flags:
            if sh([(CROSS if "qemu" in flags else "") + "strip", "-o", copy, path])[0] != 0:
                return "strip fails"
            problem = check_run(b, copy, flags)
            if problem:
                return "after strip: " + problem
            problem = check_unstrip(b, original, copy, (CROSS if "qemu" in flags else "") + "strip", flags)
            if problem:
                return problem
    again = sh(tool + [path])
    if again[0] != 0 or "already patched" not in again[1] or open(path, "rb").read() != patched:
        return f"second run: exit {again[0]} {again[1]} {again[2]}"
    if "aarch64" in flags:
        problem = check_other(path)
        if problem:
            return problem
    if sh([b.o.patch, "--restore", path])[0] != 0 or open(path, "rb").read() != original:
        return "restore"
    return None


def check_plan(path, flags, tool):
    """The writing strategies that the case is there for ("plan=end") are those that are used."""
    wanted = [f[5:] for f in flags if f.startswith("plan=")]
    if not wanted:
        return None
    plan = json.loads(sh(tool + ["--print", "--json", path])[1]).get("plan", {})
    return None if set(wanted) <= {plan.get("dynamic"), plan.get("program_header")} else f"plan is {plan}, not {wanted}"


def check_unstrip(b, original, patched, strip, flags):
    """--restore of a stripped patched file gives what strip makes of the original."""
    wanted = patched + ".wanted"
    open(wanted, "wb").write(original)
    sh([strip, wanted])
    status, _, err = sh([b.o.patch, "--restore", patched])
    if status == 3 and "strip clears" in flags and "its loaded part is no longer the original's" in err:
        return None
    if status != 0:
        return "restore after strip: " + err.strip()
    if "strip mends" in flags:  # program headers that the linker wrote carelessly
        return None if behaviour(b, patched, flags)[0] == 0 else "restored after strip, it does not run"
    return None if open(patched, "rb").read() == open(wanted, "rb").read() else "restore after strip: not what strip makes"


def check_run(b, path, flags):
    status, out, err = behaviour(b, path, flags)
    dlsym, driver = counted(err)
    if "cuda" in flags:
        return None if dlsym > 0 and status == 0 else f"exit {status}, {dlsym} dlsym routed: {err.strip()[:200]}"
    if status != 0 or "right" not in out:
        return f"exit {status}: {out.strip()} {err.strip()}"
    if "silent" in flags:  # ends without destructors: nothing is counted
        return None
    if dlsym == 0 or ("driver" in flags and driver < 2 + ("address" in flags)):
        return f"not routed: dlsym {dlsym}, driver {driver}"
    return None


def check_other(path):
    """A file that cannot run here is at least read by binutils' tools, with the new names in it."""
    out = sh(["readelf", "-W", "--dyn-syms", "-d", "-l", path])
    if "__wrap_dlsym" not in out[1] or "libgpushare.so.1" not in out[1] or out[2].strip():
        return "readelf: " + out[2].strip()
    if "0x10000\n" not in out[1]:
        return "no 64 KiB alignment"
    return None


def check_refused(path, reason, tool):
    before, stat = open(path, "rb").read(), os.stat(path)
    status, out, err = sh(tool + [path])
    if status == 0:
        return "was not refused"
    if reason not in err or len(err.strip().splitlines()) != 1:
        return f"exit {status}: {err.strip()}"
    now = os.stat(path)
    if open(path, "rb").read() != before or (now.st_ino, now.st_mtime_ns) != (stat.st_ino, stat.st_mtime_ns):
        return "the refused file was touched"
    return None


def run_case(base, index):
    """(result, name, reason); result: ok, refused, skipped or FAILED. In a folder of its own."""
    b = copy.copy(base)
    b.folder = os.path.join(base.folder, str(index))
    os.mkdir(b.folder)
    name, build, expect, *flags = list(cases(b))[index]
    flags = flags[0] if flags else []
    runtime = b.other_runtime if "qemu" in flags else b.o.runtime
    tool = [b.o.patch, "--any", "--runtime", runtime] + (["--force"] if "aarch64" in flags else [])
    try:
        path = build()
        problem = check_right(b, path, flags, tool) if expect == "right" else check_refused(path, expect, tool)
    except NotHere as missing:
        return "skipped", name, f"not here: {missing}"
    except RuntimeError as error:
        problem = "could not be built: " + str(error)[:300]
    return ("FAILED", name, problem) if problem else ("ok", name, "") if expect == "right" else ("refused", name, expect)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--only", help="part of a name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.patch, options.runtime = os.path.abspath(options.patch), os.path.abspath(options.runtime)
    if not shutil.which("gcc"):
        print("skipped: gcc is not installed")
        return 77
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="gpushare-hard.") as folder:
        b = Bench(options, folder)
        b.user = b.cc(source=USER)
        b.other_runtime = os.path.join(folder, "aarch64", "libgpushare.so.1")
        b.libcuda = os.path.join(folder, "driver")
        os.mkdir(b.libcuda)
        os.rename(b.cc("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source=os.path.join(HERE, "hard_libcuda.c")),
                  os.path.join(b.libcuda, "libcuda.so.1"))
        wanted = [i for i, case in enumerate(cases(b)) if not options.only or options.only in case[0]]
        with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:  # not threads: see test_corpus.py
            for result, name, reason in pool.map(run_case, [b] * len(wanted), wanted):
                counts[result] += 1
                print(f"{result:<8} {name}{': ' + reason if reason else ''}", flush=True)
    print(f"{counts['ok']} right, {counts['refused']} refused as they should be, {counts['FAILED']} wrong, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] or not counts["ok"] + counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
