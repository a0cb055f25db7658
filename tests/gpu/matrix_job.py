# SPDX-License-Identifier: Apache-2.0
"""What the programs of the matrix share: options, the time of the work, the line with the result."""
import argparse
import hashlib
import time


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
