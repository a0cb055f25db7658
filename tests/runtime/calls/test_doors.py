#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of doors.c with the right libcuda in reach, and checks what is logged. test_doors.py --build DIR"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import BuildTest, Card, check, main  # noqa: E402


def run(build, case, library, said="", **more):
    """said: what stderr must contain exactly once; empty: nothing may be said."""
    with Card(build, daemon=False, GPUSHARE_LOCKD="/nonexistent") as card:
        more["LD_LIBRARY_PATH"] = os.path.join(build, "tests", library)
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "doors"), case], **more)
    good = code == 0 and out == "" and (err.count(said) == 1 if said else err == "")
    check(good, f"{case} {more}: exit {code}: {out}{err}")


NEWER = "cuLaunchKernel in the form of CUDA 14.0"


class Doors(BuildTest):
    def test_absent(self):
        run(self.build, "absent", "nowhere")

    def test_handle(self):
        run(self.build, "handle", "simcuda")

    def test_lookups(self):
        run(self.build, "lookups", "simcuda")

    def test_disabled(self):
        run(self.build, "disabled", "simcuda", GPUSHARE_DISABLE="1")

    def test_newer(self):
        run(self.build, "newer", "runtime/newer", said=NEWER, GPUSHARE_LOG="stderr")

    def test_strict(self):
        run(self.build, "strict", "runtime/newer", said=NEWER, GPUSHARE_LOG="stderr", GPUSHARE_STRICT="1")

    def test_sanitized(self):
        """A program with ThreadSanitizer, whose runtime asks our dlsym before anything of it works, begins and ends."""
        with Card(self.build, daemon=False, GPUSHARE_LOCKD="/nonexistent") as card:
            program = os.path.join(card.folder, "sanitized")
            source = program + ".c"
            with open(source, "w", encoding="utf-8") as file:
                file.write('#include <dlfcn.h>\nint main(void) { return dlsym(RTLD_DEFAULT, "getpid") == 0; }\n')
            made = subprocess.run(["cc", "-fsanitize=thread", source, "-o", program], capture_output=True, check=False)
            if made.returncode != 0:
                self.skipTest("cc has no ThreadSanitizer")
            library = os.path.join(self.build, "runtime", "libgpushare.so.1")
            code, out, err = card.run([program], LD_PRELOAD=library)  # first, as in a patched program
        self.assertEqual((code, out + err), (0, ""))


if __name__ == "__main__":
    main()
