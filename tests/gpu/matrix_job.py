# SPDX-License-Identifier: Apache-2.0
"""What the programs of the matrix share: options, the time of the work, the stop in the middle, the line with the result."""
import argparse
import hashlib
import os
import time


def middle(seconds=120):
    """Half of the work is done: where matrix.py wants to move the memory (GS_MATRIX_MIDDLE is a folder), say so, and wait, without
    touching the GPU, until it may go on. Each process with memory on a card calls it."""
    folder = os.environ.get("GS_MATRIX_MIDDLE")
    if not folder:
        return
    with open(os.path.join(folder, f"ready.{os.getpid()}"), "w", encoding="ascii"):
        pass
    end = time.monotonic() + seconds
    while not os.path.exists(os.path.join(folder, "go")):
        if time.monotonic() > end:
            raise SystemExit("nobody said go")
        time.sleep(0.02)


class Job:
    """job = Job(); modes by job.mode; job.add(array) for each result; job.done() at the end."""

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("mode")
        parser.add_argument("variant", nargs="?", default="")
        parser.add_argument("--ballast-gib", type=int, default=0, help="device memory held besides, and compared at the end")
        how = parser.parse_args()
        self.mode, self.variant, self.ballast_gib = how.mode, how.variant, how.ballast_gib
        self.hash = hashlib.sha256()
        self.began = None

    def begin(self):
        """The work begins: imports and contexts are not timed."""
        self.began = time.monotonic()

    def add(self, array):
        """array: a NumPy array, or bytes"""
        self.hash.update(array if isinstance(array, bytes) else array.tobytes())

    def done(self):
        print(f"seconds {time.monotonic() - self.began:.3f}")
        print(f"result {self.mode} {self.hash.hexdigest()[:32]}", flush=True)
