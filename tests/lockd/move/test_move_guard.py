#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guard of a move (lockd/move/guard.c) with records of which the program has made something else, on simulated cards. The
test is the daemon, and the program one without gpushare.

usage: test_move_guard.py BUILD-FOLDER [unittest options]"""
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from moving import PATIENCE, Cards, uuid  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
SEAL_WRITE = 8
F_ADD_SEALS = 1033
F_OFD_SETLK = 37
CHECKPOINTER = """
import ctypes, sys
driver, pid = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1])
assert [driver.cuInit(0), driver.cuCheckpointProcessLock(pid, None), driver.cuCheckpointProcessCheckpoint(pid, None)] == [0, 0, 0]
"""
SETTLE = 10  # seconds: SETTLE_MS of guard.c


def number(card):
    return bytes.fromhex(uuid(card)[4:].replace("-", ""))


def started(pid):
    """When the process was, in ticks after boot."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


class Guard:
    def __init__(self, cards, pid):
        self.socket, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.pid, self.started = pid, started(pid)
        with its_end:
            its_end.setblocking(True)
            self.process = cards.spawn([cards.build + "/lockd/gpushare-lockd", "--guard", str(pid)], stdin=its_end)

    def order(self, word, record=None):
        here, there = number(0), number(1)
        data = struct.pack("<cBHiQQ2048s", word.encode(), 2, 0, self.pid, 0, self.started, here + there + there + here)
        socket.send_fds(self.socket, [data], [] if record is None else [record])

    def hear(self):
        data = self.socket.recv(4096)
        return data[:1].decode(), data[1:].decode()

    def seconds(self):
        """Of a processor that it has used."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class GuardTest(unittest.TestCase):
    def setUp(self):
        self.cards = Cards(BUILD)
        self.addCleanup(self.cards.__exit__)
        self.program = self.start_program()

    def start_program(self):
        program = self.cards.spawn([BUILD + "/tests/runtime/moves"], {"GPUSHARE_DISABLE": "1"}, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, bufsize=1)
        self.tell("alloc 8", program)
        return program

    def tell(self, command, program=None):
        program = program or self.program
        program.stdin.write(command + "\n")
        self.assertEqual(program.stdout.readline(), "ok\n", command)

    def record(self, byte, flags=0):
        fd = os.memfd_create("record", flags | os.MFD_CLOEXEC)
        self.addCleanup(os.close, fd)
        os.write(fd, byte)
        return fd

    def lock(self, record):
        """As another open file, of another guard."""
        fd = os.open(f"/proc/self/fd/{record}", os.O_RDWR)
        fcntl.fcntl(fd, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return fd

    def guard(self):
        guard = Guard(self.cards, self.program.pid)
        self.addCleanup(guard.socket.close)
        return guard

    def checkpoint(self):
        """As a guard does that is killed after it."""
        subprocess.run([sys.executable, "-c", CHECKPOINTER, str(self.program.pid)], env=self.cards.environment, check=True, timeout=PATIENCE)

    def test_no_record_of_a_program_that_runs(self):
        """It is where it was, and no guard comes again and again."""
        with open("/dev/zero", "r+b") as device, open(self.cards.hog, "rb") as readable:
            reading, writing = os.pipe()
            try:
                for wrong in (None, device.fileno(), readable.fileno(), reading, writing):
                    guard = self.guard()
                    guard.order("W", wrong)
                    self.assertEqual(guard.hear()[0], "S")
            finally:
                os.close(reading)
                os.close(writing)
        self.tell("check")

    def test_process_that_has_the_number_of_one_that_has_ended(self):
        """Nothing is done to it, whether a move begins or goes on."""
        for word in "VW":
            guard = self.guard()
            guard.started -= 1
            guard.order(word, self.record(b"T"))
            said, text = guard.hear()
            self.assertEqual((said, text), ("N", "the process has ended"))
            guard.process.wait(PATIENCE)
        self.tell("check")

    def test_no_record_of_a_program_that_is_checkpointed(self):
        self.checkpoint()
        guard = self.guard()
        guard.order("W")
        self.assertEqual(guard.hear()[0], "H")

    def test_no_record_of_a_process_that_the_driver_does_not_know(self):
        """Nobody makes room for it."""
        self.program.stdin.close()
        self.program.wait(PATIENCE)
        stranger = subprocess.Popen(["sleep", str(PATIENCE)])
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        guard = Guard(self.cards, stranger.pid)
        self.addCleanup(guard.socket.close)
        guard.order("W")
        self.assertEqual(guard.hear()[0], "L")

    def test_record_that_cannot_be_written(self):
        """The guard does not try it as often as it can."""
        self.checkpoint()
        record = self.record(b"C", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(record, F_ADD_SEALS, SEAL_WRITE)
        guard = self.guard()
        guard.order("W", record)
        word, text = guard.hear()
        self.assertEqual(word, "H", text)
        self.assertIn("the record of the move", text)
        before = guard.seconds()
        time.sleep(3)
        self.assertLess(guard.seconds() - before, 1)

    def test_record_that_an_earlier_guard_has(self):
        """The daemon learns that the program is on no device; when that guard ends, the next one finishes the move."""
        self.checkpoint()
        record = self.record(b"T")
        held = self.lock(record)
        guard = self.guard()
        guard.order("W", record)
        word, text = guard.hear()
        self.assertEqual(word, "H", text)
        self.assertIn("an earlier guard is still at work", text)
        os.close(held)
        self.assertEqual(guard.hear()[0], "M")
        self.tell("check")
        self.assertGreater(self.cards.used(self.program, 1), 8 << 20)

    def test_record_that_the_program_keeps_locked_for_ever(self):
        """The guard waits for no longer than its daemon or the program are there."""
        record = self.record(b"T")
        self.addCleanup(os.close, self.lock(record))
        left, lost = self.guard(), self.guard()
        for guard in (left, lost):
            guard.order("W", record)
        left.socket.close()
        left.process.wait(PATIENCE)
        self.program.kill()
        self.program.wait(PATIENCE)
        self.start_program()  # the simulated card forgets the dead when others use it
        lost.process.wait(PATIENCE)

    def test_record_with_a_lease(self):
        """To open it waits until the program has given the lease up: that is no record."""
        with open("/proc/sys/fs/lease-break-time", encoding="ascii") as file:
            most = int(file.read())
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGIO, before)
        record = self.record(b"-")
        guard = self.guard()
        guard.order("V")
        self.assertEqual(guard.hear()[0], "K")
        fcntl.fcntl(record, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        began = time.monotonic()
        guard.order("G", record)
        self.assertEqual(guard.hear()[0], "N")
        self.assertLess(time.monotonic() - began, most - 5)
        self.tell("check")

    def test_record_that_the_program_keeps_locked(self):
        """A move that begins has no earlier guard: it does not take place."""
        record = self.record(b"-")
        held = self.lock(record)
        guard = self.guard()
        guard.order("V")
        self.assertEqual(guard.hear()[0], "K")
        guard.order("G", record)
        self.assertEqual(guard.hear()[0], "N")
        os.close(held)
        self.tell("check")


if __name__ == "__main__":
    unittest.main(warnings="ignore")
