# SPDX-License-Identifier: Apache-2.0
"""What the test scripts of gpushare-patch share: their options, and how the tool is called."""
import argparse
import os
import shutil
import subprocess
import sys
import unittest
import warnings

OPTIONS = argparse.Namespace()


def run(*args, **kw):
    """(exit status, output, errors) of gpushare-patch."""
    done = subprocess.run([OPTIONS.patch, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120, **kw)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patch", required=True)
    parser.add_argument("--runtime", required=True)
    rest = parser.parse_known_args(namespace=OPTIONS)[1]
    OPTIONS.patch, folder = os.path.abspath(OPTIONS.patch), os.path.dirname(os.path.realpath(OPTIONS.runtime))
    OPTIONS.runtime = os.path.join(folder, os.path.basename(OPTIONS.runtime))  # as gpushare-patch resolves it
    if not shutil.which("gcc"):
        print("skipped: gcc is not installed")
        sys.exit(77)
    warnings.simplefilter("ignore", ResourceWarning)
    unittest.main(warnings="ignore", argv=[sys.argv[0], *rest])
