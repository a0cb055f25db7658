# SPDX-License-Identifier: Apache-2.0
"""What test scripts share: their options and their end (standard library only)."""
import argparse
import ctypes
import os
import signal
import sys
import time
import unittest

OPTIONS = argparse.Namespace()


def check(good, text):
    if not good:
        raise AssertionError(text)


SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # requests of ptrace(2)


def trace(request, thread):
    """The thread that calls this is the debugger; 0 if it may be."""
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.restype = ctypes.c_long
    return ptrace(request, thread, ctypes.c_void_p(), ctypes.c_void_p())


def daemons_of(socket):
    """The daemons that serve the socket, or did: by their command line."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].endswith("gpushare-lockd") and socket in words:
            found.append(int(entry))
    return found


def resume(pid):
    """Lets a stopped program on the simulated card go on. If it had the card's lock, another may have let it go on already, and it stops
    once more as it releases the lock (simcuda/ledger.c), which may be after this signal."""
    quiet = 0
    while quiet < 5:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.02)
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            quiet = 0 if file.read().rpartition(")")[2].split()[0] == "T" else quiet + 1


def sanitized(build):
    """A sanitizer's library lives in the programs of this folder, not in libgpushare."""
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        return any(line.startswith("GS_SANITIZE") and line.strip().split("=", 1)[1] for line in file)


class BuildTest(unittest.TestCase):
    """Tests of the programs and libraries in a build tree: --build DIR."""

    @property
    def build(self):
        return OPTIONS.build


def main(**more):
    """Runs the tests of the script that calls this. more: its own options with their defaults; what is left is unittest's. Exit
    status: 0 all is well, 1 not, 77 everything was skipped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    for name, default in more.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    rest = parser.parse_known_args(namespace=OPTIONS)[1]
    OPTIONS.build = os.path.abspath(OPTIONS.build)
    result = unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2, exit=False, warnings="ignore").result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun <= len(result.skipped) else 0)
