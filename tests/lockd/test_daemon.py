#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-lockd over real sockets: turns, dead and hostile programs, restart, start on demand.

usage: test_daemon.py GPUSHARE_LOCKD [unittest options]"""
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from fake import (CARD, GIB, MIB, PATIENCE, RUN, RUNNING, SOLE, STATE, WAITERS, WANT, Daemon, Program, can_connect, header, hello,
                  note, settle_all, state, wait_for)
from other_user import make_folder

LOCKD = os.path.abspath(sys.argv.pop(1))
SMALL = 10 * GIB


def runs(program):
    return program.flags & RUNNING and program.resident == program.demand


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD, "--quantum", "200")
        self.addCleanup(lambda: self.daemon.process.kill())  # also when a test failed half way
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.close()
        if self.daemon.process.poll() is None:
            self.assertEqual(self.daemon.end(), 0, self.daemon.said())
        self.assertNotIn("Sanitizer", self.daemon.said())
        self.daemon.log.close()
        shutil.rmtree(self.daemon.folder)

    def program(self, name="fake", **options):
        program = Program(self.daemon.path, name, total=SMALL, **options)
        self.programs.append(program)
        return program

    def running(self, name, demand):
        program = self.program(name)
        program.say(flags=WANT, demand=demand)
        program.settle(runs)
        return program

    def assert_closed(self, program):
        try:
            while program.hear() is not None:
                pass
        except EOFError:
            return
        self.fail("the daemon kept the connection")

    def assert_serves(self):
        """Others do not notice: a new program gets to run."""
        other = self.running("other", MIB)
        other.close()

    def test_registration_first_state_is_answered(self):
        program = self.program()
        program.say()
        target = program.hear()
        self.assertEqual((target.uuid, target.seq, target.flags), (CARD, 1, RUN | SOLE))
        self.assertEqual(target.capacity, SMALL)

    def test_both_fit_both_run(self):
        one, two = self.running("one", 4 * GIB), self.program("two")
        two.say(flags=WANT, demand=4 * GIB)
        settle_all([one, two], lambda: runs(two))
        self.assertTrue(runs(one))
        self.assertFalse(one.target.flags & WAITERS)

    def test_two_big_ones_take_turns(self):
        one, two = self.running("one", 7 * GIB), self.program("two")
        began = time.monotonic()
        two.say(flags=WANT, demand=7 * GIB)
        for _ in range(3):
            settle_all([one, two], lambda: runs(two))
            self.assertFalse(one.flags & RUNNING)
            self.assertEqual(one.resident, 3 * GIB)
            settle_all([one, two], lambda: runs(one))
        self.assertGreater(time.monotonic() - began, 5 * 0.2)

    def test_holder_killed_next_gets_lease(self):
        script = ("import sys, time; from fake import *\n"
                  f"p = Program({self.daemon.path!r}, 'holder', total={SMALL}); p.say(flags=WANT, demand=7*GIB)\n"
                  "p.settle(lambda p: p.flags & RUNNING); print('runs', flush=True); time.sleep(600)")
        holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                                  env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
        self.assertEqual(holder.stdout.readline(), b"runs\n")
        two = self.program("two")
        two.say(flags=WANT, demand=7 * GIB)
        self.assertFalse(two.hear().flags & RUN)
        holder.kill()
        holder.wait()
        holder.stdout.close()
        two.settle(runs)

    def test_garbage_closes_only_that_connection(self):
        good = self.running("good", GIB)
        valid = state(demand=GIB)
        wrong = [
            b"", b"x", b"\0" * 4096, os.urandom(176),
            valid[:-1], valid + b"x", valid[:100],
            struct.pack("<IHHII", 0x48535047, 99, STATE, len(valid), 0) + valid[16:],
            header(STATE, 16), header(77, 16), header(4, 64) + b"\0" * 48,
            valid.replace(b"GPSH", b"XXXX"),
            state(total=0), state(total=1 << 60), state(demand=1 << 63), state(resident=1 << 63),
            state(free=1 << 62), hello(), note(1, "x") + b"y", header(17, 32) + b"\xff" * 16,
            valid[:12] + b"\1" + valid[13:], valid[:148] + b"\1" + valid[149:],  # what must be 0
            state(flags=64), note(0, "x"), note(4, "x"), note(3, "x", pid=-1),
        ]
        for data in wrong:
            program = self.program("bad")
            try:
                program.socket.send(data)
                if data == b"":
                    program.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self.assert_closed(program)
        self.assertIsNone(good.hear(0.1))
        self.assert_serves()
        self.assertIn("connection closed", self.daemon.said())

    def test_state_before_hello_is_refused(self):
        program = self.program(say_hello=False)
        program.say()
        self.assert_closed(program)

    def test_flood_others_are_served(self):
        flood = self.program("flood")
        flood.socket.setblocking(False)
        data, sent = state(flags=WANT, demand=GIB), 0
        for _ in range(20000):
            try:
                flood.socket.send(data)
                sent += 1
            except BlockingIOError:
                break
        self.assert_serves()
        self.assertGreater(sent, 10)

    def test_silent_program_gets_few_targets(self):
        silent = self.running("silent", GIB)
        before = silent.targets
        other = self.running("other", GIB)
        for step in range(200):  # capacity and share change all the time
            other.say(demand=(1 + step % 8) * GIB, flags=WANT)
        time.sleep(0.2)
        while silent.hear(0.1) is not None:
            pass
        self.assertLessEqual(silent.targets - before, 5)

    def test_slow_reader_of_status_is_closed(self):
        self.running("one", GIB)
        reader = self.program("reader", say_hello=False)
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        reader.socket.settimeout(PATIENCE)
        with self.assertRaises(OSError):
            for _ in range(100000):
                reader.socket.send(header(16, 16))
        self.assert_serves()
        self.assertIn("last answer", self.daemon.said())

    def test_restart_programs_come_back_with_what_they_hold(self):
        one, two = self.running("one", 7 * GIB), self.program("two")
        two.say(flags=WANT, demand=7 * GIB)
        two.hear()
        self.daemon.end(signal.SIGKILL)
        self.assertRaises(EOFError, lambda: [one.hear() for _ in range(10)])
        seq = one.target.seq
        self.daemon = Daemon(LOCKD, "--quantum", "900", folder=self.daemon.folder)
        for program in (one, two):
            program.socket.close()
            program.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            program.socket.connect(self.daemon.path)
            program.socket.send(hello("again"))
            program.say()
        target = one.hear()
        self.assertTrue(target.flags & RUN)
        self.assertEqual(target.seq, seq + 1)
        self.assertFalse(two.hear().flags & RUN)
        self.assertEqual(two.target.budget, 0)
        settle_all([one, two], lambda: runs(two))
        settle_all([one, two], lambda: runs(one))

    def test_second_daemon_refuses(self):
        second = subprocess.run([LOCKD, "--socket", self.daemon.path], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(second.returncode, 1)
        self.assertIn("already serves " + self.daemon.path, second.stderr)
        quiet = subprocess.run([LOCKD, "--socket", self.daemon.path, "--idle-exit", "5", "--detach"], capture_output=True,
                               timeout=PATIENCE)
        self.assertEqual((quiet.returncode, quiet.stdout, quiet.stderr), (0, b"", b""))
        self.assert_serves()

    def test_stale_socket_is_replaced(self):
        self.daemon.end(signal.SIGKILL)
        self.assertTrue(os.path.exists(self.daemon.path))
        self.daemon = Daemon(LOCKD, folder=self.daemon.folder)
        self.assert_serves()

    def test_sigterm_removes_the_socket(self):
        self.running("one", GIB)
        self.assertEqual(self.daemon.end(), 0)
        self.assertFalse(os.path.exists(self.daemon.path))

    def test_many_connections_are_bounded(self):
        self.daemon.end()
        self.daemon = self.low_limit_daemon()
        first = self.running("first", GIB)
        crowd = [self.program() for _ in range(100)]
        time.sleep(0.2)
        first.say(demand=2 * GIB, flags=WANT)
        for program in crowd:
            program.close()

        def serves():
            try:
                self.assert_serves()
            except EOFError:  # refused, and told so: not all of them have gone
                return False
            return True
        wait_for(serves, PATIENCE, "it to serve again")

    def low_limit_daemon(self):
        wrapper = os.path.join(self.daemon.folder, "low")
        with open(wrapper, "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\nulimit -n 64\nexec "{LOCKD}" "$@"\n')
        os.chmod(wrapper, 0o755)
        return Daemon(wrapper, "--quantum", "200", folder=self.daemon.folder)


class StartTest(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder()
        self.path = os.path.join(self.folder, "lockd.sock")

    def tearDown(self):
        wait_for(lambda: not can_connect(self.path), PATIENCE, "the daemon to leave")
        shutil.rmtree(self.folder)

    def test_twenty_at_once_exactly_one_stays(self):
        many = [subprocess.Popen([LOCKD, "--socket", self.path, "--idle-exit", "1"], stderr=subprocess.PIPE)
                for _ in range(20)]
        guests = []  # else it may leave before the last ones have come

        def has_come():
            try:
                guests.append(Program(self.path))
                guests[-1].say()
                return guests[-1].hear() is not None
            except (OSError, EOFError):
                return False
        wait_for(has_come, PATIENCE, "one of them to serve")
        wait_for(lambda: sum(p.poll() is None for p in many) == 1, PATIENCE, "19 of 20 to leave")
        self.assertTrue(can_connect(self.path))
        for guest in guests:
            guest.close()
        self.assertEqual([p.returncode for p in many if p.poll() is not None], [0] * 19)
        for process in many:
            _, said = process.communicate(timeout=PATIENCE)  # the last one leaves by itself
            self.assertTrue(process.returncode == 0 and (said == b"" or b"serves" in said), said)

    def test_detached_survives_and_leaves_when_idle(self):
        read_end, write_end = os.pipe()  # a descriptor that the daemon must not keep
        os.set_inheritable(write_end, True)
        started = subprocess.run([LOCKD, "--socket", self.path, "--idle-exit", "5", "--detach"], close_fds=False,
                                 timeout=PATIENCE, cwd=self.folder)
        os.close(write_end)
        self.assertEqual(started.returncode, 0)
        self.assertTrue(can_connect(self.path))  # at once: the parent ends when it listens
        self.assertEqual(os.read(read_end, 1), b"")
        os.close(read_end)
        program = Program(self.path)
        program.say(flags=WANT, demand=GIB)
        program.settle(runs)
        time.sleep(5.5)
        self.assertTrue(can_connect(self.path))  # somebody is connected
        program.close()
        wait_for(lambda: not os.path.exists(self.path), PATIENCE, "the idle daemon to leave")

    def test_socket_activation_and_notify(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        listener.listen()
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(self.folder, "notify"))
        notify.settimeout(PATIENCE)
        pid = os.fork()
        if pid == 0:
            os.dup2(listener.fileno(), 3)
            os.set_inheritable(3, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=notify.getsockname())
            os.execv(LOCKD, [LOCKD, "--socket", self.path, "--log-level", "error"])
        self.assertEqual(notify.recv(100), b"READY=1")
        listener.close()
        program = Program(self.path)
        program.say(flags=WANT, demand=GIB)
        program.settle(runs)
        program.close()
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(notify.recv(100), b"STOPPING=1")
        notify.close()
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertTrue(os.path.exists(self.path))  # systemd's, not ours

    def test_bad_command_lines(self):
        for arguments, said in ((["--frob"], "unknown option"), (["--quantum", "x"], "not a number"),
                                (["--quantum", "0"], "outside"), (["--reserve", "lots"], "not a size"), (["extra"], "unexpected"),
                                (["--socket"], "needs"), (["--socket", "here.sock"], "full path"),
                                (["--socket", "/" + "x" * 200], "107"), (["--detach", "--foreground"], "exclude"),
                                (["--socket", "/nowhere/at/all.sock"], "/nowhere"), (["--log-level", "loud"], "debug")):
            result = subprocess.run([LOCKD, *arguments], capture_output=True, text=True, timeout=PATIENCE)
            self.assertIn(result.returncode, (1, 2), arguments)
            self.assertIn(said, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_something_else_at_the_socket_is_left_alone(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("precious")
        result = subprocess.run([LOCKD, "--socket", self.path], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not a socket", result.stderr)
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_other_user_may_not_connect(self):
        daemon = Daemon(LOCKD, folder=self.folder)
        os.chmod(self.folder, 0o755)
        os.chmod(self.path, 0o666)  # the file's mode would let him; the daemon does not
        self.addCleanup(daemon.process.kill)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                program = Program(self.path)
                program.say()
                program.hear()
            except (EOFError, OSError):
                code = 0
            os._exit(code)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIn("may not connect", daemon.said())
        daemon.end()
        daemon.log.close()


if __name__ == "__main__":
    unittest.main()
