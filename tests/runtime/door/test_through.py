#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts of tests/runtime once more, with programs that are neither linked with gpushare nor patched: the door stands where
the driver's library is. They get a build folder that differs from the real one in just these two. test_through.py --build DIR"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

RUNTIME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(RUNTIME))
from kit import OPTIONS, BuildTest, main  # noqa: E402  (tests)


def script(name):
    return next(path for pattern in (f"test_{name}.py", f"{name}.py") for path in glob.glob(os.path.join(RUNTIME, pattern)))


class Through(BuildTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="gs-door-")
        shadow(OPTIONS.build, os.path.join(cls.folder, "build"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def run_script(self, name, *words):
        done = subprocess.run([sys.executable, script(name), "--build", os.path.join(self.folder, "build"), *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])

    def test_calls(self):
        self.run_script("calls")

    def test_moves(self):
        self.run_script("moves")

    def test_shut(self):
        self.run_script("shut")

    def test_soak(self):
        for mode in ("plain", "faults", "kills"):
            with self.subTest(mode):
                self.run_script("soak", "--mode", mode, "--seeds", "3", "--budget", "6")


def link_all(source, target, apart):
    os.makedirs(target)
    for name in os.listdir(source):
        if name not in apart:
            os.symlink(os.path.join(source, name), os.path.join(target, name))


def shadow(build, folder):
    """A build folder in which the programs are plain ones, and the driver's folder has the door."""
    link_all(build, folder, ("tests",))
    link_all(os.path.join(build, "tests"), os.path.join(folder, "tests"), ("runtime", "simcuda"))
    runtime, simcuda = (os.path.join(build, "tests", name) for name in ("runtime", "simcuda"))
    plain = os.path.join(runtime, "door", "plain")
    link_all(runtime, os.path.join(folder, "tests", "runtime"), os.listdir(plain))
    for name in os.listdir(plain):
        os.symlink(os.path.join(plain, name), os.path.join(folder, "tests", "runtime", name))
    door = os.path.join(folder, "tests", "simcuda")
    link_all(simcuda, door, ("libcuda.so.1", "libcuda.so"))
    subprocess.run([os.path.join(build, "wrap", "gpushare-door"), "--stage", door], check=True,
                   env=dict(os.environ, LD_LIBRARY_PATH=simcuda))


main()
