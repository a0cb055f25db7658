#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon with few descriptors makes way for one that a program with more of them starts.

usage: test_successor.py GPUSHARE_LOCKD [unittest options]"""
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import MIB, PATIENCE, Program, Refused, can_connect, wait_for
from kit import daemons_of

LOCKD = os.path.abspath(sys.argv.pop(1))
LOW = 40  # descriptors of the first daemon
PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24
LIBC = ctypes.CDLL(None, use_errno=True)

# A program with few descriptors: connects as often as it is told, says how often it was not hung up on, waits, and ends.
POOR = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from fake import hello
kept = []
for _ in range(int(sys.argv[3])):
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    try:
        kept[-1].connect(sys.argv[2])
        kept[-1].send(hello("poor"))
        kept[-1].settimeout(0.2)
        if kept[-1].recv(4096) != b"":
            kept.pop()
    except TimeoutError:
        pass
    except OSError:
        kept.pop()
print(len(kept), flush=True)
sys.stdin.read()
"""


def few_descriptors():
    LIBC.prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE)  # root could have more at once
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, LOW))


class SuccessorTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        self.path = os.path.join(self.folder, "lockd.sock")
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.close()
        for pid in daemons_of(self.path):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder)

    def start(self, prepare=None):
        subprocess.run([LOCKD, "--detach", "--idle-exit", "60", "--socket", self.path], preexec_fn=prepare, timeout=PATIENCE, check=True)
        return set(daemons_of(self.path))

    def come(self):
        """A program that reports 1 MiB. False: it was hung up on without a word."""
        program = Program(self.path)
        try:
            try:
                program.say(demand=MIB, resident=MIB)
            except BrokenPipeError:
                pass  # hung up on already: hear() tells whether there was a reason
            self.assertIsNotNone(program.hear())
        except (EOFError, OSError) as error:
            program.close()
            if isinstance(error, Refused):
                raise
            return False
        self.programs.append(program)
        return True

    def fill(self):
        """Programs come until one is hung up on."""
        for _ in range(LOW):
            if not self.come():
                return
        self.fail(f"{LOW} programs came with {LOW} descriptors")

    def assert_connected(self):
        for program in self.programs:
            program.hear(0)  # or EOFError

    def assert_hung_up(self):
        for program in self.programs:
            with self.assertRaises(EOFError):
                while program.hear() is not None:
                    pass

    def test_caller_with_more_starts_the_next(self):
        first = self.start(few_descriptors)
        self.fill()
        self.assertFalse(os.path.exists(self.path))
        self.assert_connected()
        self.start()
        self.assert_hung_up()
        wait_for(lambda: not first & set(daemons_of(self.path)), PATIENCE, "the first one to leave")
        self.assertTrue(can_connect(self.path))  # the socket of the next one has stayed
        for program in self.programs:
            program.reconnect()
        while len(self.programs) < 2 * LOW:
            self.assertTrue(self.come())

    def test_nobody_starts_one_it_goes_on(self):
        first = self.start(few_descriptors)
        self.fill()
        self.assertFalse(os.path.exists(self.path))
        wait_for(lambda: can_connect(self.path), PATIENCE, "it to come back")
        self.assertEqual(set(daemons_of(self.path)), first)
        self.assert_connected()
        with self.assertRaisesRegex(Refused, "no file descriptor left"):  # not a second time
            for _ in range(LOW):
                self.come()
        self.assert_connected()
        self.programs.pop().close()
        wait_for(self.come_if_it_may, PATIENCE, "room for another")

    def come_if_it_may(self):
        try:
            return self.come()
        except (Refused, FileNotFoundError):
            return False

    def poor(self, count):
        """A process with few descriptors, and how many of its connections were not hung up on."""
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        process = subprocess.Popen([sys.executable, "-c", POOR, here, self.path, str(count)], preexec_fn=few_descriptors,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process, int(process.stdout.readline())

    def end(self, process):
        if not process.stdin.closed:
            process.communicate(timeout=PATIENCE)

    def assert_next_serves(self, first):
        self.assertFalse(os.path.exists(self.path))
        self.start()
        wait_for(lambda: not first & set(daemons_of(self.path)), PATIENCE, "the first one to leave")
        self.assertTrue(self.come())

    def test_one_that_was_there_starts_the_next(self):
        first = self.start(few_descriptors)
        self.assertTrue(self.come())
        _, came = self.poor(LOW // 2)
        _, more = self.poor(LOW // 2)
        self.assertTrue(LOW // 4 < came + more < LOW)
        self.assert_hung_up()
        self.assert_next_serves(first)

    def test_one_that_comes_after_a_refusal_starts_the_next(self):
        first = self.start(few_descriptors)
        _, came = self.poor(LOW // 2)
        poor, more = self.poor(LOW // 2)
        self.assertTrue(LOW // 4 < came + more < LOW)
        self.assertTrue(can_connect(self.path))  # none of them could help
        self.end(poor)
        wait_for(lambda: not os.path.exists(self.path) or (self.come_if_it_may() and False), PATIENCE, "it to make way")
        self.assertEqual(self.programs, [])  # the very first one
        self.assert_next_serves(first)

    def test_service_makes_way_for_nobody(self):
        """A daemon in the foreground has its administrator's limit."""
        child = subprocess.Popen([LOCKD, "--socket", self.path], preexec_fn=few_descriptors, stderr=subprocess.DEVNULL)
        self.addCleanup(child.wait)
        wait_for(lambda: can_connect(self.path), PATIENCE, "its socket")
        self.addCleanup(child.kill)
        with self.assertRaisesRegex(Refused, "no file descriptor left"):
            for _ in range(LOW):
                self.come()
        self.assertTrue(os.path.exists(self.path))
        self.assert_connected()


if __name__ == "__main__":
    unittest.main()
