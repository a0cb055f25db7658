#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile clients, and very many: well-behaved programs beside them go on taking their turns.

usage: test_hostile.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import (CONTROL, END, GIB, HELLO, MIB, NOTE, PATIENCE, RUNNING, STATE, STATUS, WANT, Daemon, Program, header, hello,
                  message, note, state, wait_for)

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
CARD, CARD_BYTES = bytes([7] * 16), 10 * GIB


def connect(path):
    other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.connect(path)
    other.settimeout(PATIENCE)
    return other


def drain(connection):
    """Reads until the other side hangs up; the END's text if there was one."""
    text, resets = None, 0
    while resets < 2:  # the first reset comes before what was said
        try:
            data = connection.recv(4096)
        except ConnectionResetError:
            resets += 1
            continue
        except OSError:
            break
        if not data:
            break
        if struct.unpack("<IHHII", data[:16])[2] == END:
            text = data[24:].rstrip(b"\0").decode()
    return text


class Pair(threading.Thread):
    """Two honest programs that do not fit together and take turns; measures how long a report goes unanswered."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.programs = [Program(path, name, total=CARD_BYTES) for name in ("honest-1", "honest-2")]
        self.turns, self.longest, self.failed, self.stop = 0, 0.0, None, False
        self.holder = None
        self.ready = threading.Event()

    def run(self):
        try:
            for program in self.programs:
                program.say(flags=WANT, demand=7 * GIB)
            last = time.monotonic()
            while not self.stop:
                for program in self.programs:
                    if program.hear(0.01) is None:
                        continue
                    program.obey()
                    if program.flags & RUNNING and self.holder is not program:
                        self.holder, self.turns = program, self.turns + 1
                        self.longest = max(self.longest, time.monotonic() - last)
                        last = time.monotonic()
                        self.ready.set()
            self.longest = max(self.longest, time.monotonic() - last)
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error


class HostileTest(unittest.TestCase):
    def setUp(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.daemon = Daemon(LOCKD, "--quantum", "100")
        self.addCleanup(self.daemon.process.kill)
        self.pair = Pair(self.daemon.path)
        self.pair.start()
        self.assertTrue(self.pair.ready.wait(PATIENCE), "nobody came to run")

    def tearDown(self):
        before = self.pair.turns
        wait_for(lambda: self.pair.turns > before or self.pair.failed, PATIENCE, "a turn after the attack")
        self.pair.stop = True
        self.pair.join(PATIENCE)
        self.assertIsNone(self.pair.failed, repr(self.pair.failed))
        self.assertLess(self.pair.longest, PATIENCE, "a turn came very late")
        for program in self.pair.programs:
            program.close()
        self.assertEqual(self.daemon.end(), 0, self.daemon.said()[-2000:])
        self.assertNotIn("Sanitizer", self.daemon.said())
        shutil.rmtree(self.daemon.folder)

    def rss(self):
        with open(f"/proc/{self.daemon.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def status(self):
        return json.loads(subprocess.run([CTL, "--socket", self.daemon.path, "status", "--json"], capture_output=True,
                                         text=True, timeout=PATIENCE, check=True).stdout)

    def test_garbage(self):
        chance = random.Random(1)
        for i in range(1500):
            bad = connect(self.daemon.path)
            if i % 3:
                bad.send(hello("bad"))
            kind = chance.choice((HELLO, STATE, NOTE, STATUS, CONTROL, 0, 99, 23))
            data = bytearray(message(kind, chance.randbytes(chance.choice((0, 16, 96, 184, 232)))))
            if chance.random() < 0.3:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            try:
                bad.send(bytes(data))
            except OSError:
                pass
            bad.close()

    def test_flood_is_read_slowly_and_costs_nobody_else(self):
        floods = [connect(self.daemon.path) for _ in range(8)]
        data, sent = state(demand=GIB, uuid=bytes(16)), 0
        for flood in floods:
            flood.send(hello("flood"))
            flood.setblocking(False)
        began = time.monotonic()
        while time.monotonic() < began + 3:
            for flood in floods:
                try:
                    for _ in range(50):
                        flood.send(data)
                        sent += 1
                except BlockingIOError:
                    pass
            time.sleep(0.001)
        # 2000 a second of each, and as many ahead (and what the sockets hold)
        self.assertLess(sent, 8 * (2000 * (time.monotonic() - began + 1.5) + 2000))
        self.assertGreater(sent, 1000)
        for flood in floods:
            flood.close()

    def test_lies_about_memory(self):
        liars = []
        for demand, resident in ((1 << 47, 0), (1 << 47, 1 << 47), (0, 1 << 47), (7 * GIB, 0)):
            liar = connect(self.daemon.path)
            liar.send(hello("liar"))  # a card of its own: what it says of ours is the lock's to bound (test_lock_*)
            liar.send(state(uuid=CARD, flags=WANT | RUNNING, total=CARD_BYTES, demand=demand, resident=resident))
            liars.append(liar)
        time.sleep(1)
        for wrong in (dict(total=0), dict(demand=1 << 63), dict(resident=1 << 63), dict(free=1 << 60)):
            liar = connect(self.daemon.path)
            liar.send(hello("liar"))
            liar.send(state(**wrong))
            drain(liar)
            liar.close()
        for liar in liars:
            liar.close()

    def test_impersonation(self):
        victim = os.getpid()
        other = subprocess.Popen([sys.executable, "-c", f"""
