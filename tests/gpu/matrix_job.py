# SPDX-License-Identifier: Apache-2.0
"""What the programs of the matrix share: options, the line with the result, and what matrix.py tells them by files.

GS_MATRIX_TOLD names a folder. The program waits for the file `begin` there before it first uses a card. After its result it waits for
`turn.1`, `turn.2` and so on: each holds a number of iterations; `seconds.N` is the answer. It ends when `end` is there. Without that
variable it waits for nothing. All processes of a job follow the same files; one of them answers.
"""
import argparse
import gc
import hashlib
import os
import time

POLL = 0.002   # seconds between two looks at the folder
LONGEST = 900  # seconds without a word: matrix.py is gone


def wait_for(*paths, seconds=LONGEST):
    """The first of these files that exists."""
    end = time.monotonic() + seconds
    while True:
        for path in paths:
            if os.path.exists(path):
                return path
        if time.monotonic() > end:
            raise SystemExit(f"nobody made {os.path.basename(paths[0])}")
        time.sleep(POLL)


def write_whole(path, text):
    """No reader finds half of it."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)


def middle(seconds=120):
    """Half of the work is done: where matrix.py wants to move the memory (GS_MATRIX_MIDDLE is a folder), says so and waits until it
    may go on. The GPU must be idle. Each process with memory on a card calls it."""
    folder = os.environ.get("GS_MATRIX_MIDDLE")
    if folder:
        write_whole(os.path.join(folder, f"ready.{os.getpid()}"), "")
        wait_for(os.path.join(folder, "go"), seconds=seconds)


def timed(iteration, synchronize, count):
    """Seconds of so many iterations, from an idle card to an idle card; one iteration before them is not counted."""
    iteration()
    synchronize()
    began = time.perf_counter()
    for _ in range(count):
        iteration()
    synchronize()
    return time.perf_counter() - began


class Job:
    """job = Job(); imports; job.hold(); job.add(array) for each result; job.done(); job.repeat()"""

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("mode")
        parser.add_argument("variant", nargs="?", default="")
        parser.add_argument("--ballast-gib", type=int, default=0, help="device memory held besides, and compared at the end")
        how = parser.parse_args()
        self.mode, self.variant, self.ballast_gib = how.mode, how.variant, how.ballast_gib
        self.told = os.environ.get("GS_MATRIX_TOLD")
        self.hash = hashlib.sha256()

    def hold(self):
        """Everything is imported: waits until it may use the cards."""
        if self.told:
            wait_for(os.path.join(self.told, "begin"))

    def add(self, array):
        """array: a NumPy array, or bytes"""
        self.hash.update(array if isinstance(array, bytes) else array.tobytes())

    def done(self, ballast_is_right=True):
        if not ballast_is_right:
            raise SystemExit("the ballast is not what was put there")
        print(f"result {self.mode} {self.hash.hexdigest()[:32]}", flush=True)

    def repeat(self, iteration, synchronize, answers=True):
        """Repeats a piece of its work as often as it is told. answers: whether this process writes how long it took."""
        if not self.told:
            return
        gc.collect()
        gc.freeze()
        gc.disable()  # no collection in the middle of what is timed
        end, number = os.path.join(self.told, "end"), 1
        while (path := wait_for(end, os.path.join(self.told, f"turn.{number}"))) != end:
            with open(path, encoding="ascii") as file:
                seconds = timed(iteration, synchronize, int(file.read()))
            if answers:
                write_whole(os.path.join(self.told, f"seconds.{number}"), f"{seconds:.9f}\n")
            number += 1
        gc.enable()
