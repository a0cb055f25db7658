#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that is handed over (hand-over): whose descriptors the daemon passes on, to whom, how many, and that it keeps none.

usage: test_handover.py GPUSHARE_LOCKD [unittest options]
       test_handover.py --receive SOCKET BYTES     (the tests') a program that waits for its turn; prints how many descriptors came
       test_handover.py --hear SOCKET     (the tests') a program that hears what others offer"""
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import fake
from fake import (COPY, GIB, GIVE, MIB, PATIENCE, RUN, RUNNING, TARGET, WANT, Daemon, Peer, Program, Target, copy_message, hello, message,
                  note, state, wait_for)
import other_user
from other_user import AS_OTHER_USER, copy_for_others, find_python_for_others, make_folder

SMALL = 10 * GIB
PIECE = 512 * MIB


def send_with(caller, body, fds, patience=0.0):
    """Sends it with descriptors, as soon as the kernel lets them through (Linux 6.16 can keep them away); else without."""
    end = time.monotonic() + patience
    while True:
        try:
            socket.send_fds(caller, [body], fds)
            return
        except PermissionError:
            if time.monotonic() >= end:
                break
            time.sleep(0.01)
    caller.send(body)


class Giver(Program):
    """Gives what leaves it away, in pieces; keeps the descriptors that come."""

    def __init__(self, path, name="fake"):
        super().__init__(path, name, total=SMALL)
        self.handed, self.rises, self.sent = [], [], []
        self.gives = True

    def hear(self, timeout=PATIENCE):
        self.socket.settimeout(timeout)
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 4096, 32)
        except (socket.timeout, BlockingIOError):
            return None
        if not data:
            raise EOFError
        if struct.unpack("<IHHII", data[:16])[2] != TARGET:
            raise EOFError(data)
        before = self.target.budget if self.target else 0
        self.target = Target(data)
        self.targets += 1
        assert len(fds) == self.target.handed, f"{len(fds)} descriptors, said to be {self.target.handed}"
        if fds:
            self.rises.append((self.target.budget - before, sum(self.target.handed_bytes)))
        self.handed += fds
        return self.target

    def give(self, fds, count=None, bytes_=PIECE, **change):
        for key, value in change.items():
            setattr(self, key, value)
        body = state(seq=self.target.seq if self.target else 0, flags=self.flags, total=self.total, demand=self.demand,
                     resident=self.resident, given=len(fds) if count is None else count, given_bytes=bytes_)
        send_with(self.socket, body, fds)

    def obey(self):
        if self.target.flags & RUN or self.resident <= self.target.budget or not self.gives:
            super().obey()
            return
        self.say(flags=self.flags & WANT)

    def move(self):
        """A piece leaves, if one is to."""
        if not self.gives or self.target.flags & RUN or self.flags & RUNNING or self.resident <= self.target.budget:
            return
        mine, other = os.pipe()
        self.give([other], resident=max(self.resident - PIECE, 0))
        os.close(other)
        self.sent.append(mine)

    def close(self):
        for fd in self.handed + self.sent:
            os.close(fd)
        super().close()


def all_closed(pipe):
    """Nobody has the other end of it any more."""
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def receive(path, bytes_):
    program = Giver(path, "receiver")
    program.say(flags=WANT, demand=bytes_)
    program.settle(lambda one: one.flags & RUNNING and one.resident == one.demand)
    print(len(program.handed), flush=True)
    sys.stdin.read()


def hear_copy(peer):
    """bytes, number, own and the descriptors of the next message, which is a COPY."""
    data, fds, _, _ = socket.recv_fds(peer.socket, 4096, 32)
    assert struct.unpack("<IHHII", data[:16])[2] == COPY, data
    return struct.unpack("<QQII", data[16:])[:3], fds


def hear_copies(path):
    """The first copy that comes to this program: how many descriptors. 0 once the daemon has answered a question that came later."""
    peer = Peer(path, os.getpid())
    print("here", flush=True)
    sys.stdin.readline()
    peer.socket.send(message(16, b""))
    data, fds, _, _ = socket.recv_fds(peer.socket, 65536, 32)
    print(len(fds), flush=True)


class HandoverTest(unittest.TestCase):
    def start(self, *options):
        folder = make_folder()
        os.chmod(folder, 0o750)  # its group may connect
        if os.geteuid() == 0:
            os.chown(folder, 0, 65534)
        self.daemon = Daemon(LOCKD, "--quantum", "200", *options, folder=folder)
        self.addCleanup(shutil.rmtree, self.daemon.folder)
        self.addCleanup(self.end)
        self.programs = []
        first = Giver(self.daemon.path, "first")  # what the daemon opens at its start is open when it answers
        first.say()
        first.hear()
        self.open = self.descriptors()
        first.close()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def end(self):
        for program in self.programs:
            program.close()
        wait_for(lambda: self.descriptors() <= self.open, PATIENCE, "the daemon to close every descriptor")
        self.assertEqual(self.daemon.end(), 0, self.daemon.said())
        self.assertNotIn("Sanitizer", self.daemon.said())

    def holder(self, demand=8 * GIB):
        program = Giver(self.daemon.path, "holder")
        self.programs.append(program)
        program.say(flags=WANT, demand=demand)
        program.settle(lambda one: one.flags & RUNNING and one.resident == one.demand)
        return program

    def waiter(self, demand=8 * GIB):
        program = Giver(self.daemon.path, "waiter")
        self.programs.append(program)
        program.say(flags=WANT, demand=demand)
        return program

    def taken(self, holder, waiter):
        """The waiter's turn comes; the holder's memory leaves piece by piece, as copies do."""
        holder.obey()  # what it has heard before
        end = time.monotonic() + PATIENCE
        while not (waiter.flags & RUNNING and waiter.resident == waiter.demand):
            self.assertLess(time.monotonic(), end, "the waiter's turn does not come")
            for program in (holder, waiter):
                if program.hear(0.01) is not None:
                    program.obey()
            holder.move()

    def turn(self, holder, waiter):
        """The waiter's has begun, as far as there is room; the holder has stopped, and will leave when it is told to."""
        holder.gives = False
        wait_for(lambda: holder.hear() is not None and not holder.target.flags & RUN, PATIENCE, "the end of its turn")
        holder.say(flags=WANT)
        waiter.settle(lambda one: one.target is not None and one.target.flags & RUN)
        end = time.monotonic() + PATIENCE
        while holder.target.budget >= holder.resident:
            self.assertLess(time.monotonic(), end, "nothing is to leave")
            if waiter.hear(0.05) is not None:
                waiter.obey()
            holder.hear(0.05)

    def test_what_leaves_one_comes_to_the_other(self):
        self.start()
        end = time.monotonic() + PATIENCE
        while True:  # on a busy machine it may be too late for some
            holder, waiter = self.holder(), self.waiter()
            self.taken(holder, waiter)
            if len(waiter.handed) > len(holder.sent) // 2:
                break
            self.assertLess(time.monotonic(), end, f"of {len(holder.sent)} pieces {len(waiter.handed)} came")
            for program in (holder, waiter):
                self.programs.remove(program)
                program.close()
        self.assertTrue(holder.target.flags & GIVE)
        inodes = {os.fstat(fd).st_ino for fd in holder.sent}
        for fd in waiter.handed:
            self.assertIn(os.fstat(fd).st_ino, inodes)
        for rise, bytes_ in waiter.rises:
            self.assertLessEqual(bytes_, rise)
        while waiter.handed:
            os.close(waiter.handed.pop())
        for pipe in holder.sent:  # neither the daemon nor anybody else has one left
            wait_for(lambda pipe=pipe: all_closed(pipe), PATIENCE, "a descriptor to be closed")

    def test_without_the_setting_nothing_is_passed_on(self):
        self.start("--hand-over", "no")
        holder, waiter = self.holder(), self.waiter()
        self.taken(holder, waiter)
        self.assertEqual(waiter.handed, [])
        self.assertFalse((holder.target.flags | waiter.target.flags) & GIVE)
        for pipe in holder.sent:
            wait_for(lambda pipe=pipe: all_closed(pipe), PATIENCE, "a descriptor to be closed")

    def test_no_more_than_the_budget_rises_by(self):
        self.start()
        holder, waiter = self.holder(), self.waiter()
        self.turn(holder, waiter)
        pipes = [os.pipe() for _ in range(16)]
        holder.give([other for _, other in pipes], resident=0)  # 8 GiB of it
        for mine, other in pipes:
            os.close(other)
            holder.sent.append(mine)
        self.taken(holder, waiter)
        self.assertLess(len(waiter.handed), 16)
        for rise, bytes_ in waiter.rises:
            self.assertLessEqual(bytes_, rise)

    def test_no_more_than_has_left(self):
        self.start()
        holder, waiter = self.holder(), self.waiter()
        self.turn(holder, waiter)
        pipes = [os.pipe() for _ in range(16)]
        holder.give([other for _, other in pipes], resident=holder.resident - 3 * PIECE)  # 16 pieces of it, it says
        for mine, other in pipes:
            os.close(other)
            holder.sent.append(mine)
        self.taken(holder, waiter)
        self.assertLessEqual(len(waiter.handed), 3)

    def test_what_never_left_makes_no_device_larger(self):
        self.start()
        liar, honest = self.holder(GIB), self.holder(2 * GIB)
        free = SMALL - 7 * GIB  # 4 GiB of it are nobody's

        def measure(program, **lie):
            program.hear(0.01)
            body = state(seq=program.target.seq, flags=program.flags, total=SMALL, demand=program.demand, free=free, **lie)
            send_with(program.socket, body, [zero] * lie.get("given", 0))
            return program.target.capacity <= 6 * GIB
        with open("/dev/zero", "rb") as file:
            zero = file.fileno()
            wait_for(lambda: measure(honest, resident=2 * GIB) and measure(liar, resident=GIB), PATIENCE, "what is free to be known")
            for i in range(100):  # it comes and goes, it says
                here = GIB * (i % 2)
                measure(liar, resident=here, given=0 if here else 16, given_bytes=GIB // 4)
                self.assertTrue(measure(honest, resident=2 * GIB), f"{honest.target.capacity / GIB} GiB of 6")

    def leave(self, holder, count, bytes_=PIECE):
        """So many pieces leave, and nobody answers; the other ends of what was sent."""
        pipes = []
        for _ in range(count):
            mine, other = os.pipe()
            holder.give([other], bytes_=bytes_, resident=holder.resident - bytes_)
            os.close(other)
            pipes.append(mine)
        holder.sent += pipes
        return pipes

    def comes(self, least, count, bytes_, silent=0):
        """So many pieces leave during a turn, and so many at least come, with budgets that rise by what comes. silent: seconds in which the
        program does not answer."""
        self.start()
        came = 0
        end = time.monotonic() + PATIENCE
        while came < least:  # on a busy machine it may be too late for some
            self.assertLess(time.monotonic(), end, f"of {count} pieces {came} came")
            holder, waiter = self.holder(), self.waiter()
            self.turn(holder, waiter)
            self.leave(holder, count, bytes_)
            time.sleep(silent)
            while waiter.hear(0.2) is not None and waiter.target.flags & RUN:
                waiter.obey()
            came = len(waiter.handed)
            for rise, bytes_ in waiter.rises:
                self.assertLessEqual(bytes_, rise)
            for program in (holder, waiter):
                self.programs.remove(program)
                program.close()

    def test_what_cannot_go_at_once_goes_with_a_later_target(self):
        self.comes(8, 9, PIECE)  # more than the daemon sends targets without an answer

    def test_more_than_a_message_can_have_goes_with_several(self):
        """A program that was busy for a moment gets all that has left meanwhile."""
        self.comes(40, 48, PIECE // 4)

    def test_what_a_program_lacks_is_kept_for_it(self):
        self.comes(9, 9, PIECE, 0.4)

    def test_what_nobody_takes_is_closed_soon(self):
        self.start()
        holder, waiter = self.holder(), self.waiter()
        self.turn(holder, waiter)
        pipes = self.leave(holder, 9)
        for pipe in pipes[-3:]:  # the waiter has not answered four targets
            wait_for(lambda pipe=pipe: all_closed(pipe), PATIENCE, "a descriptor to be closed")
        self.taken(holder, waiter)

    def test_what_is_said_wrong_is_not_passed_on(self):
        self.start()
        holder, waiter = self.holder(), self.waiter()
        self.turn(holder, waiter)
        for count, bytes_, fds in ((2, PIECE, 1), (1, 0, 1), (0, PIECE, 1), (1, PIECE, 0), (16, PIECE, 15)):
            pipes = [os.pipe() for _ in range(fds)]
            holder.give([other for _, other in pipes], count=count, bytes_=bytes_, resident=holder.resident - PIECE)
            for mine, other in pipes:
                os.close(other)
                holder.sent.append(mine)
                wait_for(lambda pipe=mine: all_closed(pipe), PATIENCE, "a descriptor to be closed")
        self.taken(holder, waiter)
        self.assertEqual(waiter.handed, [])

    def test_descriptors_with_other_messages_end_the_connection(self):
        self.start()
        holder = self.holder()
        for body in (note(3, "with something"), message(16, b""), b"no message at all"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
                caller.connect(self.daemon.path)
                mine, other = os.pipe()
                caller.send(hello())  # then a program may
                send_with(caller, body, [other], PATIENCE)
                os.close(other)
                wait_for(lambda pipe=mine: all_closed(pipe), PATIENCE, "a descriptor to be closed")
                os.close(mine)
                caller.settimeout(PATIENCE)
                try:
                    self.assertEqual(caller.recv(4096), b"")
                except ConnectionResetError:
                    pass
        self.assertIn("descriptors with a message", self.daemon.said())
        holder.say()  # it is served all the same
        self.assertEqual(self.taken(holder, self.waiter()), None)

    def sixteen(self, body, patience=0.0):
        """Somebody sends descriptors with that; the daemon keeps none."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.connect(self.daemon.path)
            pipes = [os.pipe() for _ in range(16)]
            caller.send(hello())
            send_with(caller, body, [other for _, other in pipes], patience)
            for mine, other in pipes:
                os.close(other)
                wait_for(lambda pipe=mine: all_closed(pipe), PATIENCE, "a descriptor to be closed")
                os.close(mine)

    def test_descriptors_with_an_empty_packet_are_closed(self):
        self.start()
        self.sixteen(b"", PATIENCE)

    def test_without_the_setting_every_descriptor_is_closed(self):
        self.start("--hand-over", "no")
        for body in (b"", note(3, "with something"), b"no message at all"):
            self.sixteen(body)

    def received(self, holder, command=(sys.executable, os.path.abspath(__file__)), **started):
        """How many descriptors came to a program that is started in another way."""
        child = subprocess.Popen([*command, "--receive", self.daemon.path, str(8 * GIB)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **started)
        self.addCleanup(child.wait, PATIENCE)
        self.addCleanup(child.stdout.close)
        end = time.monotonic() + PATIENCE
        while holder.resident > 2 * GIB and time.monotonic() < end:
            if holder.hear(0.01) is not None:
                holder.obey()
            holder.move()
        answer = child.stdout.readline()
        child.stdin.close()
        return int(answer)

    def peers(self, count):
        peers = [Peer(self.daemon.path, os.getpid()) for _ in range(count)]
        for peer in peers:
            self.addCleanup(peer.socket.close)
            peer.has_been_read()
        return peers

    def test_copies_go_to_all_in_one_order(self):
        """The sender hears its offers as well, and nobody else's word makes an offer its own."""
        self.start()
        peers, sent = self.peers(3), []
        for at, peer in enumerate(peers):
            copy = os.memfd_create("copy")
            os.write(copy, bytes([at]))
            send_with(peer.socket, copy_message(2 * MIB, own=1 - at % 2), [copy], PATIENCE)
            sent.append(os.fstat(copy).st_ino)
            os.close(copy)
            peer.has_been_told = [hear_copy(each) for each in peers]
            numbers = {number for (_, number, _), _ in peer.has_been_told}
            self.assertEqual(len(numbers), 1)
            for who, ((bytes_, number, own), fds) in enumerate(peer.has_been_told):
                self.assertEqual((bytes_, own, [os.fstat(fd).st_ino for fd in fds]), (2 * MIB, int(who == at), [sent[-1]]))
                os.close(fds[0])
        numbers = [peer.has_been_told[0][0][1] for peer in peers]
        self.assertEqual(numbers, sorted(set(numbers)))
        for taker in (peers[1], peers[2], peers[0]):  # they have taken it; once is enough for its sender, and all for the others
            taker.socket.send(copy_message(1, numbers[0]))
        peers[1].socket.send(copy_message(1, numbers[2]))
        self.assertEqual(hear_copy(peers[2]), ((1, numbers[2], 0), []))
        self.assertEqual(hear_copy(peers[0]), ((1, numbers[0], 0), []))
        for peer in peers:
            peer.has_been_read()
            peer.socket.setblocking(False)
            self.assertRaises(BlockingIOError, peer.socket.recv, 4096)

    def test_offers_of_a_user_cost_no_more_than_messages(self):
        """Each is passed on to all of its programs, so their number counts."""
        self.start("--max-messages", "100")
        peers, heard, copy, begun = self.peers(10), 0, os.memfd_create("copy"), time.monotonic()
        for _ in range(90):
            send_with(peers[0].socket, copy_message(2 * MIB), [copy], PATIENCE)
        os.close(copy)
        for peer in peers:  # the first of them is within the rate
            os.close(hear_copy(peer)[1][0])
        peers[0].socket.send(fake.header(fake.STATUS, 16))
        while True:
            data, fds, _, _ = socket.recv_fds(peers[0].socket, 65536, 32)
            heard += len(fds)
            for fd in fds:
                os.close(fd)
            if struct.unpack("<IHHII", data[:16])[2] == fake.END:
                break
        self.assertLess(heard, (time.monotonic() - begun + 1) * 100 / len(peers) + 1)

    def test_copies_that_are_said_wrong(self):
        """No descriptor, two, or one with the word that an offer was taken: nothing is passed on."""
        self.start()
        sender, other = self.peers(2)
        pipes = [os.pipe() for _ in range(3)]
        sender.socket.send(copy_message(2 * MIB))
        send_with(sender.socket, copy_message(2 * MIB), [pipes[0][1], pipes[1][1]], PATIENCE)
        send_with(sender.socket, copy_message(2 * MIB, 5), [pipes[2][1]], PATIENCE)
        for mine, theirs in pipes:
            os.close(theirs)
            wait_for(lambda pipe=mine: all_closed(pipe), PATIENCE, "a descriptor to be closed")
            os.close(mine)
        other.has_been_read()
        other.socket.setblocking(False)
        self.assertRaises(BlockingIOError, other.socket.recv, 4096)
        sender.socket.send(copy_message(1 << 40))
        self.assertEqual(sender.socket.recv(4096), b"")

    def test_no_copies_without_the_setting(self):
        self.start("--hand-over", "no")
        sender, other = self.peers(2)
        copy = os.memfd_create("copy")
        send_with(sender.socket, copy_message(2 * MIB), [copy])
        os.close(copy)
        for peer in (sender, other):
            peer.has_been_read()
            peer.socket.setblocking(False)
            self.assertRaises(BlockingIOError, peer.socket.recv, 4096)

    def copies_heard(self, command=(sys.executable, os.path.abspath(__file__)), **started):
        """How many descriptors of an offer came to a program that is started in another way."""
        child = subprocess.Popen([*command, "--hear", self.daemon.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **started)
        self.addCleanup(child.wait, PATIENCE)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        self.assertEqual(child.stdout.readline(), "here\n")
        sender = self.peers(1)[0]
        copy = os.memfd_create("copy")
        send_with(sender.socket, copy_message(2 * MIB), [copy], PATIENCE)
        os.close(copy)
        os.close(hear_copy(sender)[1][0])  # by now all have it who are to have it
        child.stdin.write("\n")
        child.stdin.flush()
        return int(child.stdout.readline())

    def test_copies_go_to_no_other_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be somebody else")
        python = find_python_for_others(self)
        script = copy_for_others(self, __file__, fake.__file__, other_user.__file__)[0]
        self.start()
        self.assertEqual(self.copies_heard(), 1)
        self.assertEqual(self.copies_heard([python, script], **AS_OTHER_USER), 0)

    def test_copies_go_to_no_other_pid_namespace(self):
        if subprocess.run(["unshare", "-fp", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no pid namespace can be made")
        self.start()
        self.assertEqual(self.copies_heard(["unshare", "-fp", sys.executable, os.path.abspath(__file__)]), 0)

    def test_nothing_goes_to_another_pid_namespace(self):
        if subprocess.run(["unshare", "-fp", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no pid namespace can be made")
        self.start()
        self.assertEqual(self.received(self.holder(), ["unshare", "-fp", sys.executable, os.path.abspath(__file__)]), 0)

    def test_something_comes_to_a_process_beside(self):
        self.start()
        wait_for(lambda: self.received(self.holder()) > 0, PATIENCE, "something to come")  # for all it may be too late

    def test_nothing_goes_to_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be somebody else")
        python = find_python_for_others(self)
        script = copy_for_others(self, __file__, fake.__file__, other_user.__file__)[0]
        self.start()
        self.assertEqual(self.received(self.holder(), [python, script], **AS_OTHER_USER), 0)


if sys.argv[1] == "--receive":
    receive(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "--hear":
    hear_copies(sys.argv[2])
else:
    LOCKD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
