# SPDX-License-Identifier: Apache-2.0
"""What the framework jobs share: their options, the stop in the middle, the hash of their results."""
import argparse, hashlib, os, time


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ballast-gib", type=float, default=1, help="memory held besides, and checked at the end")
    parser.add_argument("--ready", help="file to write in the middle")
    parser.add_argument("--go", help="file to wait for in the middle")
    return parser.parse_args()


def middle(how, seconds=120):
    """Tells run.sh that the first half is done, and waits, without touching the GPU, until it may go on."""
    if not how.ready:
        return
    open(how.ready, "w").close()
    end = time.monotonic() + seconds
    while not os.path.exists(how.go):
        if time.monotonic() > end:
            raise SystemExit("nobody said go")
        time.sleep(0.02)


class Result:
    """A hash over the bytes of every array that was added, in order."""

    def __init__(self):
        self.hash = hashlib.sha256()
        self.arrays = 0

    def add(self, array):
        """array: a NumPy array"""
        self.hash.update(str(array.dtype).encode() + str(array.shape).encode() + array.tobytes())
        self.arrays += 1

    def print(self, name):
        print(f"result {name} arrays={self.arrays} sha256={self.hash.hexdigest()[:32]}", flush=True)
