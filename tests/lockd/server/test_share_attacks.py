#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that misuse the sharing of memory (lockd/server/share.c) and evidence (lockd/programs), played, against a daemon of a user
without rights. Nobody else may notice, and nothing may stay with the daemon.

usage: test_share_attacks.py GPUSHARE-LOCKD GPUSHARECTL [unittest options]"""
import contextlib
import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..")]
from fake import (GIB, MIB, PATIENCE, RUN, TOKEN, WANT, Daemon, Peer, Program, kin, open_message, settle_all,  # noqa: E402
                  share_message, wait_for)
from other_user import copy_for_others, make_folder  # noqa: E402  (in the folder above fake's)

LOCKD, CTL = sys.argv.pop(1), sys.argv.pop(1)
OWNER, ATTACKER, VICTIM = 64990, 64991, 64992  # of the daemon; two of its users
DESCRIPTORS = 4096  # that the daemon may have
MASTER, MEMORY = 2, 7  # kinds of evidence


@contextlib.contextmanager
def user(uid):
    """Connections that are made meanwhile are that user's."""
    groups = os.getgroups()
    os.setgroups([OWNER])
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setgroups(groups)


def become_owner():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    os.setgroups([])
    os.setgid(OWNER)
    os.setuid(OWNER)


class Attacks(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be several users")
        lockd, self.ctl = copy_for_others(self, LOCKD, CTL)
        folder = make_folder()
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, OWNER, OWNER)
        os.chmod(folder, 0o750)
        self.daemon = Daemon(lockd, "--max-messages", "100000", folder=folder, preexec_fn=become_owner)
        self.addCleanup(self.end)

    def end(self):
        self.assertEqual(self.daemon.end(), 0, self.daemon.said())
        self.assertNotIn("Sanitizer", self.daemon.said())

    def peer(self, uid, pid):
        with user(uid):
            peer = Peer(self.daemon.path, pid)
        self.addCleanup(peer.socket.close)
        return peer

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def is_shared(self, exporter, opener, pid, number):
        """The opener gets what the exporter has."""
        chunk, (out, into) = os.memfd_create("chunk"), os.pipe()
        opener.open(pid, number)
        exporter.share(exporter.asked()[2], count=1, files=[chunk, into])
        answer, code, _, _, files = opener.told()
        for fd in [chunk, out, into, *files]:
            os.close(fd)
        self.assertEqual((answer, code, len(files)), (number, 0, 2))

    def test_opens_without_end(self):
        """One user's program asks and asks, and reads no answer; the exporter is silent. Another user's opens are answered."""
        attacker, silent = self.peer(ATTACKER, 1001), self.peer(ATTACKER, 1002)
        exporter, opener = self.peer(VICTIM, 2001), self.peer(VICTIM, 2002)
        self.is_shared(exporter, opener, 2001, 1)
        before = self.descriptors()
        attacker.socket.setblocking(False)
        sent = 0
        for number in range(1, 300000):
            try:
                attacker.socket.send(open_message(os.urandom(16), 1002, number))
                sent = number
            except BlockingIOError:
                self.is_shared(exporter, opener, 2001, number)
            except (BrokenPipeError, ConnectionResetError):
                break  # it does not read its messages
        self.assertGreater(sent, 64)
        self.is_shared(exporter, opener, 2001, 1)
        silent.asked()
        attacker.socket.close()
        self.is_shared(exporter, opener, 2001, 2)
        wait_for(lambda: self.descriptors() < before, PATIENCE, "the daemon to close what it has")

    def leave_unread(self, then):
        """What is on its way counts for the daemon's user, and that has a limit: one user's programs must not use it up. then: what
        such a program does in the end."""
        exporter, opener = self.peer(VICTIM, 2001), self.peer(VICTIM, 2002)
        self.is_shared(exporter, opener, 2001, 1)
        before = self.descriptors()
        chunks = [os.memfd_create("chunk") for _ in range(15)]
        out, into = os.pipe()
        attackers = []
        for i in range(8):
            theirs, mine = self.peer(ATTACKER, 1100 + i), self.peer(ATTACKER, 1200 + i)
            mine.has_been_read()
            for number in range(60):
                theirs.open(1200 + i, number + 1)
            for _ in range(60):
                mine.share(mine.asked()[2], whole=30 * MIB, size=30 * MIB, count=15, files=[*chunks, into])
            mine.has_been_read()
            then(theirs)
            mine.socket.close()
            attackers.append(theirs)
            self.is_shared(exporter, opener, 2001, 7 + i)
        for fd in [*chunks, out, into]:
            os.close(fd)
        for attacker in attackers:
            attacker.socket.close()
        wait_for(lambda: self.descriptors() <= before, PATIENCE, "the daemon to close what it has")

    def test_descriptors_that_nobody_reads(self):
        self.leave_unread(lambda theirs: None)

    def test_descriptors_that_nobody_reads_of_a_connection_that_is_ended(self):
        def say_nonsense(theirs):
            theirs.socket.send(b"nonsense")
            wait_for(lambda: f"of user {ATTACKER}: connection closed" in self.daemon.said(), PATIENCE, "the daemon to hang up")
        self.leave_unread(say_nonsense)

    def test_shares_that_nobody_asked_for(self):
        """With descriptors of anything; and answers to an open that it does not have."""
        attacker = self.peer(ATTACKER, 1001)
        exporter, opener = self.peer(VICTIM, 2001), self.peer(VICTIM, 2002)
        self.is_shared(exporter, opener, 2001, 1)
        before = self.descriptors()
        opener.open(2001, 2)
        number = exporter.asked()[2]
        ends, pair, null = os.pipe(), socket.socketpair(), os.open("/dev/null", os.O_RDWR)
        files = [*ends, pair[0].fileno(), null]
        for i in range(500):
            attacker.share(number if i % 2 else i, count=3, whole=6 * MIB, size=6 * MIB, files=files)
            attacker.share(number if i % 2 else i, -errno.EIO, count=0)
        wait_for(lambda: self.descriptors() <= before, PATIENCE, "the daemon to close what it was sent")
        opener.socket.setblocking(False)
        with self.assertRaises(BlockingIOError):
            opener.socket.recv(100)
        opener.socket.settimeout(PATIENCE)
        exporter.share(number, -errno.EIO, count=0)
        self.assertEqual(opener.told()[:2], (2, -errno.EIO))
        for fd in [*ends, null]:
            os.close(fd)
        for end in pair:
            end.close()

    def test_shares_of_nothing(self):
        """An answer without a chunk would bring a descriptor each time, and never end."""
        exporter, opener = self.peer(VICTIM, 2001), self.peer(VICTIM, 2002)
        opener.open(2001, 1)
        number = exporter.asked()[2]
        out, into = os.pipe()
        exporter.share(number, count=0, files=[into])
        try:
            self.assertEqual(exporter.socket.recv(100), b"")
        except ConnectionResetError:
            pass
        os.close(out)
        os.close(into)

    def test_wrong_number_of_descriptors(self):
        """The opener is told to ask again."""
        exporter, opener = self.peer(VICTIM, 2001), self.peer(VICTIM, 2002)
        self.is_shared(exporter, opener, 2001, 9)
        before = self.descriptors()
        ends = os.pipe()
        for number, files in ((1, []), (2, ends[:1]), (3, [*ends, ends[0]])):
            opener.open(2001, number)
            exporter.share(exporter.asked()[2], count=1, files=files)
            self.assertEqual(opener.told()[:2], (number, -errno.EAGAIN))
        wait_for(lambda: self.descriptors() <= before, PATIENCE, f"the daemon to close what it was sent: {before}")
        for fd in ends:
            os.close(fd)

    def test_false_process_ids(self):
        """A program of another user that says that it is the exporter, also when that has ended, is asked for nothing; one of the
        same user that has the number now is, and knows the token not."""
        false = self.peer(ATTACKER, 2001)
        exporter, opener = self.peer(VICTIM, 2001), self.peer(VICTIM, 2002)
        self.is_shared(exporter, opener, 2001, 1)
        exporter.socket.close()
        opener.open(2001, 2)
        wait_for(lambda: not self.is_silent(opener), PATIENCE, "an answer")
        self.assertEqual(opener.told()[:2], (2, -errno.ENOENT))
        again = self.peer(VICTIM, 2001)
        again.has_been_read()
        opener.open(2001, 3)
        token, _, number = again.asked()
        self.assertEqual(token, TOKEN)
        again.share(number, -errno.ENOENT, count=0)
        self.assertEqual(opener.told()[:2], (3, -errno.ENOENT))
        self.assertTrue(self.is_silent(false))

    @staticmethod
    def is_silent(peer):
        peer.socket.setblocking(False)
        try:
            return len(peer.socket.recv(100, socket.MSG_PEEK)) == 0
        except BlockingIOError:
            return True
        finally:
            peer.socket.settimeout(PATIENCE)

    def program(self, uid, *keys):
        with user(uid):
            program = Program(self.daemon.path, str(uid))
        self.addCleanup(program.close)
        for key in keys:
            program.socket.send(key)
        return program

    def programs(self):
        done = subprocess.run([self.ctl, "--socket", self.daemon.path, "status", "--json"], user=OWNER, group=OWNER, extra_groups=[],
                              capture_output=True, text=True, timeout=PATIENCE, check=True)
        return [each for device in json.loads(done.stdout)["devices"] for each in device["programs"]]

    def test_evidence_of_somebody_elses_job(self):
        """A user says the keys of another user's job, and of many ranks that never come: it is in no gang, and nobody waits for it."""
        keys = [kin(7, MASTER, 2), kin(8, MEMORY)]
        false = [self.program(ATTACKER, kin(7, MASTER, 65536), kin(8, MEMORY)) for _ in range(3)]
        for each in false:
            each.say(demand=GIB)
        ranks = [self.program(VICTIM, *keys) for _ in range(2)]
        for each in ranks:
            each.say(flags=WANT, demand=6 * GIB)
        settle_all(false + ranks, lambda: all(each.target is not None and each.target.flags & RUN for each in ranks))
        programs = self.programs()
        gangs = {uid: {each["gang"] for each in programs if each["uid"] == uid} for uid in (ATTACKER, VICTIM)}
        self.assertEqual(len(gangs[VICTIM]), 1, programs)
        self.assertNotIn(0, gangs[VICTIM])
        self.assertFalse(gangs[VICTIM] & gangs[ATTACKER], programs)
        self.assertEqual([each["gang_programs"] for each in programs if each["uid"] == VICTIM], [2, 2], programs)


unittest.main()
