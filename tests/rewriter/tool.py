# SPDX-License-Identifier: Apache-2.0
"""What the test scripts of gpushare-patch share: their options, how the tool is called, and files to call it on."""
import argparse
import atexit
import os
import shutil
import subprocess
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from other_user import make_folder  # noqa: E402  (in the folder above)

OPTIONS = argparse.Namespace()


STATES = {}  # of each user that a test runs the tool as: the folder with that user's list


def state_of(user):
    if user not in STATES:
        STATES[user] = make_folder("gpushare-state.")
        atexit.register(shutil.rmtree, STATES[user], ignore_errors=True)
        os.chown(STATES[user], user, -1)
    return STATES[user]


def run(*args, tool_path=None, **kw):
    """(exit status, output, errors) of gpushare-patch, or of a copy of it. The list of what it has patched is the test's own."""
    kw.setdefault("env", {**os.environ, "GPUSHARE_STATE": state_of(kw.get("user", os.geteuid()))})
    done = subprocess.run([tool_path or OPTIONS.patch, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=600, **kw)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


MAIN = "int main(void) { return 0; }"
DLSYM = '#include <dlfcn.h>\nint main(void) { return dlsym(RTLD_DEFAULT, "puts") == 0; }'
LOADS = '#include <dlfcn.h>\nint main(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }'


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder("gpushare-cli.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.runtime = ["--runtime", OPTIONS.runtime]

    def path(self, name):
        return os.path.join(self.folder, name)

    def build(self, name, source=LOADS, *flags):
        path = self.path(name)
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", path, *flags], input=source.encode(), check=True,
                       stderr=subprocess.DEVNULL)
        return path

    def snapshot(self, path):
        st = os.stat(path)
        return open(path, "rb").read(), st.st_ino, st.st_mtime_ns, st.st_mode

    def refused(self, path, status, text, *options, named=True):
        before = self.snapshot(path)
        got = run(*self.runtime, *options, path)
        self.assertEqual(got[0], status, got)
        self.assertEqual(len(got[2].strip().splitlines()), 1, got)
        self.assertIn(text, got[2])
        self.assertIn(path if named else options[-1], got[2])
        self.assertEqual(self.snapshot(path), before)
        self.assertEqual([f for f in os.listdir(self.folder) if f.startswith(".gpushare")], [])


def main(**more):
    """more: the script's own options with their defaults."""
    parser = argparse.ArgumentParser()
    for name, default in more.items():
        parser.add_argument("--" + name, type=type(default), default=default)
    parser.add_argument("--patch", required=True)
    parser.add_argument("--runtime", required=True)
    rest = parser.parse_known_args(namespace=OPTIONS)[1]
    OPTIONS.patch, OPTIONS.runtime = os.path.abspath(OPTIONS.patch), os.path.abspath(OPTIONS.runtime)
    if not shutil.which("gcc"):
        print("skipped: gcc is not installed")
        sys.exit(77)
    os.environ["GPUSHARE_STATE"] = state_of(os.geteuid())  # also where a test starts the tool without run()
    warnings.simplefilter("ignore", ResourceWarning)
    unittest.main(warnings="ignore", argv=[sys.argv[0], *rest])
