#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stub that removal leaves: programs that were patched for the library start with it, and say so.

Usage: test_stub.py --build BUILD
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace()
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *own, *named;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
    int (*count)(int *), (*wait)(void), n = 0;
    Dl_info info;

    *(void **)&count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&wait = dlsym(RTLD_DEFAULT, "cuCtxSynchronize");
    own = dlsym(RTLD_DEFAULT, "main_of_nobody");
    named = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14");
    printf("%d ", init(0));
    printf("%d ", count(&n));
    printf("%d %d %d\n", n, wait(), own == NULL);
    printf("%s\n", dladdr((void *)count, &info) && strstr(info.dli_fname, "libcuda") ? "driver" : "not the driver");
    return named == NULL && sizeof(void *) != 8;
}
"""


class Stub(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-stub.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.library = os.path.join(self.folder, "libgpushare.so.1")
        self.real = os.path.join(OPTIONS.build, "runtime/libgpushare.so.1")
        self.stub = os.path.join(OPTIONS.build, "runtime/stub/libgpushare-stub.so.1")
        shutil.copy(self.real, self.library)
        self.environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(OPTIONS.build, "tests/simcuda"),
                                SIMCUDA_CARD=os.path.join(self.folder, "card"), SIMCUDA_MEMORY="256MiB",
                                GPUSHARE_SOCKET=os.path.join(self.folder, "lockd.sock"), GPUSHARE_LOCKD="/nonexistent",
                                SIMCUDA_KERNELS=os.path.join(OPTIONS.build, "samples/driver_standin.so"))

    def patch(self, program):
        copy = os.path.join(self.folder, os.path.basename(program))
        if not os.path.exists(copy):
            shutil.copy(program, copy)
        subprocess.run([os.path.join(OPTIONS.build, "rewriter/gpushare-patch"), "-q", "--runtime", self.library, copy],
                       check=True, timeout=600)
        return copy

    def leave_stub(self):
        os.unlink(self.library)
        shutil.copy(self.stub, self.library)

    def run_program(self, path, **more):
        return subprocess.run([path], env=dict(self.environment, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=600, check=False)

    def test_exports_what_the_library_exports(self):
        def names(path):
            table = subprocess.run(["nm", "-D", "--defined-only", path], stdout=subprocess.PIPE, text=True, check=True).stdout
            return sorted(line.split()[-1] for line in table.splitlines())
        self.assertEqual(names(self.real), names(self.stub))
        self.assertIn("__wrap_cuLaunchKernel", names(self.stub))

    def test_has_the_same_soname_and_is_small(self):
        dynamic = subprocess.run(["readelf", "-dW", self.stub], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn("soname: [libgpushare.so.1]", dynamic)
        subprocess.run(["strip", "-o", os.path.join(self.folder, "small"), self.stub], check=True)
        self.assertLess(os.path.getsize(os.path.join(self.folder, "small")), 120 << 10)

    def test_programs_run_and_say_so_once(self):
        source = os.path.join(self.folder, "program.c")
        with open(source, "w", encoding="ascii") as out:
            out.write(PROGRAM)
        subprocess.run(["gcc", "-w", "-o", source[:-2], source, "-ldl"], check=True)
        program = self.patch(source[:-2])
        self.leave_stub()
        done = self.run_program(program)
        self.assertEqual((done.returncode, done.stdout), (0, "0 0 1 201 1\ndriver\n"), done)
        self.assertEqual(done.stderr.count("\n"), 1, done)
        self.assertIn("gpushare was removed", done.stderr)
        self.assertIn(self.library, done.stderr)
        self.assertEqual(self.run_program(program, GPUSHARE_QUIET="1").stderr, "")
        done = self.run_program(program, LD_LIBRARY_PATH="/nonexistent")  # no driver at all
        self.assertNotIn("symbol lookup", done.stderr)

    def test_samples_give_the_same_results(self):
        for name in ("driver_api", "dlopen_driver"):
            sample = os.path.join(OPTIONS.build, "samples", name)
            if not os.path.exists(sample):
                continue
            shutil.copy(self.real, self.library)
            program = self.patch(sample)
            before = self.run_program(program)
            self.leave_stub()
            after = self.run_program(program)
            self.assertEqual(before.stdout.split("seconds")[0], after.stdout.split("seconds")[0], (before, after))
            self.assertEqual(after.returncode, 0, after)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    rest = parser.parse_known_args(namespace=OPTIONS)[1]
    OPTIONS.build = os.path.abspath(OPTIONS.build)
    unittest.main(argv=[sys.argv[0], *rest])
