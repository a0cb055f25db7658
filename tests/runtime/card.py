# SPDX-License-Identifier: Apache-2.0
"""A simulated card of its own with its own gpushare-lockd, for the tests of runtime/ (standard library only)."""
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from kit import OPTIONS, BuildTest, check, daemons_of, main, sanitized  # noqa: E402,F401  (in the folder above, for the scripts)

MIB = 1 << 20
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
PATIENCE = 120  # seconds: what comes at once on an idle machine, on one that is busy with other things


def wait_for(condition):
    """Whether it comes true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def private_run():
    """Gives this process a /run of its own, in which no daemon of the machine or of another test is. False: it may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    return os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0 and \
        libc.mount(b"none", b"/run", b"tmpfs", 0, b"mode=755") == 0


def daemon_script(card, idle_exit):
    """The daemon that programs start, with its --idle-exit replaced: the last one counts."""
    path = os.path.join(card.folder, "lockd.sh")
    with open(path, "w", encoding="ascii") as file:
        file.write(f'#!/bin/sh\nexec "{card.lockd}" "$@" --idle-exit {idle_exit}\n')
    os.chmod(path, 0o755)
    return path


def remove_group(folder):
    """False: processes that have ended are still in it."""
    try:
        os.rmdir(folder)
    except OSError:
        return not os.path.isdir(folder)
    return True


