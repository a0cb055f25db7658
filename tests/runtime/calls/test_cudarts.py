#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's CUDA runtimes of PyPI's wheels, shared and static, patched. test_cudarts.py --build DIR --cudarts DIR

Each makes the look-ups of lookups/, and on simulated drivers as new as itself, newer and older, every function that the table
replaces is replaced and none is unknown. fetch_cudarts.sh fills the folder; what is not there is skipped.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(TOP, "tests"))
import kit  # noqa: E402

PROBE = os.path.join(TOP, "tests", "simcudart", "lookup_probe.c")
SERIES = ("13.1", "13.2", "13.3", "13.4", "13.5")
DRIVERS = (13000, 13010, 13020, 13030, 13040, 13050)
ROW = re.compile(r"^GS_(\w+)\((\w+), (\w+), (\d+), ?(\w*),", re.MULTILINE)


def read_lookups(path):
    """[(name, version, flags)] of a file of look-ups, or of what the fake driver wrote."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return [(words[0], int(words[1]), int(words[2])) for words in lines if words[0] not in ("dlsym", '""')]


def find_row(rows, name, version, per_thread):
    """The class of the newest form at or below the version; None: there is none."""
    forms = [row for row in rows if row[2] == name and int(row[3]) <= version]
    plain = [row for row in forms if not row[4]]
    thread = [row for row in forms if row[4]] if per_thread else []
    best = max(thread or plain, key=lambda row: int(row[3]), default=None)
    return best and best[0]


class Cudarts(kit.BuildTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder], check=False)

    def runtime_of(self, series):
        folder = os.path.join(kit.OPTIONS.cudarts, series)
        if not os.path.isdir(folder):
            self.skipTest(f"no CUDA runtime in {folder}: tests/runtime/calls/fetch_cudarts.sh {kit.OPTIONS.cudarts}")
        return folder

    def build_probe(self, series, kind):
        folder, probe = self.runtime_of(series), os.path.join(self.folder, f"{kind}-{series}")
        shared = kind == "shared"
        subprocess.run(["cc", "-I", os.path.join(folder, "include"), PROBE, "-o", probe, "-Wl,--wrap=dlsym", "-pie", "-fPIE",
                        "-L", os.path.join(folder, "lib"), "-l:libcudart.so.13" if shared else "-l:libcudart_static.a",
                        "-ldl", "-lpthread", "-lrt"], check=True)
        return probe

    def run_probe(self, probe, series, driver, **more):
        libraries = [os.path.join(self.build, *driver), os.path.join(self.runtime_of(series), "lib")]
        env = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), **more}
        done = subprocess.run([probe], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def patch(self, probe):
        tool = os.path.join(self.build, "rewriter", "gpushare-patch")
        subprocess.run([tool, "--quiet", "--runtime", os.path.join(self.build, "runtime", "libgpushare.so.1"), probe],
                       env={**os.environ, "GPUSHARE_STATE": self.folder}, check=True)

    def check_lookups(self, series, kind):
        log = os.path.join(self.folder, "log")
        self.run_probe(self.build_probe(series, kind), series, ("tests", "simcudart", "fake"), FAKE_DRIVER_LOG=log,
                       FAKE_DRIVER_VERSION="13050")
        self.assertEqual(read_lookups(log), read_lookups(os.path.join(HERE, "lookups", f"cudart-{series}.txt")))

    def check_routing(self, series, kind):
        with open(os.path.join(TOP, "wrap", "driver_api.def"), encoding="utf-8") as file:
            rows = ROW.findall(file.read())
        asked = read_lookups(os.path.join(HERE, "lookups", f"cudart-{series}.txt"))
        probe = self.build_probe(series, kind)
        self.patch(probe)
        for driver in DRIVERS:
            stats, card = os.path.join(self.folder, "stats"), os.path.join(self.folder, "card")
            self.run_probe(probe, series, ("tests", "simcuda"), SIMCUDA_CARD=card, SIMCUDA_DRIVER_VERSION=str(driver),
                           GPUSHARE_STATS=stats, GPUSHARE_SOCKET=os.path.join(self.folder, "none"))
            with open(stats, encoding="utf-8") as file:
                counted = json.load(file)
            classes = [find_row(rows, name, version, flags & 2)  # a runtime asks for nothing newer than the driver
                       for name, version, flags in asked if version <= driver]
            replaced = 1 + sum(row not in (None, "PASS") for row in classes)  # and dlsym of cuGetProcAddress_v2
            self.assertEqual((counted["uncovered"], counted["escaped"]), (0, 0), driver)
            self.assertEqual(counted["substituted"], replaced, driver)


def add_tests():
    for series in SERIES:
        for kind in ("shared", "static"):
            name = f"{series.replace('.', '_')}_{kind}"
            setattr(Cudarts, f"test_lookups_{name}", lambda self, s=series, k=kind: self.check_lookups(s, k))
            setattr(Cudarts, f"test_routing_{name}", lambda self, s=series, k=kind: self.check_routing(s, k))


add_tests()
if __name__ == "__main__":
    kit.main(cudarts="")
