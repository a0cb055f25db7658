#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets gpushare-patch die at every step: the file is always the complete original or the complete new one.

The test build (gpushare-patch-fault) dies at step N without cleaning up, as kill -9 does. A run that was cut short must
also be no obstacle: the next one succeeds.
"""
import argparse
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

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
                sys.exit(f"a setuid file {name} was left in reach of others")
    return [f for f in os.listdir(folder) if f.startswith(".gpushare")]


def outcomes(tool, arguments, path, before, after, mode=0o755):
    """Dies at step 1, 2, ... until a run gets through; returns the number of steps, or exits with a reason."""
    seen = {"old": 0, "new": 0}
    for step in range(1, 1000):
        put(path, before, mode)
        status = subprocess.run([tool, "-q", "--fault-step", str(step), *arguments, path], timeout=600).returncode
        now = open(path, "rb").read()
        if now not in (before, after):
            sys.exit(f"step {step} left a file that is neither the old nor the new one ({len(now)} bytes)")
        seen["old" if now == before else "new"] += 1
        left = leftovers(path)
        if len(left) > 1 or (left and status == 0):  # the next run finds and removes what this one has left
            sys.exit(f"step {step} left {left}")
        if left and step % 2 == 0:  # also one that has nothing else to do
            subprocess.run([tool, "-q", "--restore", path], stderr=subprocess.DEVNULL, timeout=60)
            if leftovers(path):
                sys.exit(f"step {step}: --restore left {leftovers(path)}")
        if status == 0:
            if now != after:
                sys.exit(f"step {step}: said it was done, but the file is the old one")
            if os.stat(path).st_mode & 0o7777 != mode:
                sys.exit(f"the mode is {os.stat(path).st_mode:o}")
            return step - 1, seen
        if status != DIED:
            sys.exit(f"step {step}: exit {status}")
    sys.exit("never got through")


def damage_is_noticed(tool, arguments, path, original):
    """Damages bytes of the ELF header after our own reader has read the new file: libelf's reading must refuse it."""
    for offset, field in ((24, "e_entry"), (48, "e_flags"), (56, "e_phnum"), (60, "e_shnum")):
        put(path, original)
        done = subprocess.run([tool, "--fault-byte", str(offset), *arguments, path], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=600, text=True)
        if (done.returncode != 1 or field not in done.stderr or "libelf" not in done.stderr
                or "according to gpushare-patch" not in done.stderr):
            sys.exit(f"damaged {field}: exit {done.returncode}, {done.stderr}")
        if open(path, "rb").read() != original or leftovers(path):
            sys.exit(f"damaged {field}: the file was touched, or something was left beside it")
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
                sys.exit(f"{kind}: restore after step {steps} failed")
            if contents(env) != before:
                sys.exit(f"{kind}: not all was given back after step {steps}")
            steps += 1
        while call("--fault-step", str(undone), "--restore") == DIED:
            undone += 1
        if status != 0 or contents(env) != before or min(steps, undone) < 8:
            sys.exit(f"{kind}: exit {status} at step {steps}; restored at step {undone}")
        print(f"{kind}: died at each of {steps - 1} steps, and of {undone - 1} of the restore: all was given back")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", required=True, help="the test build gpushare-patch-fault")
    parser.add_argument("--runtime", required=True)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpushare-crash.") as folder:
        path = os.path.join(folder, "program")
        shutil.copy(shutil.which("ls"), path)
        original = open(path, "rb").read()
        arguments = ["--any", "--runtime", os.path.abspath(o.runtime)]
        put(path, original)
        subprocess.run([o.patch, "-q", *arguments, path], check=True)
        patched = open(path, "rb").read()
        if patched == original:
            sys.exit("nothing was patched")
        cases = [("patch", arguments, original, patched), ("restore", ["--restore"], patched, original),
                 ("patch, no sync", ["--no-sync", *arguments], original, patched)]
        if shutil.which("strip"):
            stripped = []
            for content in (original, patched):
                open(path, "wb").write(content)
                subprocess.run(["strip", path], check=True)
                stripped.append(open(path, "rb").read())
            cases.append(("restore after strip", ["--restore"], stripped[1], stripped[0]))
        open(path, "wb").write(original)
        die_in_a_tree(o.patch, arguments, path, folder)
        damage_is_noticed(o.patch, arguments, path, original)
        os.chmod(folder, 0o755)
        cases = [(*case, 0o755) for case in cases] + [("setuid program", ["--force", *arguments], original, patched, 0o4755),
                                                      ("restore a setuid program", ["--restore"], patched, original, 0o6711)]
        for what, args, before, after, mode in cases:
            steps, seen = outcomes(o.patch, args, path, before, after, mode)
            print(f"{what}: died at each of {steps} steps: {seen['old']} times the old file, {seen['new']} times the new one")
            if steps < 8 or seen["old"] == 0 or seen["new"] < 2:
                sys.exit("too few steps were seen: is this the test build?")


if __name__ == "__main__":
    main()
