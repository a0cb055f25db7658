#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Descriptors that take for ever to close: they hold up nobody.

usage: test_slow_to_close.py GPUSHARE_LOCKD [unittest options]"""
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from callers import CARD_BYTES, connect, drain, with_descriptors
from fake import GIB, MIB, PATIENCE, RUNNING, WANT, Daemon, Program, state, wait_for

LOCKD = os.path.abspath(sys.argv.pop(1))


class SlowToClose:
    """A connection that takes for ever to close, for whoever does it last: its peer does not read, and it lingers."""

    def __init__(self):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.socket = socket.socket()
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            self.socket.connect(listener.getsockname())
            self.peer, _ = listener.accept()
        self.socket.settimeout(0.1)
        try:
            while True:
                self.socket.send(bytes(65536))
        except TimeoutError:
            pass
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))

    def go_with(self, connection, body, more=()):
        """Into a message, and nowhere else any more. True if the kernel let it."""
        try:
            socket.send_fds(connection, [body], [self.socket.fileno(), *more])
        except PermissionError:  # Linux 6.16, and not asked for
            return False
        self.socket.close()
        return True


class SlowToCloseTest(unittest.TestCase):
    def serve(self, hand_over, program=LOCKD):
        daemon = Daemon(program, "--hand-over", hand_over)
        self.addCleanup(shutil.rmtree, daemon.folder)
        self.addCleanup(daemon.process.wait)
        self.addCleanup(daemon.process.kill)
        return daemon

    def test_memory_that_is_being_closed_is_nobody_elses(self):
        """What has left a program and is not free yet makes the card no smaller. (For 2 s at least: then the memory is somebody's.)"""
        daemon = self.serve("yes")
        giver, other = (Program(daemon.path, total=CARD_BYTES) for _ in range(2))
        self.addCleanup(giver.close)
        self.addCleanup(other.close)

        def report(program, free, given=0):
            body = state(seq=program.target.seq, flags=program.flags, total=CARD_BYTES, free=free, demand=program.demand,
                         resident=program.resident, given=given, given_bytes=GIB)
            return trap.go_with(program.socket, body) if given else program.socket.send(body)

        def measure(free):
            for program in (giver, other):
                while program.hear(0.01) is not None:
                    pass
                report(program, free)

        trap = SlowToClose()
        other.say()
        other.hear()
        giver.say(flags=WANT, demand=2 * GIB)
        giver.settle(lambda one: one.flags & RUNNING and one.resident == one.demand)
        for _ in range(20):
            measure(CARD_BYTES - 2 * GIB)
        before = giver.target.capacity
        giver.resident = GIB
        if not report(giver, CARD_BYTES - 2 * GIB, given=1):
            self.skipTest("the kernel lets no descriptor through")
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            measure(CARD_BYTES - 2 * GIB)
        self.assertGreater(giver.target.capacity, before - GIB // 2)
        trap.peer.close()

    def attack(self, daemon):
        """Once in a report, once in a packet that nobody reads. Those that the kernel let through."""
        traps, sent = [], 0
        for body in (state(demand=GIB, given=1, given_bytes=MIB), None):
            traps.append(SlowToClose())
            caller = Program(daemon.path, total=CARD_BYTES)
            caller.say()
            caller.hear()  # it is known now
            daemon.process.send_signal(signal.SIGSTOP)  # it is the last one to have it
            if body is None:
                caller.socket.send(b"garbage")
            sent += traps[-1].go_with(caller.socket, body or b"")
            caller.close()
            daemon.process.send_signal(signal.SIGCONT)
        for trap in traps:
            self.addCleanup(trap.socket.close)  # of one that is still ours
            self.addCleanup(trap.peer.close)  # which comes first: then nobody waits any more
        return sent

    def assert_serves(self, daemon):
        late = Program(daemon.path, total=CARD_BYTES)
        late.say(demand=MIB, flags=WANT)
        late.settle(lambda p: p.flags & RUNNING)
        late.close()

    def test_descriptor_that_is_slow_to_close_holds_up_nobody(self):
        daemon = self.serve("yes")
        self.assertEqual(self.attack(daemon), 2)
        self.assert_serves(daemon)
        daemon.process.terminate()
        self.assertEqual(daemon.process.wait(PATIENCE), 0)

    def test_descriptors_that_are_slow_to_close_leave_some_for_others(self):
        daemon = self.serve("yes", with_descriptors(self, LOCKD, 512))
        caller, traps = Program(daemon.path, total=CARD_BYTES), []
        caller.say()
        caller.hear()
        with open("/dev/null", "rb") as null:
            daemon.process.send_signal(signal.SIGSTOP)  # it is the last one to have them
            for _ in range(4):
                traps.append(SlowToClose())
                self.addCleanup(traps[-1].peer.close)  # then nobody waits any more
                self.assertTrue(traps[-1].go_with(caller.socket, state(demand=GIB), [null.fileno()] * 250))
            daemon.process.send_signal(signal.SIGCONT)
        wait_for(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) > 250, PATIENCE, "the first of them")
        time.sleep(0.3)  # what else it reads, it has read
        crowd = [connect(daemon.path) for _ in range(32)]
        ready, _, _ = select.select(crowd, [], [], 0.5)
        self.assertEqual([drain(one) for one in ready], [])  # nobody is refused (nor read, while the user has so much there)
        for one in [caller, *crowd]:
            one.close()
        daemon.process.terminate()  # it has not closed one itself, as what finds no place would be
        self.assertEqual(daemon.process.wait(PATIENCE), 0)

    def test_nor_does_one_that_is_not_wanted(self):
        daemon = self.serve("no")
        self.attack(daemon)
        self.assert_serves(daemon)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
