#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patches copies of many real ELF files and checks that each behaves as before; patchelf does the same beside it.

For every file: the patched copy starts (programs: --version; libraries: dlopen) with the same result as an unpatched copy,
also after strip (where the stripped original starts so, too); eu-elflint reports nothing new; a second run changes nothing; --restore gives the same bytes back, and after
strip what strip makes of the original (or refuses because strip cleared more than its own). Exit status 0 only if nothing of
ours is broken. Without --all a fixed sample is taken, so that runs can be compared. Programs that act on the machine however
they are called (NOT_STARTED) are only loaded: the loader lists what it maps for them, without running them.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

OPTIONS = argparse.Namespace()
ALL_FOLDERS = ["/usr/bin", "/usr/lib", "/usr/local/cuda/"]
DEFAULT_FOLDERS = ["/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64", "/usr/local/cuda/bin"]
# programs that act on the machine whatever their arguments are, and why each is only loaded
NOT_STARTED = [(re.compile(r"^/usr/lib/systemd/(systemd$|systemd-)"), "a service of systemd: acts on the machine"),
               (re.compile(r"^/usr/lib/systemd/.*-generators/"), "a generator of systemd: writes units"),
               (re.compile(r"/killall5$"), "kills every process")]


KINDS = ("patch", "start", "strip", "lint", "second run", "restore", "restore after strip")  # of breakage


def not_started(path):
    """Why the program must not be run, or None."""
    return next((why for pattern, why in NOT_STARTED if pattern.search(path)), None)


def elf_kind(path):
    """'program', 'library' or None; only dynamically linked ELF64 x86-64 files count."""
    try:
        with open(path, "rb") as f:
            head = f.read(64)
            if head[:6] != b"\x7fELF\x02\x01" or head[18:20] != b"\x3e\x00":
                return None
            off, n = int.from_bytes(head[32:40], "little"), int.from_bytes(head[56:58], "little")
            f.seek(off)
            types = {int.from_bytes(f.read(56)[:4], "little") for _ in range(n)}
    except OSError:
        return None
    if 2 not in types:
        return None
    return "library" if 3 not in types or ".so" in os.path.basename(path) else "program"


def find_files(folders, limit, largest, recursive=False):
    seen, found = set(), []
    for folder in folders:
        if recursive:
            names = sorted(os.path.join(at, f) for at, _, here in os.walk(folder) for f in here)
        else:
            names = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        for name in names:
            path = os.path.realpath(name)
            if path in seen or not os.path.isfile(path) or os.path.getsize(path) > largest:
                continue
            seen.add(path)
            kind = elf_kind(path)
            if kind and not path.endswith(".debug"):  # separate debug information: nothing to load
                found.append((path, kind))
    if limit and len(found) > limit:  # the same choice every time
        found.sort(key=lambda f: hashlib.sha256(os.path.basename(f[0]).encode()).digest())
        found = sorted(found[:limit])
    return found


def run(command, cwd, timeout=20, **more):
    """(exit status, output) of a command that cannot reach the terminal; its whole session ends with it."""
    env = {"PATH": "/usr/bin:/bin", "HOME": cwd, "LC_ALL": "C", "TMPDIR": cwd, "TERM": "dumb", "GPUSHARE_STATE": cwd, **more}
    try:
        started = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as e:  # a file that the kernel does not run
        return e.errno, b""
    with started as child:
        try:
            out = child.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return "timeout", child.communicate()[0]
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass
    return child.returncode, out


def lint(path):
    out = run(["eu-elflint", "--gnu-ld", path], "/", 60)[1].decode("utf-8", "replace")
    return {re.sub(r"0x[0-9a-f]+|[0-9]+", "N", line) for line in out.splitlines()
            if line != "No errors"}


