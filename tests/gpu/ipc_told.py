# SPDX-License-Identifier: Apache-2.0
"""The program tests/gpu/ipc.c, told what to do, and what the driver answers in the corner cases of memory that processes share.

ipc_told.py facts|ranks PROGRAM"""
import select
import subprocess
import sys

PATIENCE = 120
MIB = 1 << 20


class Process:
    """say("alloc 5") gives the words of the answer: ["ok", "0"]."""

    def __init__(self, program, device=0, patience=PATIENCE, **more):
        self.patience = patience
        # nothing is read ahead: select() does not know of lines that are
        self.child = subprocess.Popen([program, "told", str(device)], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)
        self.begun = False

    @property
    def pid(self):
        return self.child.pid

    def tell(self, command):
        if not self.begun:
            self.begun = True
            first = self.answer()
            if first != ["ok"]:
                raise RuntimeError(f"no CUDA: {first}")
        self.child.stdin.write(f"{command}\n".encode())

    def answer(self):
        ready, _, _ = select.select([self.child.stdout], [], [], self.patience)
        return self.child.stdout.readline().decode().split() if ready else ["no", "answer"]

    def say(self, command):
        self.tell(command)
        return self.answer()

    def word(self, command):
        """What follows "ok"; an exception if it is none."""
        said = self.say(command)
        if not said or said[0] != "ok":
            raise RuntimeError(f"{command}: {' '.join(said)}")
        return said[1] if len(said) > 1 else ""

    def make(self, size, seed):
        """An allocation with that pattern, and its handle."""
        piece = self.word(f"alloc {size}")
        self.word(f"fill {piece} {seed}")
        return piece, self.word(f"handle {piece}")

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def end(self):
        """Its exit code."""
        if not self.begun:
            self.tell("forget 63")
        self.child.stdin.close()
        code = self.child.wait(self.patience)
        self.child.stdout.close()
        return code


def facts(program, size=8 * MIB, **more):
    """Lines "step: answer", which must be the same with and without gpushare."""
    lines = []

    def note(step, said):
        lines.append(f"{step}: {' '.join(said)}")

    one, two = Process(program, **more), Process(program, **more)
    piece, handle = one.make(size, 3)
    note("handle again is the same", [str(one.word(f"handle {piece}") == handle)])
    note("handle of an inner address is the same", [str(one.word(f"handle {piece} 4096") == handle)])
    note("open in the exporter", one.say(f"open {handle}"))
    note("open", two.say(f"open {handle}"))
    note("size", two.say("size 0"))
    note("attributes", two.say("attributes 0"))
    note("bytes", two.say("check 0 3"))
    note("open again", two.say(f"open {handle}"))
    note("same address", two.say("same 0 1"))
    note("free what is opened", two.say("free 0"))
    note("change", two.say("fill 0 4"))
    note("changed", one.say(f"check {piece} 4"))
    note("close, once", two.say("close 1"))
    note("still there", two.say("check 0 4"))
    note("close inside", two.say("close 0 4096"))
    note("close", two.say("close 0"))
    note("open after close", two.say(f"open {handle}"))
    note("bytes after that", two.say("check 0 4"))
    note("close after that", two.say("close 0"))
    note("close what is not open", one.say(f"close {piece}"))
    note("flags 0", two.say(f"open {handle} 0"))
    two.say("close 0")
    two.say("forget 0")
    note("flags 2", two.say(f"open {handle} 2"))
    note("free", one.say(f"free {piece}"))
    note("open what is freed", two.say(f"open {handle}"))
    note("open it in the exporter", one.say(f"open {handle}"))
    note("open zeros", two.say("open " + "00" * 64))
    small, handle = one.make(5000, 5)
    note("small: open", two.say(f"open {handle}")[:1])
    note("small: bytes", two.say("check 0 5"))
    note("small: close", two.say("close 0"))
    note("small: free", one.say(f"free {small}"))
    piece, handle = one.make(size, 6)
    note("before the exporter ends: open", two.say(f"open {handle}"))
    one.end()
    note("after it: bytes", two.say("check 0 6"))
    note("after it: close", two.say("close 0"))
    note("after it: open", two.say(f"open {handle}")[:1])
    note("end", [str(two.end())])
    return lines


def ranks(program, count=4, size=8 * MIB, **more):
    """Each of so many processes has a buffer that all others open, read and copy, as a custom all-reduce does. True: all is right."""
    all_of = [Process(program, **more) for _ in range(count)]
    made = [process.make(size, 10 + i) for i, process in enumerate(all_of)]
    good = True
    for i, process in enumerate(all_of):
        own = process.word(f"alloc {size}")
        for k, (_, handle) in enumerate(made):
            if k == i:
                continue
            piece = process.word(f"open {handle}")
            good &= process.say(f"check {piece} {10 + k}") == ["ok"]
            good &= process.say(f"copy {piece} {own}") == ["ok"] and process.say(f"check {own} {10 + k}") == ["ok"]
    good &= all_of[0].say("fill 2 100") == ["ok"]  # index 2 is the buffer of the second one
    good &= all_of[1].say(f"check {made[1][0]} 100") == ["ok"]
    good &= all(process.end() == 0 for process in all_of)
    return good


if __name__ == "__main__":
    if sys.argv[1] == "facts":
        print("\n".join(facts(sys.argv[2])))
    elif not ranks(sys.argv[2]):
        sys.exit("some byte is wrong")