class Card:
    """with Card(build, memory="64MiB") as card: card.start([...]); everything is ended and removed at the end."""

    def __init__(self, build, memory="64MiB", daemon=True, options=(), **environment):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="gs-rt-")
        self.socket = os.path.join(self.folder, "lockd.sock")
        self.lockd = os.path.join(build, "lockd", "gpushare-lockd")
        self.children = []
        self.freezers = set()  # control groups of children
        self.daemon = None
        self.options = list(options)
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("GPUSHARE_", "SIMCUDA_"))}
        self.environment.update(
            SIMCUDA_CARD=self.folder, SIMCUDA_MEMORY=memory, GPUSHARE_SOCKET=self.socket, GPUSHARE_LOCKD=self.lockd,
            LD_LIBRARY_PATH=os.path.join(build, "tests", "simcuda"), TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:die_after_fork=0",
            ASAN_OPTIONS="detect_leaks=0:handle_segv=0:use_sigaltstack=0")
        self.environment.update(environment)
        if daemon:
            self.start_daemon()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        self.stop_daemon()
        for pid in self.daemon_pids():  # one that a program has started
            os.kill(pid, signal.SIGKILL)
        for folder in self.freezers:
            wait_for(lambda folder=folder: remove_group(folder))
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_daemon(self):
        """Returns when one listens: ours, or one that a program was quicker to start (ours then ends with 1)."""
        self.daemon = subprocess.Popen([self.lockd, "--foreground", "--socket", self.socket, "--log-level", "error"] + self.options,
                                       env=self.environment, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + PATIENCE
        while not self.listens():
            code = self.daemon.poll()
            if code is not None:
                said = self.daemon.stderr.read()
                if "another gpushare-lockd already serves" not in said:
                    raise RuntimeError(f"{self.lockd} ended with {code}: {said}")
                return
            if time.monotonic() > until:
                raise RuntimeError(f"{self.lockd} does not come up")
            time.sleep(0.01)

    def listens(self):
        """Whether a daemon takes connections: the socket's file is there a moment earlier."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            return caller.connect_ex(self.socket) == 0

    def stop_daemon(self, how=signal.SIGTERM):
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(how)
            self.daemon.wait(timeout=PATIENCE)
        self.daemon = None

    def daemon_pids(self):
        """The daemons that serve this card's socket, which is in a temporary folder of our own."""
        return daemons_of(self.socket)

    def start(self, command, prepare=None, **more):
        environment = dict(self.environment)
        environment.update(more)
        child = subprocess.Popen(command, env=environment, preexec_fn=prepare, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def run(self, command, timeout=PATIENCE, **more):
        child = self.start(command, **more)
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err

    def ctl(self, *words):
        ctl = os.path.join(self.build, "lockd", "gpusharectl")
        subprocess.run([ctl, "--socket", self.socket, *words], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def set(self, *words):
        self.ctl("set", *words)

    def status(self):
        ctl = os.path.join(self.build, "lockd", "gpusharectl")
        done = subprocess.run([ctl, "--socket", self.socket, "status", "--json"], env=self.environment,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def capacity(self):
        """Bytes that a program can have, SMALL_CONTEXTS and the daemon's reserve apart, also before it has noticed the contexts."""
        device = self.status()["devices"][0]
        return min(device["capacity"], device["total"] - (4 << 20)) >> 21 << 21  # in granules


class Told:
    """The program `moves` (or another of tests/runtime) on a card: told = Told(card); told.say("alloc 10") gives its answer.
    SMALL_CONTEXTS is for such cards: the daemon need not notice, which takes it seconds, what the second program's context takes."""

    SMALL_CONTEXTS = {"SIMCUDA_CONTEXT_MEMORY": "64KiB"}

    def __init__(self, card, prepare=None, command=("moves",), **more):
        self.card = card
        environment = dict(card.environment)
        environment.update(more)
        program = os.path.join(card.build, "tests", "runtime", command[0])
        # nothing is read ahead: select() does not know of lines that are
        self.child = subprocess.Popen([program, *command[1:]], env=environment, preexec_fn=prepare, bufsize=0,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        card.children.append(self.child)

    def tell(self, command):
        self.child.stdin.write(f"{command}\n".encode())

    def answer(self, timeout=PATIENCE):
        ready, _, _ = select.select([self.child.stdout], [], [], timeout)
        return self.child.stdout.readline().decode().strip() if ready else "no answer"

    def say(self, command, timeout=PATIENCE):
        self.tell(command)
        return self.answer(timeout)

    def entry(self):
        """What the daemon knows of it; None: nothing."""
        status = self.card.status()
        for device in status["devices"] if status else []:
            for program in device["programs"]:
                if program["pid"] == self.child.pid:
                    return program
        return None

    def until(self, true, timeout=PATIENCE):
        """Waits until true(entry); the entry then, or the last one."""
        end = time.monotonic() + timeout
        while True:
            entry = self.entry()
            if entry is not None and (true(entry) or time.monotonic() > end):
                return entry
            if self.child.poll() is not None:
                raise RuntimeError(f"moves: exit {self.child.returncode}: {self.child.stderr.read().decode()}")
            time.sleep(0.01)

    def ask_for_all(self, timeout=PATIENCE):
        """Allocates the whole card, and waits for it: returns its size in MiB when the daemon knows."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            mib = self.card.capacity() >> 20
            self.tell(f"zero {mib}")
            answer = "no answer"
            while answer == "no answer" and time.monotonic() < end:
                entry = self.entry()
                if entry is not None and entry["demand"] >= mib << 20:
                    return mib
                answer = self.answer(0.02)
            if answer != "error 2":  # it has not heard of that capacity yet
                break
        raise RuntimeError(f"it does not wait for the whole card: {answer}, {self.entry()}")

    def make_room(self, other, timeout=PATIENCE, absent=0):
        """The other program takes the whole card and gives it back, so that all memory of this one goes to the host. absent: bytes
        of its own that never had memory."""
        had = self.until(lambda entry: entry["resident"] + absent == entry["demand"] != 0, timeout)  # what it has is known
        end = time.monotonic() + timeout

        def has_left(entry):  # it may have had its next turn before status was asked
            return entry["resident"] == 0 or entry["moved_out"] >= had["moved_out"] + had["resident"]

        while True:
            answer = other.say(f"zero {self.card.capacity() >> 20}", timeout)
            gone = self.until(has_left, 2)
            if answer == "ok" and has_left(gone) and other.say("free 0") == "ok":
                break
            # the other one has not heard of that capacity yet
            if answer not in ("ok", "error 2") or time.monotonic() > end or (answer == "ok" and other.say("free 0") != "ok"):
                raise RuntimeError(f"no room was made: {answer}, {gone}")
            time.sleep(0.05)
        return gone

    def arrived(self, bytes_, timeout=PATIENCE):
        return self.until(lambda entry: entry["resident"] >= bytes_, timeout)

    def end(self, silent=True):
        """Ends it: 0, and nothing on stderr unless silent is False, or an exception. Returns stderr."""
        out, err = (text.decode() for text in self.child.communicate(timeout=PATIENCE))
        if self.child.returncode != 0 or out or (err and silent):
            raise RuntimeError(f"moves: exit {self.child.returncode}: {out} {err}")
        return err
