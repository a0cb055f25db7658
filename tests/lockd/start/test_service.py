#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-lockd as a service: what it is started with, what it must not take from others, and where its log goes.

usage: test_service.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import CONTROL, MIB, PATIENCE, RUNNING, WANT, Program, can_connect, message, wait_for
from other_user import AS_OTHER_USER, copy_for_others, make_folder

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
RESUME = 5  # an operation (wire.h)


class ServiceTest(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder()
        self.path = os.path.join(self.folder, "lockd.sock")
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *arguments, **options):
        process = subprocess.Popen([LOCKD, "--socket", self.path, *arguments], **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(lambda: can_connect(self.path), PATIENCE, "the daemon's socket")
        return process

    def assert_serves(self):
        program = Program(self.path)
        program.say(flags=WANT, demand=MIB)
        program.settle(lambda p: p.flags & RUNNING)
        program.close()

    def fill_the_log(self):
        """A line of the log for each of more operations than a pipe has room for; who may change settings may have all of them logged."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(PATIENCE)
            caller.connect(self.path)
            for _ in range(2000):
                caller.send(message(CONTROL, struct.pack("<IiQ", RESUME, 0, 0)))
                self.assertTrue(caller.recv(4096))

    def test_log_that_nobody_reads_holds_up_nobody(self):
        ours, its = os.pipe()
        process = self.start(stderr=its)
        os.close(its)
        self.fill_the_log()
        self.assert_serves()
        os.set_blocking(ours, False)
        self.assertGreater(len(os.read(ours, 1 << 20)), 10000)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertIn(b"lines were lost", os.read(ours, 1 << 20))
        os.close(ours)

    def test_terminal_that_nobody_reads_holds_up_nobody(self):
        main, other = os.openpty()
        self.addCleanup(os.close, main)
        self.start(stderr=other)
        self.addCleanup(os.close, other)
        self.fill_the_log()
        self.assert_serves()
        self.assertTrue(os.get_blocking(other), "what others have of the terminal has changed")

    def test_service_manager_that_does_not_listen_holds_up_nobody(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            notify.bind(os.path.join(self.folder, "notify"))
            process = self.start("--log-level", "warning", stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "NOTIFY_SOCKET": notify.getsockname(), "WATCHDOG_USEC": "4000"})
            self.addCleanup(process.stderr.close)
            self.assertIn("nobody reads it", process.stderr.readline())
            self.assert_serves()
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_log_whose_reader_has_gone_ends_nothing(self):
        ours, its = os.pipe()
        self.start(stderr=its)
        os.close(its)
        os.close(ours)
        self.fill_the_log()
        self.assert_serves()

    def test_log_is_the_journals_only_where_stderr_is(self):
        """A terminal that a user's service opened has JOURNAL_STREAM too; its lines have no level in front."""
        for described in ("1:2", None):
            ours, its = os.pipe()
            pipe = os.fstat(its)
            stream = described or f"{pipe.st_dev}:{pipe.st_ino}"
            process = self.start(stderr=its, env={**os.environ, "JOURNAL_STREAM": stream})
            os.close(its)
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)
            said = os.read(ours, 4096)
            os.close(ours)
            self.assertEqual(said.startswith(b"<6>"), described is None, said)

    def test_daemon_that_a_program_starts_says_nothing_to_that_programs_service(self):
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(os.path.join(self.folder, "notify"))
        environment = {**os.environ, "NOTIFY_SOCKET": notify.getsockname(), "WATCHDOG_USEC": "100000"}
        subprocess.run([LOCKD, "--socket", self.path, "--detach", "--idle-exit", "0"], env=environment, check=True, timeout=PATIENCE)
        self.assert_serves()
        wait_for(lambda: not os.path.exists(self.path), PATIENCE, "it to leave")
        notify.setblocking(False)
        self.assertRaises(BlockingIOError, notify.recv, 100)

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_group_of_the_socket_unit_may_connect(self):
        """Whatever folder systemd made for it."""
        os.chmod(self.folder, 0o755)
        self.activated(group=64999)
        (ctl,) = copy_for_others(self, CTL)
        for group, code in ((64999, 0), (64998, 1)):
            os.chmod(self.path, 0o666)  # the file's mode would let everybody in; the daemon does not
            status = subprocess.run([ctl, "--socket", self.path, "status"], capture_output=True, text=True,
                                    **{**AS_OTHER_USER, "group": group})
            self.assertEqual(status.returncode, code, status.stderr)
        self.assertIn("must be in group 64999", status.stderr)

    def activated(self, group=None):
        """A daemon with a socket of systemd's, as it has no lock file."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        if group is not None:
            os.chown(self.path, 0, group)
            os.chmod(self.path, 0o660)
        listener.listen()
        pid = os.fork()
        if pid == 0:
            os.dup2(listener.fileno(), 3)
            os.set_inheritable(3, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
            os.execv(LOCKD, [LOCKD, "--socket", self.path, "--log-level", "error"])
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        listener.close()
        return pid

    def test_socket_of_systemd_is_not_taken_over(self):
        pid = self.activated()
        second = subprocess.run([LOCKD, "--socket", self.path], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((second.returncode, second.stderr.count("already")), (1, 1), second.stderr)
        quiet = subprocess.run([LOCKD, "--socket", self.path, "--detach", "--idle-exit", "1"], timeout=PATIENCE)
        self.assertEqual(quiet.returncode, 0)
        answer = subprocess.run([CTL, "--socket", self.path, "status", "--json"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(json.loads(answer.stdout)["daemon"]["pid"], pid)

    def test_socket_of_another_daemon_stays_when_one_leaves(self):
        first = self.start()
        for name in os.listdir(self.folder):  # somebody tidied up
            os.unlink(os.path.join(self.folder, name))
        self.start()
        first.terminate()
        self.assertEqual(first.wait(PATIENCE), 0)
        self.assert_serves()

    def test_path_that_means_another_place_everywhere_is_refused(self):
        here = {**os.environ, "GPUSHARE_SOCKET": "lockd.sock"}
        for command, code in (([LOCKD], 2), ([CTL, "status"], 2), ([CTL, "doctor"], 2)):
            result = subprocess.run(command, env=here, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn("GPUSHARE_SOCKET: give the full path", result.stderr)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
