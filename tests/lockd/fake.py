# SPDX-License-Identifier: Apache-2.0
"""A program as the daemon sees it: speaks lockd/protocol/wire.h over a real socket and keeps the client's promises."""
import array
import glob
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from other_user import make_folder  # noqa: E402  (in the folder above)

MAGIC, VERSION = 0x48535047, 9
HELLO, STATE, NOTE, TARGET, WISH, OPEN, SHARE, KIN, COPY = 1, 2, 3, 4, 5, 8, 9, 11, 14
STATUS, CONTROL, END = 16, 17, 22
RUNNING, WANT, MOVING, STUCK, SHORT, PARTIAL = 1, 2, 4, 8, 16, 32
RUN, WAITERS, PAUSED, SOLE, GIVE = 1, 2, 4, 8, 16
MIB = 1 << 20
GIB = 1 << 30
CARD = bytes(range(16))
TOKEN = bytes(range(100, 116))
PATIENCE = 120.0  # seconds: what comes at once on an idle machine, on one that is busy with other things

TARGET_FORMAT = "<IHHII16sIIQQQQQ16QIIQQ"


def header(kind, length):
    return struct.pack("<IHHII", MAGIC, VERSION, kind, length, 0)


def message(kind, body):
    return header(kind, 16 + len(body)) + body


def hello(name="fake", pid=None, weight=0, priority=0, group="", class_number=0):
    return message(HELLO, struct.pack("<iIiI32s16s32s", pid or os.getpid(), weight, priority, class_number, name.encode(), b"test",
                                      group.encode()))


def state(seq=0, flags=0, total=16 * GIB, free=2**64 - 1, demand=0, resident=0, short=0, out=0, moved_in=0,
          calls=0, switch_ns=0, pinned=0, host_used=0, host_wanted=0, given=0, given_bytes=0, uuid=CARD, name=b"Test card",
          shared=0, loose=0, saved=(0, 0, 0), asked=0):
    sizes = given_bytes if isinstance(given_bytes, list) else [given_bytes] * min(given, 16)
    return message(STATE, struct.pack("<16sII12Q16QII64s6Q3QQ", uuid, seq, flags, total, free, demand, resident, short,
                                      out, moved_in, calls, switch_ns, pinned, host_used, host_wanted,
                                      *(sizes + [0] * 16)[:16], given, 0, name, shared, 0, 0, 0, 0, loose, *saved, asked))


def open_message(token, pid, number):
    return message(OPEN, struct.pack("<16siI", token, pid, number))


def share_message(number, code=0, whole=2 * MIB, chunk=2 * MIB, offset=0, size=2 * MIB, first=0, count=1, uuid=CARD):
    return message(SHARE, struct.pack("<16sIiQQQQII", uuid, number, code, whole, chunk, offset, size, first, count))


def copy_message(bytes_, number=0, own=0):
    return message(COPY, struct.pack("<QQII", bytes_, number, own, 0))


def kin(key, kind, ranks=0, flags=0):
    return message(KIN, struct.pack("<QHHI", key, kind, flags, ranks))


def note(kind, text, name="fake", pid=None):
    return message(NOTE, struct.pack("<iI32s192s", pid or os.getpid(), kind, name.encode(), text.encode()))


def wish(flags, class_number=0):
    return message(WISH, struct.pack("<II", flags, class_number))


class Refused(EOFError):
    """The daemon says why and hangs up."""

    def __init__(self, code, _count, text):
        super().__init__(text.rstrip(b"\0").decode())
        self.code = code


class Target:
    def __init__(self, data):
        (_, _, kind, _, _, self.uuid, self.seq, self.flags, self.budget, self.capacity, self.idle_ns,
         self.host_budget, self.shortfall, *self.handed_bytes, self.handed, _, self.answered, self.overcommit) = struct.unpack(TARGET_FORMAT, data)
        assert kind == TARGET, f"message type {kind} where a target was expected"

    def __repr__(self):
        return f"<target {self.seq}: flags {self.flags} budget {self.budget / MIB:.1f} MiB>"