import os, socket, sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))!r})
from fake import *
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect({self.daemon.path!r})
s.send(hello("impostor", pid={victim})); s.send(state(demand=MIB, uuid=bytes([9] * 16)))
s.send(note(1, "it was me", name="impostor", pid={victim})); print("said", flush=True); sys.stdin.read()"""],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(other.stdout.readline(), b"said\n")
        wait_for(lambda: self.status()["notes"], PATIENCE, "the note")  # what it said last
        answer = self.status()
        pids = {p["name"]: p["pid"] for d in answer["devices"] for p in d["programs"]}
        self.assertEqual(pids["impostor"], other.pid)
        self.assertEqual({n["pid"] for n in answer["notes"]}, {other.pid})
        other.stdin.close()
        other.stdout.close()
        other.wait(PATIENCE)

    def test_slow_readers_cost_little(self):
        before = self.rss()
        readers = []
        for _ in range(50):
            reader = connect(self.daemon.path)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            reader.send(hello("slow"))
            readers.append(reader)
        for step in range(60):
            for reader in readers:
                try:
                    reader.send(state(demand=(1 + step % 5) * MIB, uuid=bytes([11] * 16)), socket.MSG_DONTWAIT)
                except OSError:
                    pass
        for reader in readers[:25]:
            try:
                reader.send(header(STATUS, 16))
                reader.send(message(23, struct.pack("<Q", 10**9)))
            except OSError:
                pass
        time.sleep(1)
        self.assertLess(self.rss() - before, 16 * MIB)
        for reader in readers:
            reader.close()

    def test_half_open_connections_are_given_up(self):
        silent = [connect(self.daemon.path) for _ in range(300)]
        talker = connect(self.daemon.path)
        talker.send(hello("talker"))
        self.assertEqual(silent[0].recv(100), b"")  # after 10 s
        for each in silent[1:]:
            self.assertEqual(each.recv(100), b"")
            each.close()
        talker.settimeout(0.2)
        self.assertRaises(TimeoutError, talker.recv, 100)  # whoever said something stays
        talker.close()

    def test_ten_thousand_connects(self):
        for i in range(10000):
            caller = connect(self.daemon.path)
            if i % 2:
                caller.send(hello("passing"))
            caller.close()
        wait_for(lambda: self.status()["daemon"]["programs"] == 2, PATIENCE, "them all to be gone")

    def test_other_release_is_told_and_noted(self):
        for version in (0, 1, 77):
            caller = connect(self.daemon.path)
            data = bytearray(hello("old"))
            struct.pack_into("<H", data, 4, version)
            caller.send(bytes(data[:72] if version == 1 else data))
            self.assertIn(f"protocol version {version}", drain(caller) or "")
            caller.close()
        self.assertTrue(any("protocol version 77" in n["text"] for n in self.status()["notes"]))

    def test_invented_devices_are_bounded(self):
        crowd, refused = [], 0
        for i in range(20):
            caller = connect(self.daemon.path)
            crowd.append(caller)
            caller.send(hello("inventor"))
            try:
                for k in range(64):
                    caller.send(state(demand=GIB, uuid=struct.pack("<QQ", 64 * i + k, 77)))
            except OSError:
                pass  # it was hung up on
        for caller in crowd[4:]:
            refused += "too many devices" in (drain(caller) or "")
        self.assertEqual(refused, 16)
        self.assertLessEqual(len(self.status()["devices"]), 129)
        for caller in crowd:
            caller.close()

    def test_notes_of_one_user_do_not_push_out_everything(self):
        for i in range(200):
            caller = connect(self.daemon.path)
            caller.send(note(3, f"remark {i}", name="chatty"))
            caller.close()
        wait_for(lambda: any(n["text"] == "remark 199" for n in self.status()["notes"]), PATIENCE, "the last note")
        self.assertEqual(len(self.status()["notes"]), 16)


def with_descriptors(test, most):
    """A daemon that may have so many of them."""
    path = f"/tmp/gpushare-test-{most}-{os.getpid()}"
    with open(path, "w", encoding="utf-8") as script:
        script.write(f'#!/bin/sh\nulimit -n {most}\nexec "{LOCKD}" "$@"\n')
    os.chmod(path, 0o755)
    test.addCleanup(os.unlink, path)
    return path


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
        daemon = self.serve("yes", with_descriptors(self, 512))
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


class FullTest(unittest.TestCase):
    def test_without_descriptors_callers_are_told_and_others_served(self):
        daemon = Daemon(with_descriptors(self, 64))
        self.addCleanup(daemon.process.kill)
        first = Program(daemon.path, total=CARD_BYTES)
        first.say(demand=MIB, flags=WANT)
        first.settle(lambda p: p.flags & RUNNING)
        crowd, told = [], 0
        for _ in range(150):
            caller = connect(daemon.path)
            crowd.append(caller)
            try:
                caller.send(hello("crowd"))
            except OSError:
                pass
        for caller in crowd[60:]:
            told += "no file descriptor left" in (drain(caller) or "")
        self.assertGreater(told, 80)
        first.say(demand=8 * GIB)  # beyond the last target: must be answered
        self.assertIsNotNone(first.hear(PATIENCE))
        for caller in crowd:
            caller.close()

        def serves():
            late = Program(daemon.path, total=CARD_BYTES)
            try:
                late.say(demand=MIB)
                return late.hear() is not None
            except (OSError, EOFError):  # refused: not all of them have gone
                return False
        wait_for(serves, PATIENCE, "it to serve again")
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)

    def test_without_any_descriptor_it_listens_again_when_there_are_some(self):
        daemon = Daemon(LOCKD)
        self.addCleanup(daemon.process.kill)
        pid, limits = daemon.process.pid, resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))  # not even for its reserve
        caller = connect(daemon.path)
        time.sleep(0.3)  # nobody is connected whose end would wake it
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        late = Program(daemon.path, total=CARD_BYTES)
        late.say(demand=MIB)
        self.assertIsNotNone(late.hear(PATIENCE))
        caller.close()
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)

    def test_whoever_asks_and_hangs_up_at_once_holds_up_nobody(self):
        daemon = Daemon(LOCKD)
        self.addCleanup(daemon.process.kill)
        first = Program(daemon.path, total=CARD_BYTES)  # alone: the next connection follows it in the daemon's list
        first.say(demand=MIB, flags=WANT)
        first.settle(lambda p: p.flags & RUNNING)
        for kind, body in ((23, struct.pack("<Q", 10**9)), (STATUS, b"")):  # a trace, the status
            daemon.process.send_signal(signal.SIGSTOP)  # question and end arrive together
            caller = connect(daemon.path)
            caller.send(message(kind, body))
            caller.close()
            daemon.process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
            first.say(demand=first.demand + 2 * GIB)  # beyond the last target: must be answered
            self.assertIsNotNone(first.hear(PATIENCE), "the daemon does not answer any more")
            first.obey()
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)

    def cpu(self, process):
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, process):
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))

    def test_thousand_programs(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        daemon = Daemon(LOCKD)
        self.addCleanup(daemon.process.kill)
        asan = "libasan" in open(f"/proc/{daemon.process.pid}/maps", encoding="ascii").read()
        empty = self.memory(daemon.process)
        crowd = []
        began = time.monotonic()
        for i in range(1000):
            program = Program(daemon.path, f"crowd-{i}", total=80 * GIB)
            program.say(demand=MIB)
            crowd.append(program)
        for program in crowd:
            self.assertIsNotNone(program.hear())
        took = time.monotonic() - began
        for program in crowd:
            while program.hear(0) is not None:
                pass
            program.say()
        time.sleep(0.5)
        each = (self.memory(daemon.process) - empty) / 1000
        answer = json.loads(subprocess.run([CTL, "--socket", daemon.path, "status", "--json"], capture_output=True, text=True,
                                           timeout=PATIENCE, check=True).stdout)
        self.assertEqual(len(answer["devices"][0]["programs"]), 1000)
        idle, end = 1, time.monotonic() + PATIENCE
        while idle >= 0.02 and time.monotonic() < end:  # it may be late with what was said
            before, since = self.cpu(daemon.process), time.monotonic()
            time.sleep(3)
            idle = (self.cpu(daemon.process) - before) / (time.monotonic() - since)
        print(f"1000 programs: connected and answered in {took:.2f} s, {each:.0f} bytes each, idle {100 * idle:.2f} % CPU")
        if not asan:
            self.assertLess(each, 4096)
        self.assertLess(idle, 0.02)  # the clock ticks are 10 ms: a finer figure is printed by hand over minutes
        for program in crowd:
            program.close()
        self.assertEqual(daemon.end(), 0)
        shutil.rmtree(daemon.folder)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
