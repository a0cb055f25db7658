#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that is told to stop in the middle of a capture can finish it, also behind a gate that it has shut itself.

test_shut.py --build DIR; see shut.c
"""
import os
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import BuildTest, Card, main  # noqa: E402  (beside this file)

SECONDS = 120  # what comes at once on an idle machine


def expect(child, *lines):
    for line in lines:
        ready, _, _ = select.select([child.stdout], [], [], SECONDS)
        said = os.read(child.stdout.fileno(), len(line) + 1).decode() if ready else "nothing"
        if said != line + "\n":
            raise AssertionError(f"said {said!r}, not {line!r}; {child.poll()}")


class Shut(BuildTest):
    def test_capture_goes_on(self):
        with Card(self.build, memory="64MiB") as card:
            def control(*words):
                ctl = os.path.join(self.build, "lockd", "gpusharectl")
                subprocess.run([ctl, "--socket", card.socket, *words], env=card.environment, check=True, stdout=subprocess.DEVNULL)

            child = subprocess.Popen([os.path.join(self.build, "tests", "runtime", "shut")], env=card.environment,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            card.children.append(child)
            expect(child, "ready")
            control("pause", str(child.pid))
            until = time.monotonic() + SECONDS
            while not card.status()["devices"][0]["programs"][0]["paused"] and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.1)  # it has heard of it: nothing tells, since it goes on
            child.stdin.write(b"\n")
            expect(child, "captured", "ready")
            control("resume", str(child.pid))
            child.stdin.write(b"\n")
            expect(child, "ok")
            child.wait(timeout=SECONDS)
            self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    main()
