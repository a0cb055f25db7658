#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Look-ups of NVIDIA's CUDA runtimes, through gpushare, on drivers as old as they are and older. test_versions.py --build DIR

lookups/ has what runtimes of PyPI's wheels ask cuGetProcAddress for, tests/simcudart/lookups.txt what 13.0 asks for. The
simulated driver answers as the versions below.
"""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RUNTIMES = {name[len("cudart-"):-len(".txt")]: os.path.join(HERE, "lookups", name)
            for name in sorted(os.listdir(os.path.join(HERE, "lookups")))}
RUNTIMES["13.0"] = os.path.join(TOP, "tests", "simcudart", "lookups.txt")
DRIVERS = ("11080", "12000", "12020", "13000", "13010", "13020", "13030", "13040", "13050")
BUILD = ""


class Versions(unittest.TestCase):
    def test_each_runtime_gets_the_forms_that_the_driver_has(self):
        program = os.path.join(BUILD, "tests", "runtime", "versions")
        for driver in DRIVERS:
            for runtime, path in RUNTIMES.items():
                with self.subTest(driver=driver, runtime=runtime), tempfile.TemporaryDirectory() as card:
                    env = {**os.environ, "SIMCUDA_CARD": card, "SIMCUDA_DRIVER_VERSION": driver,
                           "GPUSHARE_SOCKET": os.path.join(card, "none")}
                    done = subprocess.run([program, path], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          timeout=120, check=False)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    place = sys.argv.index("--build")
    BUILD = os.path.abspath(sys.argv[place + 1])
    del sys.argv[place:place + 2]
    unittest.main(warnings="ignore")
