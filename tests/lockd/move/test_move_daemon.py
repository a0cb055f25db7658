#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves as the daemon sees them, with programs and guards that say what the test wants: for how long a move keeps room, and others
from moving; programs and guards that lie or say nothing.

usage: test_move_daemon.py GPUSHARE-LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import (GIB, PATIENCE, RUN, RUNNING, STATE, TARGET, WANT, Daemon, Program, Target, message, state,  # noqa: E402
                  wait_for)

LOCKD, CTL = sys.argv.pop(1), sys.argv.pop(1)
SEES, MOVE, RELOCATE = 12, 13, 29
ASK, STOP, OVER, LEFT = 1, 2, 3, 4
TOTAL = 16 * GIB
HERE, THERE = bytes([1]) * 16, bytes([2]) * 16
CONTEXT = TOTAL // 64  # what is kept for one
LATE = 30              # seconds: LATE_NS of lockd/move/move_guard.c
ORDER = "<cBHiQQ2048s"


class Mover(Program):
    """A program that sees both cards and is on the first one."""

    def __init__(self, path, name="mover"):
        super().__init__(path, name, TOTAL, uuid=HERE)
        self.pinned, self.steps, self.silent = 0, [], False
        self.tell_devices()

    def tell_devices(self):
        for i, uuid in enumerate((HERE, THERE)):
            self.socket.send(message(SEES, struct.pack("<16sQII64s", uuid, TOTAL, i, 2, b"Test card")))

    def say_step(self, number, step, record=None, pinned=0, code=0):
        data = message(MOVE, struct.pack("<16s16sIIiIQ160s", HERE, THERE, number, step, code, 0, pinned, b""))
        socket.send_fds(self.socket, [data], [] if record is None else [record])
        if step == STOP:
            self.silent = code == 0  # it reports nothing until the move is over

    def say_left(self, number, record, pinned=0):
        """To the next daemon, which takes descriptors only when it has asked for them (since Linux 6.16)."""
        self.say_step(number, LEFT, pinned=pinned)
        self.await_step(LEFT)
        self.say_step(number, LEFT, record, pinned)

    def listen(self, until, what):
        """Obeys targets, and keeps the steps of moves as (number, step, code), until until()."""
        end = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < end, f"waited for {what}; steps {self.steps}, {self.target}"
            self.socket.settimeout(0.1)
            try:
                data = self.socket.recv(4096)
            except (socket.timeout, BlockingIOError):
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError
            kind = struct.unpack("<IHHII", data[:16])[2]
            if kind == MOVE:
                self.steps.append(struct.unpack("<IIi", data[48:60]))
                self.silent = self.silent and self.steps[-1][1] != OVER
            elif kind == TARGET:
                self.target = Target(data)
                if not self.silent:
                    self.obey()

    def await_step(self, step):
        self.listen(lambda: self.steps and self.steps[-1][1] == step, f"step {step}")
        return self.steps[-1]


class Guard:
    """A guard that the daemon has started, as the guard service would."""

    def __init__(self, listener):
        self.socket, _ = listener.accept()
        self.socket.settimeout(PATIENCE)
        self.word, self.record = self.hear()

    def hear(self):
        data, files, _, _ = socket.recv_fds(self.socket, 4096, 4)
        return (struct.unpack(ORDER, data)[0].decode(), files[0] if files else None) if data else ("", None)

    def say(self, word, text=""):
        self.socket.send((word + text).encode())

    def end(self):
        self.socket.close()
        if self.record is not None:
            os.close(self.record)


class MoveDaemonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.guards = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.guards.bind(self.folder + "/guard.sock")
        self.guards.listen(16)
        self.guards.settimeout(PATIENCE)
        self.addCleanup(self.guards.close)

    def start(self, *options):
        self.daemon = Daemon(LOCKD, *options, folder=self.folder,
                             env={**os.environ, "GPUSHARE_GUARD_SOCKET": self.folder + "/guard.sock"})
        self.addCleanup(lambda daemon=self.daemon: daemon.process.poll() is None and daemon.end())

    def kill_daemon(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.daemon.log.close()

    def devices(self):
        done = subprocess.run([CTL, "status", "--json"], env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path},
                              capture_output=True, text=True, timeout=PATIENCE, check=True)
        return {d["uuid"]: d for d in json.loads(done.stdout)["devices"]}

    def short(self):
        """What is kept on both cards."""
        devices = self.devices()
        return [next((d["short"] for uuid, d in devices.items() if uuid.startswith("GPU-" + card[:4].hex())), None)
                for card in (HERE, THERE)]

    def request(self, program_pid=None):
        """gpusharectl that asks for a move to the other card."""
        text = THERE.hex()
        uuid = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        asker = subprocess.Popen([CTL, "move", str(program_pid or os.getpid()), uuid],
                                 env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path}, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        self.addCleanup(asker.stdout.close)
        self.addCleanup(asker.wait)
        self.addCleanup(asker.kill)
        return asker

    def watch_cards(self):
        """One more program on each card, so that there is something to see of both."""
        for card in (HERE, THERE):
            program = Program(self.daemon.path, "watcher", TOTAL, uuid=card)
            program.say()
            self.addCleanup(program.close)
        wait_for(lambda: None not in self.short(), PATIENCE, "the daemon to know both cards")

    def mover(self):
        mover = Mover(self.daemon.path)
        self.addCleanup(lambda: mover.close())
        mover.say(demand=4 * GIB, flags=WANT)
        mover.listen(lambda: mover.flags & RUNNING, "its turn")
        return mover

    def begin(self, mover):
        """The guard and the asker of a move that has come to where the program's memory leaves."""
        asker = self.request()
        mover.await_step(ASK)
        guard = Guard(self.guards)
        self.addCleanup(guard.end)
        self.assertEqual(guard.word, "V")
        guard.say("K")
        mover.say_step(mover.steps[-1][0], ASK)
        mover.await_step(STOP)
        return guard, asker

    def go(self, mover, guard):
        record = os.memfd_create("record")
        self.addCleanup(os.close, record)
        os.write(record, b"-")
        mover.say_step(mover.steps[-1][0], STOP, record)
        word, with_it = guard.hear()
        self.assertEqual(word, "G")
        os.close(with_it)
        return record

    def test_held_program_has_room_on_both_cards_also_after_the_daemon(self):
        self.start("--reserve", "0")
        mover = self.mover()
        mover.pinned = 3 * GIB
        guard, _ = self.begin(mover)
        self.watch_cards()
        mover.listen(lambda: mover.resident == 0, "its memory to leave")
        self.say_pinned(mover, 3 * GIB)
        record = self.go(mover, guard)
        guard.say("H", "held")
        wait_for(lambda: self.short() == [3 * GIB + CONTEXT] * 2, PATIENCE, "room on both cards")
        self.kill_daemon()  # first: it would start another guard
        guard.end()
        mover.close()
        self.start("--reserve", "0")
        self.watch_cards()
        again = Mover(self.daemon.path)
        self.addCleanup(again.close)
        again.say_left(7, record, 3 * GIB)
        guard = Guard(self.guards)
        self.assertEqual(guard.word, "W")
        wait_for(lambda: self.short() == [0, CONTEXT], PATIENCE, "room where it is to come, for what is sure")
        guard.say("H", "held")
        wait_for(lambda: self.short() == [3 * GIB + CONTEXT] * 2, PATIENCE, "room on both cards again")
        guard.say("S", "it stays")
        self.assertEqual(again.await_step(OVER)[0], 7)
        wait_for(lambda: self.short() == [0, 0], PATIENCE, "room not to be kept any more")
        guard.end()

    def say_pinned(self, mover, pinned):
        """It was allowed as much before."""
        mover.socket.send(state(seq=mover.target.seq, flags=0, total=TOTAL, demand=4 * GIB, resident=0, pinned=pinned, uuid=HERE))

    def test_program_whose_word_nobody_confirms(self):
        """It says that it is being moved, and its guard finds nothing out: it keeps neither room nor others' moves for long."""
        self.start("--reserve", "0")
        self.watch_cards()
        liar = Mover(self.daemon.path, "liar")
        self.addCleanup(liar.close)
        record = os.memfd_create("record")
        self.addCleanup(os.close, record)
        liar.say_left(1, record, 12 * GIB)
        guard = Guard(self.guards)
        self.addCleanup(guard.end)
        began = time.monotonic()
        wait_for(lambda: self.short()[1] == CONTEXT, PATIENCE, "room for a context, whatever it says")
        honest = self.honest()
        first = self.request(honest.pid)
        self.assertIn("another move is under way", first.communicate(timeout=PATIENCE)[0])
        wait_for(lambda: self.short()[1] == 0, PATIENCE, "the room not to be kept any more")
        self.assertGreaterEqual(time.monotonic() - began, LATE - 1)
        self.request(honest.pid)
        self.assertEqual(honest.stdout.readline(), "asked\n")
        self.assertIn("takes long", self.daemon.said())

    def honest(self):
        """A program in a process of its own, which has its turn."""
        honest = subprocess.Popen([sys.executable, os.path.abspath(__file__), LOCKD, CTL, "--honest-mover", self.daemon.path],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(honest.stdout.close)
        self.addCleanup(honest.stdin.close)
        self.addCleanup(honest.wait)
        self.addCleanup(honest.kill)
        self.assertEqual(honest.stdout.readline(), "runs\n")
        return honest

    def adopt(self, pinned, name="liar"):
        """A program that says that it was being moved, and its guard."""
        liar = Mover(self.daemon.path, name)
        self.addCleanup(liar.close)
        record = os.memfd_create("record")
        self.addCleanup(os.close, record)
        liar.say_left(1, record, pinned)
        guard = Guard(self.guards)
        self.addCleanup(guard.end)
        return liar, guard

    def test_program_whose_guard_does_not_see_it_leave(self):
        """It has locked itself, say: it may be on any device, and nothing is kept for it."""
        self.start("--reserve", "0")
        self.watch_cards()
        _, guard = self.adopt(12 * GIB)
        wait_for(lambda: self.short() == [0, CONTEXT], PATIENCE, "room for a context")
        guard.say("L", "locked")
        wait_for(lambda: self.short() == [0, 0], PATIENCE, "no room for it")
        self.assertIn("cannot be brought back: locked", self.daemon.said())
        guard.say("H", "checkpointed")
        wait_for(lambda: self.short() == [12 * GIB + CONTEXT] * 2, PATIENCE, "room when it has left")

    def test_program_that_says_more_than_its_user_may_have(self):
        self.start("--reserve", "0", "--max-memory", str(5 * GIB))
        self.watch_cards()
        for pinned, kept in ((4 * GIB, 4 * GIB + CONTEXT), (5 * GIB, 5 * GIB + 2 * CONTEXT)):  # the second one: what is left
            _, guard = self.adopt(pinned)
            guard.say("H", "held")
            wait_for(lambda kept=kept: self.short() == [kept] * 2, PATIENCE, "what its user may have")

    def test_guards_that_end_at_once(self):
        """The next one comes later and later."""
        self.start()
        mover = Mover(self.daemon.path)
        self.addCleanup(mover.close)
        record = os.memfd_create("record")
        self.addCleanup(os.close, record)
        mover.say_left(1, record)
        count, end = 0, time.monotonic() + 10
        while time.monotonic() < end:
            self.guards.settimeout(max(0.01, end - time.monotonic()))
            try:
                Guard(self.guards).end()
            except socket.timeout:
                break
            count += 1
        self.assertGreaterEqual(count, 2)
        self.assertLessEqual(count, 6)
        mover.socket.send(message(STATE, b""))  # the daemon still listens to it: this ends it
        with self.assertRaises(EOFError):
            mover.listen(lambda: False, "the end")

    def test_setting_that_changes_while_its_memory_leaves(self):
        """The daemon still takes the record, although it hands nothing over (it may refuse descriptors since Linux 6.16)."""
        self.start("--hand-over", "no")
        mover = self.mover()
        guard, asker = self.begin(mover)
        subprocess.run([CTL, "set", "quantum", "100"], env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path}, check=True,
                       timeout=PATIENCE)
        mover.listen(lambda: mover.resident == 0, "its memory to leave")
        self.go(mover, guard)
        guard.say("M")
        self.assertEqual(mover.await_step(OVER)[2], 0)
        self.assertEqual(asker.wait(PATIENCE), 0)

    def test_setting_that_changes_while_it_is_asked_for_its_record(self):
        """The same for a program that comes in the middle of a move."""
        config = self.folder + "/lockd.conf"
        with open(config, "w", encoding="utf-8") as file:
            file.write("[scheduling]\nhand-over = yes\n")
        self.start("--config", config)
        mover = Mover(self.daemon.path)
        self.addCleanup(mover.close)
        record = os.memfd_create("record")
        self.addCleanup(os.close, record)
        mover.say_step(1, LEFT)
        mover.await_step(LEFT)
        with open(config, "w", encoding="utf-8") as file:
            file.write("[scheduling]\nhand-over = no\n")
        subprocess.run([CTL, "reload"], env={**os.environ, "GPUSHARE_SOCKET": self.daemon.path}, check=True,
                       timeout=PATIENCE)
        mover.say_step(1, LEFT, record)
        guard = Guard(self.guards)
        self.addCleanup(guard.end)
        self.assertEqual(guard.word, "W")

    def test_process_that_ends_and_leaves_its_connection_to_another_one(self):
        """Its number may be another process's by then, which no guard may touch."""
        self.start()
        mover = subprocess.Popen([sys.executable, os.path.abspath(__file__), LOCKD, CTL, "--leaving-mover", self.daemon.path],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(mover.stdout.close)
        self.addCleanup(mover.stdin.close)
        self.assertEqual(mover.stdout.readline(), "runs\n")
        asker = self.request(mover.pid)
        guard = Guard(self.guards)
        self.addCleanup(guard.end)
        self.assertEqual(guard.word, "V")
        guard.say("K")
        self.assertEqual(mover.stdout.readline(), "stops\n")
        mover.stdin.write("\n")
        mover.stdin.flush()
        mover.wait(PATIENCE)
        self.assertEqual(guard.hear()[0], "")
        self.assertIn("it has ended", asker.communicate(timeout=PATIENCE)[0])

    def test_moves_of_one_user_leave_time_for_others(self):
        """A move that took long for nothing is followed by the same user's next one after as long a time only."""
        if os.geteuid() != 0:
            self.skipTest("this process cannot become another user")
        os.chmod(self.folder, 0o750)
        os.chown(self.folder, 0, 65534)
        self.start()
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            self.ask_as_another_user(tell)
        os.close(tell)
        if os.read(told, 2) != b"+\n":
            os.waitpid(child, 0)
            self.skipTest("this process cannot become another user")
        first = Guard(self.guards)
        first.say("K")
        with os.fdopen(told) as lines:
            self.assertIn("it does not answer", lines.readline())
            self.assertIn("so its next one waits", lines.readline())
            second = Guard(self.guards)
            self.assertIn("may be moved?", lines.readline())
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        for each in (first, second):
            each.end()

    def test_user_that_says_again_and_again_that_it_was_being_moved(self):
        """The next one within a minute keeps nothing, and others from nothing."""
        if os.geteuid() != 0:
            self.skipTest("this process cannot become another user")
        os.chmod(self.folder, 0o750)
        os.chown(self.folder, 0, 65534)
        self.start("--reserve", "0")
        self.watch_cards()
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            self.lie_as_another_user(tell)
        os.close(tell)
        with os.fdopen(told) as lines:
            if lines.readline() != "+\n":
                os.waitpid(child, 0)
                self.skipTest("this process cannot become another user")
            guard = Guard(self.guards)
            wait_for(lambda: self.short() == [0, CONTEXT], PATIENCE, "room for a context")
            os.kill(child, signal.SIGUSR1)
            self.assertEqual(lines.readline(), "again\n")
            guard.end()
            guard = Guard(self.guards)
            self.assertEqual(guard.word, "W")
            self.assertEqual(self.short(), [0, 0])
            honest = self.honest()
            self.request(honest.pid)
            self.assertEqual(honest.stdout.readline(), "asked\n")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def lie_as_another_user(self, tell):
        """Says that it was being moved, and the same again on another connection when it gets a signal."""
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                mover = Mover(self.daemon.path, "liar")
            except OSError:
                os.write(tell, b"-\n")
                os._exit(0)
            record = os.memfd_create("record")
            mover.say_left(1, record, 12 * GIB)
            os.write(tell, b"+\n")
            signal.sigwait([signal.SIGUSR1])
            mover.close()
            mover = Mover(self.daemon.path, "liar")
            mover.say_left(1, record, 12 * GIB)
            os.write(tell, b"again\n")
            mover.listen(lambda: False, "the end")
        finally:
            os._exit(1)

    def ask_as_another_user(self, tell):
        """Requests moves of a program that never answers, and tells what comes of them, a line each."""
        def say(text):
            os.write(tell, text.encode() + b"\n")
        try:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                mover = Mover(self.daemon.path)
            except OSError:
                say("-")
                os._exit(0)
            mover.say(demand=GIB, flags=WANT)
            mover.listen(lambda: mover.flags & RUNNING, "its turn")
            say("+")
            say(self.relocate())
            say(self.relocate())

            def is_asked_again():
                self.relocate(0.2)
                return [step for _, step, _ in mover.steps].count(ASK) >= 2
            mover.listen(is_asked_again, "a second move to begin")
            say("may be moved?")
            os._exit(0)
        finally:
            os._exit(1)

    def relocate(self, timeout=PATIENCE):
        """The answer to a request for the other card; None: none in time."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
            asker.settimeout(timeout)
            asker.connect(self.daemon.path)
            asker.send(message(RELOCATE, struct.pack("<16siI", THERE, os.getpid(), 0)))
            try:
                return asker.recv(4096)[24:].rstrip(b"\0").decode()
            except socket.timeout:
                return None

    def test_program_that_came_to_have_too_much_while_it_moved(self):
        """What held it back on the card that it left does not hold it back on the other one."""
        self.start("--max-memory", str(5 * GIB))
        mover = self.mover()
        guard, asker = self.begin(mover)
        mover.say(demand=7 * GIB)
        wait_for(lambda: "held back" in self.daemon.said(), PATIENCE, "it to be held back")
        mover.listen(lambda: mover.resident == 0, "its memory to leave")
        self.go(mover, guard)
        guard.say("M")
        self.assertEqual(mover.await_step(OVER)[2], 0)
        asker.communicate(timeout=PATIENCE)
        mover.uuid, mover.target = THERE, None
        mover.say(demand=GIB, resident=0, flags=WANT)
        mover.listen(lambda: mover.target is not None and mover.target.flags & RUN, "it to run on the other card")


def run_honest_mover(path):
    """In a process of its own: runs, and says when it is asked whether it may be moved."""
    mover = Mover(path, "honest")
    mover.say(demand=GIB, flags=WANT)
    mover.listen(lambda: mover.flags & RUNNING, "its turn")
    print("runs", flush=True)
    mover.await_step(ASK)
    print("asked", flush=True)
    mover.listen(lambda: False, "the end")


def run_leaving_mover(path):
    """Its child has the connection, and answers STOP when this process has ended."""
    mover = Mover(path, "leaving")
    mover.say(demand=GIB, flags=WANT)
    mover.listen(lambda: mover.flags & RUNNING, "its turn")
    parent = os.getpid()
    if os.fork() != 0:
        sys.stdin.readline()
        os._exit(0)
    print("runs", flush=True)
    mover.say_step(mover.await_step(ASK)[0], ASK)
    mover.await_step(STOP)
    mover.listen(lambda: mover.resident == 0, "its memory to leave")
    print("stops", flush=True)
    wait_for(lambda: os.getppid() != parent, PATIENCE, "the other process to end")
    record = os.memfd_create("record")
    os.write(record, b"-")
    mover.say_step(mover.steps[-1][0], STOP, record)
    mover.listen(lambda: mover.steps[-1][1] == OVER, "the end")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--leaving-mover"]:
        run_leaving_mover(sys.argv[2])
        sys.exit()
    if sys.argv[1:2] == ["--honest-mover"]:
        run_honest_mover(sys.argv[2])
    unittest.main(warnings="ignore")
