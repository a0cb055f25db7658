#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets gpushare-patch die at every step: the file is always the complete original or the complete new one.

The test build (gpushare-patch-fault) dies at step N without cleaning up, as kill -9 does. A run that was cut short must
also be no obstacle: the next one succeeds.
"""
import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest

import tool
from tool import OPTIONS

DIED = 99


def put(path, content, mode=0o755):
    """Writes it with one time each time, since a patched file notes the time of the original."""
    with open(path, "wb") as out:
        out.write(content)
    os.chmod(path, mode)
    os.utime(path, ns=(10**18, 10**18))


def leftovers(path):
    """Names beside the file that a run has left. What runs with its owner's rights may not be within reach of others."""
    folder, target = os.path.split(path)
    for at, _, names in os.walk(folder):
        for name in names:
            if name != target and os.lstat(os.path.join(at, name)).st_mode & 0o6000 and os.stat(at).st_mode & 0o077:
                raise AssertionError(f"a setuid file {name} was left in reach of others")
    return [f for f in os.listdir(folder) if f.startswith(".gpushare")]


def outcomes(tool, arguments, path, before, after, mode=0o755):
    """Dies at step 1, 2, ... until a run gets through; returns the number of steps, or exits with a reason."""
    seen = {"old": 0, "new": 0}
    for step in range(1, 1000):
        shutil.rmtree(os.environ["GPUSHARE_STATE"], ignore_errors=True)
        put(path, before, mode)
        status = subprocess.run([tool, "-q", "--fault-step", str(step), *arguments, path], timeout=600).returncode
        now = open(path, "rb").read()
        if now not in (before, after):
            raise AssertionError(f"step {step} left a file that is neither the old nor the new one ({len(now)} bytes)")
        seen["old" if now == before else "new"] += 1
        if b"gpushare-undo-" in now and now == after:  # whoever removes gpushare must be able to know of it
            listed = subprocess.run([tool, "--list"], stdout=subprocess.PIPE, timeout=60, text=True).stdout
            if listed != f"patched   {path}\n":
                raise AssertionError(f"step {step} left a patched file that is not listed: {listed}")
        left = leftovers(path)
        if len(left) > 1 or (left and status == 0):  # the next run finds and removes what this one has left
            raise AssertionError(f"step {step} left {left}")
        if left and step % 2 == 0:  # also one that has nothing else to do
            subprocess.run([tool, "-q", "--restore", path], stderr=subprocess.DEVNULL, timeout=60)
            if leftovers(path):
                raise AssertionError(f"step {step}: --restore left {leftovers(path)}")
        if status == 0:
            if now != after:
                raise AssertionError(f"step {step}: said it was done, but the file is the old one")
            if os.stat(path).st_mode & 0o7777 != mode:
                raise AssertionError(f"the mode is {os.stat(path).st_mode:o}")
            return step - 1, seen
        if status != DIED:
            raise AssertionError(f"step {step}: exit {status}")
    raise AssertionError("never got through")


def damage_is_noticed(tool, arguments, path, original):
    """Damages bytes of the ELF header after our own reader has read the new file: libelf's reading must refuse it."""
    for offset, field in ((24, "e_entry"), (48, "e_flags"), (56, "e_phnum"), (60, "e_shnum")):
        put(path, original)
        done = subprocess.run([tool, "--fault-byte", str(offset), *arguments, path], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=600, text=True)
        if (done.returncode != 1 or f"byte {offset} of ELF header" not in done.stderr or "libelf" not in done.stderr
                or "according to gpushare-patch" not in done.stderr):
            raise AssertionError(f"damaged {field}: exit {done.returncode}, {done.stderr}")
        if open(path, "rb").read() != original or leftovers(path):
            raise AssertionError(f"damaged {field}: the file was touched, or something was left beside it")
    print("what libelf reads differently is refused, and the file is left alone")