class Case:
    def __init__(self, options, path, kind, folder):
        self.options, self.path, self.kind, self.folder = options, path, kind, folder
        self.base = os.path.basename(path)
        self.bad = []       # what of ours is broken
        self.peer_bad = []  # what of patchelf's is
        self.seconds = self.peer_seconds = 0.0
        self.note = ""
        self.unstripped = ""  # what came of restoring the stripped file

    def copy(self, sub):
        folder = os.path.join(self.folder, sub)
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, self.base)
        shutil.copyfile(self.path, target)
        os.chmod(target, 0o755)
        return target

    def behaviour(self, path, timeout=20):
        """What the file does when used, without what depends on where it lies."""
        if self.kind == "program" and not_started(self.path):  # the loader only says what it mapped
            status, out = run([path], os.path.dirname(path), LD_TRACE_LOADED_OBJECTS="1")
            lines = (re.sub(rb" \(0x[0-9a-f]+\)", b"", line) for line in out.splitlines())
            return status, sorted(line for line in lines if not re.search(rb"libgpushare|linux-vdso|libdl\.so", line))
        command = [path, "--version"] if self.kind == "program" else [self.options.dlload, path]
        status, out = run(command, os.path.dirname(path), timeout)
        out = out.replace(os.path.dirname(path).encode(), b"DIR")
        out = out.replace(b"\xc2\xa0", b" ")  # Go's protobuf takes either space, by a hash of the program's file
        return status, re.sub(rb"0x[0-9a-f]+|[0-9]+", b"N", out)

    def same(self, path):
        """Whether it behaves as an unpatched copy does in any of several runs: some programs are not the same twice."""
        got = self.behaviour(path, 20 if self.before[0] == "timeout" else 120)  # slow under load is not broken
        for _ in range(8):
            if got in self.seen or "timeout" in (got[0], self.before[0]) and got[0] == self.before[0]:
                return True
            again = self.behaviour(self.original, 20 if got[0] == "timeout" else 120)  # the original may have been slow, too
            if again not in self.seen:
                self.seen.append(again)
        if got in self.seen or (len(self.seen) > 1 and got[0] in [s[0] for s in self.seen]):
            return True
        self.note += f"{os.path.relpath(path, self.folder)}: {got[0]} not {self.before[0]}: {got[1][-300:]!r} "
        return False

    def judge(self, path, bad):
        """Start, start after strip, lint."""
        if not self.same(path):
            bad.append("start")
        stripped = path + ".stripped"
        if self.strips:
            if run(["strip", "-o", stripped, path], "/", 60)[0] != 0:
                bad.append("strip")
            else:
                os.rename(stripped, path + ".keep")
                folder = os.path.join(os.path.dirname(path), "s")
                os.makedirs(folder, exist_ok=True)
                moved = os.path.join(folder, self.base)
                os.rename(path + ".keep", moved)
                if self.strip_spares and not self.same(moved):
                    bad.append("strip")
                if bad is self.bad:
                    self.unstrip(moved)
        new = lint(path) - self.lint
        if new:
            bad.append("lint")
            self.note += " ".join(sorted(new))[:200]

    def unstrip(self, path):
        """Restoring the stripped file must give what strip makes of the original, or nothing."""
        before = open(path, "rb").read()
        status, out = run([self.options.patch, "--restore", path], "/")
        now = open(path, "rb").read()
        if status == 0 and now == open(self.stripped, "rb").read():
            self.unstripped = "identical"
        elif status == 3 and now == before:
            self.unstripped = "refused"
        elif status == 0 and self.loaded(path) == self.loaded(self.stripped) and self.same(path):
            self.unstripped = "loaded part identical"  # section headers or their order differ
        else:
            self.bad.append("restore after strip")
            self.note += out.decode("utf-8", "replace")

    @staticmethod
    def loaded(path):
        """Program headers and bytes of the loadable segments, without the ELF header."""
        data = open(path, "rb").read()
        off, n = int.from_bytes(data[32:40], "little"), int.from_bytes(data[56:58], "little")
        rows = [struct.unpack_from("<IIQQQQQQ", data, off + 56 * i) for i in range(n)]
        return rows, [data[max(64, r[2]):r[2] + r[5]] for r in rows if r[0] == 1]

    def patch(self, path):
        tool = [self.options.patch, "--runtime", self.options.runtime, "--any", "--force"]
        status, out = run(tool + [path], "/")
        if status == 4 and self.kind == "library":  # imports nothing that is routed: patch it all the same
            status, out = run(tool + ["--scope", "process", path], "/")
        return status, out.decode("utf-8", "replace").strip()

    def ours(self, digest):
        path = self.copy("patched")
        start = time.monotonic()
        status, out = self.patch(path)
        self.seconds = time.monotonic() - start
        if status == 3:
            return "refused: " + out.split(": ", 2)[-1]
        if status != 0:
            self.bad.append("patch")
            self.note = out
            return "broken"
        patched = open(path, "rb").read()
        inode = os.stat(path).st_ino
        self.judge(path, self.bad)
        again = self.patch(path)
        if again[0] != 0 or "already" not in again[1] or open(path, "rb").read() != patched or \
                os.stat(path).st_ino != inode:
            self.bad.append("second run")
        if run([self.options.patch, "--restore", path], "/")[0] != 0 or \
                hashlib.sha256(open(path, "rb").read()).digest() != digest:
            self.bad.append("restore")
        return "broken" if self.bad else "ok"

    def peer(self):
        path = self.copy("peer")
        start = time.monotonic()
        status = run([self.options.patchelf, "--add-needed", self.options.runtime, path], "/", 60)[0]
        self.peer_seconds = time.monotonic() - start
        if status != 0:
            self.peer_bad.append("patch")
            return
        note = self.note
        self.judge(path, self.peer_bad)
        self.note = note

    def check(self):
        original = self.copy("original")
        digest = hashlib.sha256(open(original, "rb").read()).digest()
        self.original, self.before = original, self.behaviour(original)
        self.seen = [self.before]
        for _ in range(2):
            again = self.behaviour(original)
            if again not in self.seen:
                self.seen.append(again)
        self.stripped = self.copy("stripped")
        self.strips = run(["strip", self.stripped], "/", 60)[0] == 0
        self.strip_spares = self.strips and self.same(self.stripped)  # strip breaks some originals as well
        self.note = ""
        self.lint = lint(original)
        result = self.ours(digest)
        if self.options.patchelf and not result.startswith("refused"):
            self.peer()
        return result


