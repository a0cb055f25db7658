#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon that a program starts keeps of that program, and what not.

usage: test_inherited.py GPUSHARE_LOCKD [unittest options]"""
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
from fake import PATIENCE, Program, can_connect, wait_for
from kit import daemons_of

LOCKD = os.path.abspath(sys.argv.pop(1))
NOBODY = 65534
IOPRIO_IDLE = 3 << 13
IOPRIO_CALLS = {"x86_64": (251, 252), "aarch64": (30, 31)}[os.uname().machine]  # set, get
OTHER_SIGNALS = {signal.SIGPIPE, signal.SIGCHLD, signal.SIGTTOU, signal.SIGXFSZ}  # which it ignores itself
LIBC = ctypes.CDLL(None, use_errno=True)


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def limits_of(pid, name):
    """Soft and hard, as numbers or "unlimited"."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(name))
    return tuple(value if value == "unlimited" else int(value) for value in line[len(name):].split()[:2])


def may_raise_limits():
    return bool(int(status_of("self")["CapEff"], 16) >> 24 & 1)  # CAP_SYS_RESOURCE


def signals_in(mask):
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


def burden():
    """Makes this process as bad a parent as it may be."""
    os.umask(0o777)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 32)))
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    os.setpriority(os.PRIO_PROCESS, 0, 10)  # also where this process was started with another one
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    LIBC.syscall(IOPRIO_CALLS[0], 1, 0, IOPRIO_IDLE)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("777")
    resource.setrlimit(resource.RLIMIT_CPU, (100, 200))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 1 << 20))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 400))


class InheritedTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        os.chmod(self.folder, 0o755)
        self.lockd = os.path.join(self.folder, "gpushare-lockd")  # where other users reach it
        shutil.copy(LOCKD, self.lockd)
        os.mkdir(os.path.join(self.folder, "s"))
        self.path = os.path.join(self.folder, "s", "lockd.sock")

    def tearDown(self):
        for pid in daemons_of(self.path):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder)

    def start(self, prepare, *options):
        done = subprocess.run([self.lockd, "--detach", "--idle-exit", "60", "--socket", self.path, *options], preexec_fn=prepare,
                              cwd=self.folder, timeout=PATIENCE, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(can_connect(self.path))
        return daemons_of(self.path)[0]

    def test_always_reset(self):
        pid = self.start(burden)
        taken = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}  # by a descriptor, some time after the daemon listens
        wait_for(lambda: signals_in(status_of(pid)["SigBlk"]) == taken, PATIENCE, "the daemon to take its signals")
        status = status_of(pid)
        self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), "/")
        self.assertEqual(status["Umask"], "0022")
        self.assertEqual(signals_in(status["SigIgn"]), OTHER_SIGNALS)
        self.assertEqual(os.sched_getscheduler(pid), os.SCHED_OTHER)
        self.assertEqual(os.sched_getaffinity(pid), os.sched_getaffinity(0))
        self.assertEqual(LIBC.syscall(IOPRIO_CALLS[1], 1, pid), LIBC.syscall(IOPRIO_CALLS[1], 1, os.getpid()))
        os.kill(pid, signal.SIGTERM)  # it listens to it
        wait_for(lambda: not daemons_of(self.path), PATIENCE, "it to end")

    @unittest.skipUnless(os.getuid() == 0, "needs root to raise what was lowered")
    def test_root_raises_everything(self):
        pid = self.start(burden)
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, pid), 0)
        with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as file:
            self.assertEqual(file.read().strip(), "0")
        most = "unlimited" if may_raise_limits() else 200
        self.assertEqual(limits_of(pid, "Max cpu time"), (most, most))
        most = 65536 if may_raise_limits() else 400
        self.assertEqual(limits_of(pid, "Max open files"), (most, most))

    @unittest.skipUnless(os.getuid() == 0, "needs root to become another user")
    def test_other_user_raises_what_he_may(self):
        def become_nobody():
            burden()
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        os.chown(os.path.dirname(self.path), NOBODY, NOBODY)
        pid = self.start(become_nobody)
        self.assertEqual(limits_of(pid, "Max cpu time"), (200, 200))
        self.assertEqual(limits_of(pid, "Max address space"), (2 << 30, 2 << 30))
        self.assertEqual(limits_of(pid, "Max open files"), (400, 400))
        self.assertEqual(signals_in(status_of(pid)["SigIgn"]), OTHER_SIGNALS)

    @unittest.skipUnless(os.getuid() == 0, "needs root to change limits either way")
    def test_administrators_settings_stay(self):
        """In the foreground, as a service, nothing is changed but signals."""
        with open(os.path.join(self.folder, "log"), "wb") as log:
            child = subprocess.Popen([self.lockd, "--socket", self.path], preexec_fn=burden, stderr=log)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        wait_for(lambda: can_connect(self.path), PATIENCE, "its socket")
        status = status_of(child.pid)
        self.assertEqual(status["Umask"], "0777")
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, child.pid), 10)
        self.assertEqual(os.sched_getscheduler(child.pid), os.SCHED_BATCH)
        self.assertEqual(len(os.sched_getaffinity(child.pid)), 1)
        self.assertEqual(limits_of(child.pid, "Max cpu time"), (100, 200))
        wait_for(lambda: limits_of(child.pid, "Max open files") == (400, 400), PATIENCE, "it to raise its own limit")
        self.assertEqual(signals_in(status["SigIgn"]), OTHER_SIGNALS)
        self.assertEqual(signals_in(status["SigBlk"]), {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
        program = Program(self.path)
        program.say()
        self.assertIsNotNone(program.hear())
        program.close()


if __name__ == "__main__":
    unittest.main()
