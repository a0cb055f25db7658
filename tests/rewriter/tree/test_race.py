#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-patch --tree and --venv while somebody swaps what is in the folder for links out of it.

A library that is loaded into the tool counts its system calls that take a path, and swaps before the Nth: for every N of a
run. Whatever the run says, nothing outside of the folder may change.
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tool
from tool import LOADS, OPTIONS
from test_tree import record_line
import unittest

# Each function gets and returns what fits into registers, variadic ones as well (x86-64 and aarch64).
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <fcntl.h>
static void step(void)
{
    static int calls;
    const char *from = getenv("RACE_FROM"), *to = getenv("RACE_TO"), *away = getenv("RACE_AWAY");
    if (++calls != atoi(getenv("RACE_STEP")))
        return;
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, away, 0) != 0 || syscall(SYS_symlinkat, to, AT_FDCWD, from) != 0)
        _exit(77);
}
__attribute__((destructor)) static void end(void)
{
    syscall(SYS_unlinkat, AT_FDCWD, getenv("RACE_MARK"), 0); /* got to its end */
}
#define HOOK(name) \
    long hook_##name(long a, long b, long c, long d, long e) __asm__(#name); \
    long hook_##name(long a, long b, long c, long d, long e) \
    { \
        static long (*real)(long, long, long, long, long); \
        if (real == 0) \
            real = (long (*)(long, long, long, long, long))dlsym(RTLD_NEXT, #name); \
        step(); \
        return real(a, b, c, d, e); \
    }
"""
NAMES = ("open openat stat lstat fstatat access faccessat readlink readlinkat realpath linkat link renameat rename symlink symlinkat "
         "unlinkat unlink opendir fts_read scandir fopen mkdirat")


def make_shim(path):
    """Hooks those of the functions that the tool calls, under the names that it calls them by."""
    called = subprocess.run(["nm", "-D", "--undefined-only", OPTIONS.patch], stdout=subprocess.PIPE, check=True).stdout.decode()
    called = {line.split()[-1].split("@")[0] for line in called.splitlines()}
    forms = [form for name in NAMES.split() for form in (name, name + "64", f"__{name}_2", f"__{name}64_2", f"__{name}_chk") if form in called]
    if not any("open" in form for form in forms):
        sys.exit("the tool opens nothing?")
    subprocess.run(["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", path],
                   input=(SHIM + "".join(f"HOOK({form})\n" for form in forms)).encode(), check=True)


def contents(folder):
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            found[path] = (os.lstat(path).st_ino, os.lstat(path).st_mode,
                           None if os.path.islink(path) or os.path.isdir(path) else open(path, "rb").read())
    return found


class Race(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="gpushare-race."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.tree, self.outside = self.path("tree"), self.path("outside")
        make_shim(self.path("shim.so"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_tool(self, *args, **env):
        return subprocess.run([OPTIONS.patch, "--runtime", OPTIONS.runtime, "--no-sync", "-q", "--jobs", "1", *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, env={**os.environ, **env})

    def make(self):
        """A tree that is an environment as well: a program, another name of it, a wheel's record, an interpreter."""
        original = self.path("original")
        for name in ("bin", "lib/x-1.dist-info"):
            os.makedirs(os.path.join(original, name))
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", original + "/bin/uses"], input=LOADS.encode(), check=True)
        os.link(original + "/bin/uses", original + "/bin/same")
        shutil.copy(original + "/bin/uses", self.path("interpreter"))
        os.symlink(self.path("interpreter"), original + "/bin/python3")
        open(original + "/pyvenv.cfg", "w").close()
        with open(original + "/lib/x-1.dist-info/RECORD", "w") as out:
            out.write(record_line(original + "/lib", "../bin/uses"))
        return original

    def attack(self, kind, victim, *more):
        """Swaps at every step of a run; returns the number of steps. What is outside looks as the tree does."""
        original, step = self.make(), 0
        if "--restore" in more:
            done = self.run_tool(kind, original)
            self.assertEqual(done.returncode, 0, done)
        while True:
            step += 1
            for copy in (self.tree, self.outside):
                shutil.copytree(original, copy, symlinks=True)
                os.unlink(copy + "/bin/same")
                os.link(copy + "/bin/uses", copy + "/bin/same")
            before = contents(self.outside), contents(original)
            open(self.path("mark"), "w").close()
            done = self.run_tool(kind, self.tree, *more, LD_PRELOAD=self.path("shim.so"), RACE_STEP=str(step),
                                 RACE_FROM=os.path.join(self.tree, victim), RACE_TO=os.path.join(self.outside, victim),
                                 RACE_AWAY=self.path("away"), RACE_MARK=self.path("mark"),
                                 ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0")
            what = f"{kind} {victim} {more}, swapped at call {step}: {done}"
            self.assertIn(done.returncode, (0, 1, 3, 4), what)
            self.assertFalse(os.path.exists(self.path("mark")), "the library was not loaded: " + what)
            self.assertTrue((contents(self.outside), contents(original)) == before, what)
            swapped = os.path.lexists(self.path("away"))
            for path in (self.tree, self.outside, self.path("away")):
                if os.path.isdir(path):
                    shutil.rmtree(path)
                elif os.path.lexists(path):
                    os.unlink(path)
            if not swapped:
                self.assertEqual(done.returncode, 0, what)
                shutil.rmtree(original)
                return step - 1

    def test_folder_becomes_a_link_out(self):
        for kind in ("--tree", "--venv"):
            for more in ((), ("--restore",)):
                self.assertGreater(self.attack(kind, "bin", *more), 20)

    def test_file_becomes_a_link_out(self):
        for more in ((), ("--restore",)):
            self.assertGreater(self.attack("--tree", "bin/uses", *more), 20)

    def test_folder_of_a_record_becomes_a_link_out(self):
        for more in ((), ("--restore",)):
            self.assertGreater(self.attack("--tree", "lib", *more), 20)


if __name__ == "__main__":
    tool.main()
