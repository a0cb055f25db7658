#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that one program opens of another (lockd/server/share.c), with programs played. test_share.py GPUSHARE-LOCKD"""
import ctypes
import errno
import os
import shutil
import struct
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..")]
from fake import CONTROL, MIB, PATIENCE, TOKEN, Daemon, Peer, control_group, message, wait_for  # noqa: E402
from other_user import make_folder  # noqa: E402  (in the folder above fake's)

LOCKD = sys.argv.pop(1)
NEWUSER = 0x10000000
SET_QUANTUM = 1  # lockd/protocol/settings.def


def enter(group):
    with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))


class ShareTest(unittest.TestCase):
    def setUp(self):
        folder = make_folder()
        os.chmod(folder, 0o750)
        if os.geteuid() == 0:
            os.chown(folder, 0, 65534)
        self.daemon = Daemon(LOCKD, folder=folder)
        self.started = time.monotonic()
        self.addCleanup(shutil.rmtree, folder)
        self.addCleanup(self.end)

    def end(self):
        self.assertEqual(self.daemon.end(), 0, self.daemon.said())
        self.assertNotIn("Sanitizer", self.daemon.said())

    def peer(self, pid):
        peer = Peer(self.daemon.path, pid)
        self.addCleanup(peer.socket.close)
        return peer

    def test_passed_on_with_descriptors(self):
        exporter, opener = self.peer(1001), self.peer(1002)
        opener.open(1001, 77)
        token, pid, number = exporter.asked()
        self.assertEqual((token, pid), (TOKEN, 1001))
        files = [os.memfd_create("chunk") for _ in range(3)]
        out, into = os.pipe()
        exporter.share(number, whole=6 * MIB, size=6 * MIB, count=2, files=[files[0], files[1], into])
        exporter.share(number, whole=6 * MIB, size=6 * MIB, first=2, count=1, files=[files[2]])
        os.close(into)
        self.assertEqual(opener.told()[:4], (77, 0, 0, 2))
        self.assertEqual(opener.told()[:4], (77, 0, 2, 1))
        exporter.share(number, whole=6 * MIB, size=6 * MIB, count=1, files=[files[0], out])  # nobody waits for it now
        opener.open(1001, 78)
        self.assertNotEqual(exporter.asked()[2], number)
        for fd in [*files, out]:
            os.close(fd)

    def test_setting_that_changes_meanwhile(self):
        """A daemon that hands nothing over still takes what it has asked for (it may refuse descriptors since Linux 6.16)."""
        self.assertEqual(self.daemon.end(), 0)
        self.daemon = Daemon(LOCKD, "--hand-over", "no", folder=self.daemon.folder)
        exporter, opener = self.peer(1001), self.peer(1002)
        opener.open(1001, 77)
        number = exporter.asked()[2]
        asker = self.peer(1003).socket
        asker.send(message(CONTROL, struct.pack("<IiQ", SET_QUANTUM, 0, 100_000_000)))
        code = struct.unpack("<i", asker.recv(4096)[16:20])[0]
        self.assertEqual(code, 0)
        chunk = os.memfd_create("chunk")
        out, into = os.pipe()
        exporter.share(number, count=1, files=[chunk, into])
        self.assertEqual(opener.told()[:4], (77, 0, 0, 1))
        for each in (chunk, out, into):
            os.close(each)

    def test_nothing_stays_with_the_daemon(self):
        exporter, opener = self.peer(1001), self.peer(1002)
        opener.open(1001, 5)
        chunk, (out, into) = os.memfd_create("chunk"), os.pipe()
        exporter.share(exporter.asked()[2], count=1, files=[chunk, into])
        os.close(into)
        for fd in opener.told()[4]:
            os.close(fd)
        self.assertEqual(os.read(out, 1), b"")  # the end: the daemon has closed its own
        os.close(chunk)
        os.close(out)

    def test_the_next_one_is_asked(self):
        first, second, opener = self.peer(1001), self.peer(1001), self.peer(1002)
        opener.open(1001)
        first.share(first.asked()[2], -errno.ENOENT, count=0)
        number = second.asked()[2]
        second.share(number, -errno.EIO, count=0)
        self.assertEqual(opener.told()[:2], (7, -errno.EIO))

    def test_no_exporter(self):
        exporter, opener = self.peer(1001), self.peer(1002)
        opener.open(1001)
        exporter.asked()
        exporter.socket.close()
        opener.open(5, 8)
        self.assertEqual([opener.told()[:2], opener.told()[:2]], [(7, -errno.ENOENT), (8, -errno.ENOENT)])
        self.assertGreater(time.monotonic() - self.started, 4)  # a daemon that is new waits for programs to come back

    def test_one_that_comes_back(self):
        opener = self.peer(1002)
        opener.open(1001)
        exporter = self.peer(1001)
        self.assertEqual(exporter.asked()[:2], (TOKEN, 1001))

    def test_no_more_than_64_of_a_user(self):
        exporter, opener = self.peer(1001), self.peer(1002)
        for i in range(70):
            opener.open(1001, i + 1)
        for i in range(6):
            self.assertEqual(opener.told()[:2], (65 + i, -errno.EAGAIN))
        for _ in range(64):
            exporter.asked()

    def container_peers(self, name):
        """An exporter and an opener in a container; this process is there until the daemon has seen them."""
        try:
            inside = control_group(self, f"gpushare-test-{os.getpid()}-{name * 64}")
            with open("/proc/self/cgroup", encoding="ascii") as file:
                lines = [line.rstrip("\n").split(":", 2) for line in file]
            own = next(path for _, controllers, path in lines if controllers == "name=systemd" or controllers == "")
            outside = os.path.join(os.path.dirname(inside), own.lstrip("/"))
            if not os.access(os.path.join(outside, "cgroup.procs"), os.W_OK):
                raise PermissionError(outside)
            enter(inside)
        except OSError as error:
            self.skipTest(f"this process cannot enter a control group of its own: {error}")
        try:
            peers = self.peer(1001), self.peer(1002)
            for peer in peers:
                peer.has_been_read()
        finally:
            enter(outside)
        return peers

    def test_another_container(self):
        """What root of one container asks for is not counted as root's of another one, or of the machine."""
        places = [self.container_peers("a"), self.container_peers("b"), (self.peer(1001), self.peer(1002))]
        for exporter, opener in places:
            for i in range(65):
                opener.open(1001, i + 1)
            self.assertEqual(opener.told()[:2], (65, -errno.EAGAIN))
            for _ in range(64):
                exporter.asked()

    def test_lies_end_a_connection(self):
        for lie in ({"count": 16}, {"code": 1}, {"offset": 3 * MIB}, {"size": 2**60}, {"code": -2, "count": 1}):
            liar = self.peer(1001)
            liar.share(3, **lie)
            try:
                self.assertEqual(liar.socket.recv(100), b"", lie)
            except ConnectionResetError:
                pass
        self.test_passed_on_with_descriptors()

    def refused(self, become):
        """A process that has become somebody else is not given what the exporter has."""
        exporter = self.peer(1001)
        wait_for(lambda: time.monotonic() - self.started > 5.5, PATIENCE, "the daemon to be old enough")
        child = os.fork()
        if child == 0:
            try:
                become()
                opener = Peer(self.daemon.path, 1002)
                opener.open(1001)
                os._exit(3 if opener.told()[:2] == (7, -errno.ENOENT) else 4)
            except OSError:
                os._exit(5)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 5:
            self.skipTest("this process cannot become somebody else, or not connect as that")
        self.assertEqual(status, 3)
        exporter.socket.setblocking(False)
        with self.assertRaises(BlockingIOError):
            exporter.socket.recv(100)

    def test_another_user(self):
        def become():
            os.setgroups([65534])
            os.setgid(65534)
            os.setuid(65534)
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.refused(become)

    def test_another_user_namespace(self):
        def become():
            if ctypes.CDLL(None, use_errno=True).unshare(NEWUSER) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
        self.refused(become)


unittest.main()
