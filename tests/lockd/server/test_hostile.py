#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile clients: well-behaved programs beside them go on taking their turns.

usage: test_hostile.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from callers import CARD_BYTES, connect, drain
from fake import (CONTROL, GIB, HELLO, MIB, NOTE, PATIENCE, RUNNING, STATE, STATUS, WANT, Daemon, Program, header, hello, message, note,
                  state, wait_for)

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
CARD = bytes([7] * 16)


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


if __name__ == "__main__":
    unittest.main(warnings="ignore")
