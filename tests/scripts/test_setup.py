#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.sh where packages are missing: it says why it ends, and each few seconds that it still runs. dpkg, apt and sudo are stand-ins."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SETUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "setup.sh")
TOOLS = ("bash", "sh", "dirname", "awk", "grep", "uname", "cat", "sleep", "readlink", "sed", "kill", "true", "false")
PATIENCE = 300


class SetupTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        for tool in TOOLS:
            if shutil.which(tool):
                os.symlink(shutil.which(tool), os.path.join(self.folder, tool))
        # a toolkit is there, so that nothing is fetched; no package is
        cuda = os.path.join(self.folder, "cuda")
        os.makedirs(cuda + "/bin")
        os.makedirs(cuda + "/include")
        self.stand_in("cuda/bin/nvcc", "exit 0")
        for name in ("cuda.h", "cudaTypedefs.h", "cudaProfiler.h"):
            with open(f"{cuda}/include/{name}", "w", encoding="ascii") as file:
                file.write("#define CUDA_VERSION 13000\n")
        self.environment = {"PATH": self.folder, "CUDA_HOME": cuda, "LANG": "C"}
        self.stand_in("dpkg-query", "exit 1")
        self.stand_in("apt-get", "exit 100")
        self.stand_in("id", "echo 1000")

    def stand_in(self, name, script):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)

    def setup(self, **more):
        done = subprocess.run(["bash", SETUP, "build"], env={**self.environment, **more}, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_without_sudo_it_says_what_root_must_run(self):
        status, out, said = self.setup()
        self.assertEqual((status, out), (1, ""), said)
        self.assertIn("neither root nor sudo is there to install them; run as root: apt-get install --no-install-recommends gcc ", said)

    def test_sudo_that_refuses_is_told(self):
        self.stand_in("sudo", "exit 1")
        status, out, said = self.setup()
        self.assertEqual((status, out), (1, ""), said)
        self.assertIn("may you use sudo? Run as root: apt-get update, then apt-get install", said)

    def test_nothing_is_installed_if_that_is_forbidden(self):
        self.stand_in("sudo", f"touch {self.folder}/used")
        status, _, said = self.setup(GS_NO_INSTALL="1")
        self.assertEqual(status, 1)
        self.assertIn("missing packages: gcc ", said)
        self.assertFalse(os.path.exists(self.folder + "/used"))

    def test_it_tells_that_it_still_runs(self):
        log = self.folder + "/log"
        self.stand_in("sudo", f"until grep -q 'installing packages: [0-9]* s' {log}; do sleep 0.1; done")  # apt-get, until a line about it is there
        with open(log, "w", encoding="ascii") as file:
            done = subprocess.run(["bash", SETUP, "build"], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file,
                                  timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stdout.decode().strip()), (0, self.environment["CUDA_HOME"]))


if __name__ == "__main__":
    sys.exit(unittest.main(warnings="ignore"))