def check_one(options, path, kind):
    with tempfile.TemporaryDirectory(prefix="gpushare-corpus.", dir=options.scratch) as folder:
        case = Case(options, path, kind, folder)
        result = case.check()
        return (path, result, case.bad, case.peer_bad, case.seconds, case.peer_seconds, case.note, case.before[0],
                case.unstripped, case.strips and not case.strip_spares)


class Corpus(unittest.TestCase):
    def test_files(self):
        options = OPTIONS
        options.patchelf = shutil.which("patchelf")
        for tool in ("strip", "eu-elflint"):
            if not shutil.which(tool):
                self.skipTest(f"{tool} is not installed")
        largest = options.largest if options.largest is not None else (4096 if options.all else 16)
        folders = [f for f in options.folders or (ALL_FOLDERS if options.all else DEFAULT_FOLDERS) if os.path.isdir(f)]
        files = find_files(folders, None if options.all else options.count, largest << 20, options.all)
        self.assertTrue(files, f"no ELF file found in {folders}")
        results = []
        # processes, not threads: a child forked by another thread would hold our copies open for writing (ETXTBSY)
        with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
            for r in pool.map(check_one, [options] * len(files), *zip(*files)):
                results.append(r)
                if options.verbose or r[2]:
                    print(r[0], r[1], *r[2], ("| peer: " + " ".join(r[3])) if r[3] else "", r[6], flush=True)

        refused = [r for r in results if r[1].startswith("refused")]
        done = [r for r in results if not r[1].startswith("refused")]
        runs = sum(1 for r in done if r[7] == 0)
        ours = collections.Counter(b for r in done for b in r[2])
        peer = collections.Counter(b for r in done for b in r[3])
        print(f"{len(results)} files: {len(done)} patched, {len(refused)} refused; {runs} start with status 0 unpatched")
        for r in refused:
            print(f"  refused {r[0]}: {r[1][9:]}")
        unstripped = collections.Counter(r[8] for r in done if r[8])
        print("restored after strip: " + ", ".join(f"{n} {what}" for what, n in sorted(unstripped.items())))
        fragile = [r[0] for r in done if r[9]]
        print(f"{len(fragile)} that strip breaks as they are")
        loaded = {r[0]: not_started(r[0]) for r in done if not_started(r[0])}
        print(f"{len(loaded)} only loaded, not started")
        print(f"{'broken':<20} {'gpushare-patch':>15} {'patchelf':>10}")
        for what in KINDS:
            print(f"{what:<20} {ours[what]:>15} {peer[what] if what in KINDS[:4] else '-':>10}")
        print(f"{'seconds':<20} {sum(r[4] for r in done):>15.2f} {sum(r[5] for r in done):>10.2f}")
        if options.table:
            with open(options.table, "w") as out:
                json.dump({"folders": folders, "recursive": options.all, "files": len(results), "patched": len(done),
                           "start_with_status_0_unpatched": runs,
                           "only_loaded": loaded, "broken_by_strip_as_they_are": fragile, "restored_after_strip": dict(unstripped),
                           "not_restored_after_strip": [r[0] for r in done if r[8] == "refused"],
                           "broken": {w: {"gpushare-patch": ours[w], **({"patchelf": peer[w]} if w in KINDS[:4] else {})}
                                      for w in KINDS},
                           "broken_files": {r[0]: r[2] for r in done if r[2]},
                           "patchelf_broken_files": {r[0]: r[3] for r in done if r[3]},
                           "seconds": {"gpushare-patch": round(sum(r[4] for r in done), 2),
                                       "patchelf": round(sum(r[5] for r in done), 2)},
                           "refused": {r[0]: r[1][9:] for r in refused}}, out, indent=1)
        self.assertEqual(dict(ours), {}, "broken files stand above")
        self.assertTrue(done)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--patch", required=True, help="gpushare-patch")
    parser.add_argument("--runtime", required=True, help="a runtime library for the patched copies")
    parser.add_argument("--dlload", required=True, help="the loader program of the tests")
    parser.add_argument("--all", action="store_true", help="every file, not a sample")
    parser.add_argument("--count", type=int, default=80, help="size of the sample")
    parser.add_argument("--largest", type=int, default=None, help="leave out larger files (MB)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--scratch", default=None)
    parser.add_argument("--table", default=None, help="write the result as JSON to this file")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("folders", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    OPTIONS.patch, OPTIONS.runtime, OPTIONS.dlload = map(
        os.path.abspath, (OPTIONS.patch, OPTIONS.runtime, OPTIONS.dlload))
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(77 if result.skipped else 0 if result.wasSuccessful() else 1)