def make_tree(folder, program):
    """An environment with two names of one program, a wheel's record, and a link to an interpreter."""
    data = open(program, "rb").read()
    for name in ("bin", "lib/x-1.dist-info", "base"):
        os.makedirs(os.path.join(folder, "env", name) if name != "base" else os.path.join(folder, name))
    path = lambda *parts: os.path.join(folder, *parts)
    shutil.copy(program, path("base", "python3"))
    shutil.copy(program, path("env/lib/one"))
    os.link(path("env/lib/one"), path("env/lib/two"))
    os.symlink(path("base", "python3"), path("env/bin/python3"))
    open(path("env/pyvenv.cfg"), "w").close()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    with open(path("env/lib/x-1.dist-info/RECORD"), "w") as out:
        out.write("".join(f"{name},sha256={digest},{len(data)}\n" for name in ("one", "two")))
    return path("env")


def contents(folder):
    found = {}
    for at, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(at, name)
            found[os.path.relpath(path, folder)] = os.readlink(path) if os.path.islink(path) else open(path, "rb").read()
    return found


def die_in_a_tree(tool, arguments, program, base):
    """Dies at every step of a run over a folder and of its restore: a restore that gets through gives all back."""
    for kind in ("--venv", "--tree"):
        folder = tempfile.mkdtemp(dir=base)
        env = make_tree(folder, program)
        before, steps, undone = contents(env), 1, 1
        call = lambda *more: subprocess.run([tool, "-q", "--no-sync", "--jobs", "1", kind, env, *arguments, *more],
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600).returncode
        while (status := call("--fault-step", str(steps))) == DIED:
            if call("--fault-step", str(1 + steps % 7), "--restore") not in (0, 4, DIED) or call("--restore") not in (0, 4):
                raise AssertionError(f"{kind}: restore after step {steps} failed")
            if contents(env) != before:
                raise AssertionError(f"{kind}: not all was given back after step {steps}")
            steps += 1
        while call("--fault-step", str(undone), "--restore") == DIED:
            undone += 1
        if status != 0 or contents(env) != before or min(steps, undone) < 8:
            raise AssertionError(f"{kind}: exit {status} at step {steps}; restored at step {undone}")
        print(f"{kind}: died at each of {steps - 1} steps, and of {undone - 1} of the restore: all was given back")


class Crash(unittest.TestCase):
    def setUp(self):
        self.tool, self.arguments = OPTIONS.patch, ["--any", "--runtime", OPTIONS.runtime]
        self.folder = tempfile.mkdtemp(prefix="gpushare-crash.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "program")
        shutil.copy(shutil.which("ls"), self.path)
        self.original = open(self.path, "rb").read()
        os.environ["GPUSHARE_STATE"] = os.path.join(self.folder, "state", "gpushare")
        self.addCleanup(os.environ.pop, "GPUSHARE_STATE")

    def patched(self):
        put(self.path, self.original)
        subprocess.run([self.tool, "-q", *self.arguments, self.path], check=True)
        patched = open(self.path, "rb").read()
        self.assertNotEqual(patched, self.original, "nothing was patched")
        return patched

    def die(self, arguments, before, after, mode=0o755):
        os.chmod(self.folder, 0o755)
        steps, seen = outcomes(self.tool, arguments, self.path, before, after, mode)
        print(f"died at each of {steps} steps: {seen['old']} times the old file, {seen['new']} times the new one")
        self.assertTrue(steps >= 8 and seen["old"] != 0 and seen["new"] >= 2, "too few steps were seen: is this the test build?")

    def test_patch(self):
        self.die(self.arguments, self.original, self.patched())

    def test_patch_without_sync(self):
        self.die(["--no-sync", *self.arguments], self.original, self.patched())

    def test_restore(self):
        self.die(["--restore"], self.patched(), self.original)

    @unittest.skipUnless(shutil.which("strip"), "strip is not installed")
    def test_restore_after_strip(self):
        stripped = []
        for content in (self.original, self.patched()):
            open(self.path, "wb").write(content)
            subprocess.run(["strip", self.path], check=True)
            stripped.append(open(self.path, "rb").read())
        self.die(["--restore"], stripped[1], stripped[0])

    def test_setuid_program(self):
        self.die(["--force", *self.arguments], self.original, self.patched(), 0o4755)

    def test_restore_of_a_setuid_program(self):
        self.die(["--restore"], self.patched(), self.original, 0o6711)

    def test_trees(self):
        die_in_a_tree(self.tool, self.arguments, self.path, self.folder)

    def test_damage_is_noticed(self):
        damage_is_noticed(self.tool, self.arguments, self.path, self.original)


if __name__ == "__main__":
    tool.main()
