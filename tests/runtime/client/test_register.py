#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Host memory that a program registers with the driver: NCCL's, which its ranks share, is told to the daemon before the call returns,
since kernels that wait for other ranks may follow at once. Memory of the program's own makes the library read nothing.

usage: test_register.py BUILD-FOLDER [unittest options]"""
import os
import select
import socket
import struct
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "lockd")]
from card import MIB, PATIENCE, Card  # noqa: E402  (in the folder above)
from fake import KIN, MAGIC, RUN, STATE, TARGET, TARGET_FORMAT, VERSION  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
NCCL = 6  # enum gs_kin_kind
COUNT = 100


class Listener:
    """A daemon that lets the program run, and keeps what it has said."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(8)
        self.connection = None
        self.kinds = []

    def files(self):
        return [self.listener] + ([self.connection] if self.connection else [])

    def take(self):
        """All that has arrived."""
        if self.connection is None:
            if not select.select([self.listener], [], [], 0)[0]:
                return
            self.connection, _ = self.listener.accept()
            self.connection.setblocking(False)
        while True:
            try:
                data = self.connection.recv(4096)
            except BlockingIOError:
                return
            if not data:
                return
            kind = struct.unpack("<IHHII", data[:16])[2]
            if kind == KIN:
                self.kinds.append(struct.unpack("<QHHI", data[16:])[1])
            elif kind == STATE and struct.unpack("<16sI", data[16:36])[1] == 0:
                self.connection.send(struct.pack(TARGET_FORMAT, MAGIC, VERSION, TARGET, struct.calcsize(TARGET_FORMAT), 0, data[16:32], 1,
                                                 RUN, 32 * MIB, 60 * MIB, 0, 2**64 - 1, *[0] * 21))

    def close(self):
        for each in self.files():
            each.close()


class RegisterTest(unittest.TestCase):
    def setUp(self):
        self.card = Card(BUILD, memory="64MiB", daemon=False)
        self.addCleanup(self.card.__exit__)
        self.daemon = Listener(self.card.socket)
        self.addCleanup(self.daemon.close)

    def registers(self, name):
        """The bytes that private registrations have read, as soon as the shared one is done."""
        path = f"/dev/shm/{name}-test-{os.getpid()}"
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        program = self.card.start([BUILD + "/tests/runtime/registers", path, str(COUNT)])
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stderr.close)
        said, end = b"", time.monotonic() + PATIENCE
        while not said.endswith(b"registered\n"):
            self.assertLess(time.monotonic(), end, said)
            ready = select.select([program.stdout, *self.daemon.files()], [], [], 1)[0]
            if program.stdout in ready:
                more = os.read(program.stdout.fileno(), 4096)
                self.assertTrue(more, said)
                said += more
            else:
                self.daemon.take()
        return int(said.split()[0])

    def test_nccl_memory_is_told_before_the_call_returns(self):
        self.registers("nccl")
        self.daemon.take()
        self.assertIn(NCCL, self.daemon.kinds)

    def test_other_memory_is_no_evidence(self):
        self.registers("other")
        self.daemon.take()
        self.assertNotIn(NCCL, self.daemon.kinds)

    def test_memory_of_its_own_is_not_looked_up(self):
        if not os.access("/proc/self/pagemap", os.R_OK):
            self.skipTest("this kernel has no /proc/self/pagemap")
        self.assertLess(self.registers("nccl"), COUNT * 16 + 1024)  # the list of mappings is longer than that


if __name__ == "__main__":
    unittest.main(warnings="ignore")
