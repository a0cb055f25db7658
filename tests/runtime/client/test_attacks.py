#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that misuse CUDA IPC, against real ones (runtime/client/ipc.c): nobody crashes, waits for longer than the
bound, keeps descriptors, or gets memory of another user. The attackers are played.

test_attacks.py --build DIR [NAME...]
"""
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "gpu"), os.path.join(HERE, "..", "..", "lockd")]
from card import MIB, OPTIONS, BuildTest, Card, Told, main, sanitized, wait_for  # noqa: E402
from fake import TOKEN, Peer, open_message  # noqa: E402
from ipc_told import Process  # noqa: E402
from kit import resume  # noqa: E402
from other_user import AS_OTHER_USER, copy_for_others, make_folder  # noqa: E402

FALSE_PID = 0x3ffffff0  # of a played exporter; no process has it
WAIT = 30  # seconds: the bound of an open
REFUSED = (["error", "1"], ["error", "205"])  # no such memory; it cannot be mapped


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Scene(Card):
    def __init__(self, **environment):
        super().__init__(OPTIONS.build, memory="192MiB", options=["--idle", "5"], **Told.SMALL_CONTEXTS, **environment)
        self.program = os.path.join(OPTIONS.build, "tests", "runtime", "ipc_linked")
        self.ended = []

    def __exit__(self, *unused):
        for end in self.ended:
            end()
        super().__exit__(*unused)

    def process(self, program=None, **more):
        process = Process(program or self.program, **{"env": self.environment, **more})
        self.ended.append(lambda: process.child.poll() is None and process.kill())
        return process

    def peer(self, pid):
        peer = Peer(self.socket, pid)
        self.ended.append(peer.socket.close)
        return peer

    def old_enough(self):
        """A new daemon waits some seconds for exporters of an earlier one."""
        opener = self.peer(FALSE_PID - 1)
        opener.open(FALSE_PID - 2)
        opener.told()

    def shared(self, pid):
        return [each["shared"] for device in self.status()["devices"] for each in device["programs"] if each["pid"] == pid]


def handle_of(template, pid, token=TOKEN):
    """A handle that is made up, of the form of a real one."""
    return template[:16] + struct.pack("<iI", pid, 0).hex() + token.hex() + os.urandom(16).hex() + template[96:]


def answered(process, handle, exporter, answer):
    """What the process says to an open, for which the played exporter is asked as often as it will."""
    process.tell(f"open {handle}")
    while True:
        ready, _, _ = select.select([exporter.socket, process.child.stdout], [], [], process.patience)
        if process.child.stdout in ready or not ready:
            return process.answer()
        answer(exporter, exporter.asked()[2])


class Attacks(BuildTest):
    def test_descriptors_of_anything(self):
        """Pipes, sockets, files and memory of another size instead of memory: the open fails, and nothing stays open."""
        with Scene() as card:
            real, opener = card.process(), card.process()
            _, handle = real.make(2 * MIB, 1)
            opener.word("alloc 4096")
            exporter, thief = card.peer(FALSE_PID), card.peer(FALSE_PID - 1)
            thief.open(real.pid, 1, bytes.fromhex(handle)[16:32])
            memory = thief.told()[4]
            self.assertEqual(len(memory), 2)
            pipes, pair = os.pipe(), socket.socketpair()
            files = {"pipe": pipes[0], "socket": pair[0].fileno(), "folder": os.open("/", os.O_RDONLY), "null": os.open("/dev/null", os.O_RDWR),
                     "file": os.memfd_create("file"), "empty": None}
            false = handle_of(handle, FALSE_PID)

            def give(fd, **more):
                def answer(exporter, number):
                    exporter.share(number, count=1, files=[fd, pipes[1]], **more)
                return answer
            before = None
            for name, fd in files.items():
                if fd is not None:
                    self.assertIn(answered(opener, false, exporter, give(fd)), REFUSED, name)
                before = before or descriptors(opener.pid)
            for size in (4 * MIB, 64 * MIB, 4096, 2 * MIB - 1):
                said = answered(opener, false, exporter, give(memory[0], whole=size, chunk=size, size=size))
                self.assertIn(said, REFUSED, size)
            for lie in ({"whole": 0, "size": 0}, {"chunk": 0}, {"size": 0}, {"chunk": 1, "whole": 1 << 40}):
                self.assertIn(answered(opener, false, exporter, give(memory[0], **lie)), REFUSED, lie)
            self.assertTrue(wait_for(lambda: descriptors(opener.pid) <= before), (before, descriptors(opener.pid)))
            piece = opener.word(f"open {handle}")
            self.assertEqual(opener.say(f"check {piece} 1"), ["ok"])

    def test_made_up_and_replayed_tokens(self):
        """A token that nobody gave out, one of freed memory, and one of a program that has ended, whose number another one has now."""
        with Scene() as card:
            one, two = card.process(), card.process()
            piece, handle = one.make(2 * MIB, 1)
            two.word("alloc 4096")
            card.old_enough()
            self.assertEqual(two.say(f"open {handle_of(handle, one.pid)}"), ["error", "1"])
            self.assertEqual(two.say(f"open {handle_of(handle, two.pid)}"), ["error", "1"])
            self.assertEqual(one.say(f"free {piece}"), ["ok"])
            again, _ = one.make(2 * MIB, 2)  # may be at the same address
            self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            _, handle = one.make(2 * MIB, 3)
            self.assertEqual(one.say(f"check {again} 2"), ["ok"])
            one.kill()
            self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            three = card.process()
            three.make(2 * MIB, 4)
            replayed = handle[:16] + struct.pack("<i", three.pid).hex() + handle[24:]
            self.assertEqual(two.say(f"open {replayed}"), ["error", "1"])
            self.assertEqual(card.shared(three.pid), [0])

    def test_exporter_that_does_not_answer(self):
        """Stopped, with its client thread: the opener gets an error within the bound, and the memory once it goes on."""
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(2 * MIB, 1)
            two.word("alloc 4096")
            card.old_enough()
            os.kill(one.pid, signal.SIGSTOP)
            began = time.monotonic()
            self.assertIn(two.say(f"open {handle}"), REFUSED)
            self.assertGreater(time.monotonic() - began, WAIT / 2)
            self.assertEqual(two.say("check 0 0")[:1], ["bad"])  # it works on
            resume(one.pid)
            piece = two.word(f"open {handle}")
            self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            self.assertTrue(wait_for(lambda: card.shared(one.pid) == [0]), card.shared(one.pid))

    def test_answers_without_end(self):
        """Parts of memory that never become a whole, and answers with another number: within the bound as well."""
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(2 * MIB, 1)
            two.word("alloc 4096")
            exporter = card.peer(FALSE_PID)
            pipe = os.pipe()

            def answer(exporter, number):
                exporter.share(number + 1, count=1, files=[pipe[0], pipe[1]])
                exporter.share(number, whole=64 * MIB, size=64 * MIB, first=3, count=1, files=[pipe[0]])
            before = descriptors(two.pid)
            self.assertIn(answered(two, handle_of(handle, FALSE_PID), exporter, answer), REFUSED)
            self.assertTrue(wait_for(lambda: descriptors(two.pid) <= before + 1), (before, descriptors(two.pid)))
            self.assertEqual(two.word(f"open {handle}"), "1")

    def test_opener_stopped(self):
        """It holds memory meanwhile: the exporter frees it and works on, and others get the rest of the card."""
        with Scene() as card:
            one, two, three = card.process(), card.process(), card.process()
            piece, handle = one.make(24 * MIB, 1)
            opened = two.word(f"open {handle}")
            os.kill(two.pid, signal.SIGSTOP)
            self.assertEqual(one.say(f"free {piece}"), ["ok"])
            again, other = one.make(24 * MIB, 2)
            self.assertEqual(one.say(f"check {again} 2"), ["ok"])
            piece = three.word(f"open {other}")
            self.assertEqual(three.say(f"check {piece} 2"), ["ok"])
            large = three.word(f"alloc {40 * MIB}")
            self.assertEqual(three.say(f"fill {large} 3"), ["ok"])
            resume(two.pid)
            self.assertEqual(two.say(f"check {opened} 1"), ["ok"])
            self.assertEqual(two.say(f"close {opened}"), ["ok"])
            self.assertEqual(three.say(f"check {large} 3"), ["ok"])

    def test_opener_stopped_while_it_opens(self):
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(24 * MIB, 1)
            two.word("alloc 4096")
            for pause in (0.001, 0.002, 0.005, 0.01):
                two.tell(f"open {handle}")
                time.sleep(pause)
                os.kill(two.pid, signal.SIGSTOP)
                self.assertEqual(one.say("check 0 1"), ["ok"])
                resume(two.pid)
                said = two.answer()
                self.assertEqual(said[0], "ok")
                self.assertEqual(two.say(f"close {said[1]}"), ["ok"])
            self.assertTrue(wait_for(lambda: card.shared(one.pid) == [0]), card.shared(one.pid))

    def test_opens_without_end(self):
        """A program of the same user asks a real exporter for anything, and reads nothing; others are served meanwhile."""
        with Scene() as card:
            one, two = card.process(), card.process()
            _, handle = one.make(2 * MIB, 1)
            two.word("alloc 4096")
            piece = two.word(f"open {handle}")
            self.assertTrue(wait_for(lambda: card.shared(one.pid) == [2 * MIB]))
            before = descriptors(one.pid)
            self.assertEqual(two.say(f"close {piece}"), ["ok"])
            attacker = card.peer(FALSE_PID)
            attacker.socket.setblocking(False)
            sent = opens = 0
            while sent < 3000 or opens < 5:
                try:
                    attacker.socket.send(open_message(os.urandom(16), one.pid, sent + 1))
                    sent += 1
                except BlockingIOError:
                    time.sleep(0.001)
                except OSError:
                    attacker = card.peer(FALSE_PID)  # the daemon has hung up
                    attacker.socket.setblocking(False)
                if sent % 500 == 499:
                    piece = two.word(f"open {handle}")
                    self.assertEqual(two.say(f"check {piece} 1"), ["ok"])
                    self.assertEqual(two.say(f"close {piece}"), ["ok"])
                    opens += 1
            self.assertTrue(wait_for(lambda: descriptors(one.pid) <= before), (before, descriptors(one.pid)))

    def test_program_of_another_user(self):
        """With a handle that it was given: the driver's own error, and the memory is not shared."""
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        if sanitized(OPTIONS.build):
            self.skipTest("a sanitizer's library is not copied")
        with Scene() as card:
            one = card.process()
            _, handle = one.make(2 * MIB, 1)
            os.chown(card.folder, 0, AS_OTHER_USER["group"])
            os.chmod(card.folder, 0o710)
            card.stop_daemon()
            card.start_daemon()  # it serves that group now
            places = [os.path.join(OPTIONS.build, *path) for path in (("tests", "runtime", "ipc_linked"), ("runtime", "libgpushare.so.1"),
                                                                        ("tests", "simcuda", "libcuda.so.1"))]
            program = copy_for_others(self, *places)[0]
            own = make_folder()
            self.addCleanup(shutil.rmtree, own)
            os.chown(own, AS_OTHER_USER["user"], AS_OTHER_USER["group"])
            two = card.process(program, env={**card.environment, "SIMCUDA_CARD": own, "LD_LIBRARY_PATH": os.path.dirname(program),
                                             "GPUSHARE_LOCKD": "/nonexistent"}, **AS_OTHER_USER)
            two.word("alloc 4096")
            self.assertTrue(wait_for(lambda: two.pid in [each["pid"] for device in card.status()["devices"] for each in device["programs"]]))
            self.assertEqual(two.say(f"open {handle}"), ["error", "1"])
            self.assertEqual(card.shared(one.pid), [0])
            self.assertEqual(one.say("check 0 1"), ["ok"])


if __name__ == "__main__":
    main()