class Program:
    """One connected program on one device; everything it does is asked for by the test."""

    def __init__(self, path, name="fake", total=16 * GIB, say_hello=True, uuid=CARD):
        self.path, self.name, self.uuid = path, name, uuid
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.total, self.demand, self.resident, self.flags, self.switch_ns = total, 0, 0, 0, 0
        self.moved_out = self.moved_in = self.pinned = self.host_used = 0
        self.saved = (0, 0, 0)  # bytes: equal, zero, unchanged
        self.target = None
        self.targets = 0
        if say_hello:
            try:
                self.socket.send(hello(name))
            except BrokenPipeError:
                pass  # refused: hear() tells the reason

    def say(self, **change):
        """Reports the state, after changing it as told; echoes the newest target."""
        for key, value in change.items():
            setattr(self, key, value)
        self.socket.send(state(seq=self.target.seq if self.target else 0, flags=self.flags, total=self.total,
                               demand=self.demand, resident=self.resident, switch_ns=self.switch_ns,
                               out=self.moved_out, moved_in=self.moved_in, uuid=self.uuid, saved=self.saved, pinned=self.pinned,
                               host_used=self.host_used))

    def reconnect(self, timeout=PATIENCE):
        """Comes back to a daemon that was away, with its true state."""
        def connected():
            self.socket.close()
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self.socket.connect(self.path)
            except OSError:
                return False
            return True
        wait_for(connected, timeout, "the daemon to come back")
        self.socket.send(hello(self.name))
        self.say()

    def hear(self, timeout=PATIENCE):
        """The next target, None when there is none in time. EOFError when the daemon hung up."""
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(4096)
        except (socket.timeout, BlockingIOError):
            return None
        except ConnectionResetError:
            try:
                data = self.socket.recv(4096)  # the reset comes before what was said
            except OSError:
                raise EOFError from None
        if not data:
            raise EOFError
        if struct.unpack("<IHHII", data[:16])[2] == END:  # the reason comes before the end
            raise Refused(*struct.unpack("<iI192s", data[16:]))
        self.target = Target(data)
        self.targets += 1
        return self.target

    def obey(self):
        """Does at once what the newest target says, and reports."""
        want = self.flags & WANT
        if not self.target.flags & RUN:
            if self.flags & RUNNING:
                self.say(flags=want)  # stopped; only then memory moves
            self.resident = min(self.resident, self.target.budget)
            self.flags = want
        else:
            self.resident = min(self.demand, self.target.budget)
            self.flags = want | (RUNNING if want and self.resident == self.demand else 0)
        self.say()

    def settle(self, until, timeout=PATIENCE):
        """Obeys targets until until(self); fails when that takes longer than timeout."""
        end = time.monotonic() + timeout
        while not until(self):
            if self.hear(max(0.0, end - time.monotonic())) is None:
                raise AssertionError(f"timed out; newest {self.target}, flags {self.flags}, resident {self.resident}")
            self.obey()

    def close(self):
        self.socket.close()


class Peer:
    """A program that only shares memory (CUDA IPC): an exporter or an opener. The daemon may see another process id."""

    def __init__(self, path, pid):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        self.socket.send(hello("peer", pid=pid))

    def open(self, pid, number=7, token=TOKEN):
        self.socket.send(open_message(token, pid, number))

    def share(self, *args, files=(), **more):
        with_files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        self.socket.sendmsg([share_message(*args, **more)], with_files)

    def has_been_read(self):
        """Waits until the daemon has read all that was said here: it answers a question that came last."""
        self.socket.send(header(STATUS, 16))
        while struct.unpack("<IHHII", self.socket.recv(65536)[:16])[2] != END:
            pass

    def asked(self):
        """token, pid and number of the next message, which is an OPEN."""
        data = self.socket.recv(4096)
        assert struct.unpack("<IHHII", data[:16])[2] == OPEN, data
        return struct.unpack("<16siI", data[16:])

    def told(self):
        """number, code, first, count and the descriptors of the next message, which is a SHARE."""
        data, files, _, _ = socket.recv_fds(self.socket, 4096, 32)
        assert struct.unpack("<IHHII", data[:16])[2] == SHARE, data
        _, number, code, _, _, _, _, first, count = struct.unpack("<16sIiQQQQII", data[16:])
        return number, code, first, count, files


def settle_all(programs, until, timeout=PATIENCE):
    """Lets several programs obey until until()."""
    end = time.monotonic() + timeout
    selector = selectors.DefaultSelector()
    for program in programs:
        selector.register(program.socket, selectors.EVENT_READ, program)
    while not until():
        left = end - time.monotonic()
        assert left > 0, "timed out: " + ", ".join(f"{p.target} flags {p.flags}" for p in programs)
        for key, _ in selector.select(left):
            if key.data.hear() is not None:
                key.data.obey()
    selector.close()


class Daemon:
    """A daemon in a folder of its own."""

    def __init__(self, binary, *options, folder=None, log=None, **started):
        self.folder = folder or make_folder()
        self.path = os.path.join(self.folder, "lockd.sock")
        self.log = open(log or os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen([binary, "--socket", self.path, *options], stdout=subprocess.DEVNULL, stderr=self.log, **started)
        wait_for(lambda: can_connect(self.path), PATIENCE, "the daemon's socket")

    def said(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.log.close()
        return self.process.wait(PATIENCE)


def can_connect(path):
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.connect(path)
        return True
    except OSError:
        return False


def control_group(case, *parts):
    """A control group, which is removed after the test."""
    path = next(iter(glob.glob("/sys/fs/cgroup/systemd") + ["/sys/fs/cgroup"])) # a machine with version 1 has several trees
    if not os.path.exists(os.path.join(path, "cgroup.procs")):
        raise OSError(f"{path} is no hierarchy")
    for part in parts:
        path = os.path.join(path, part)
        if not os.path.isdir(path):
            os.mkdir(path)
            case.addCleanup(os.rmdir, path)
    return path


def wait_for(condition, timeout, what):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.01)
