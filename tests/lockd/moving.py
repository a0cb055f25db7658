# SPDX-License-Identifier: Apache-2.0
"""Two simulated cards with a daemon, and programs on them that check all of their memory all the time: for the tests of
`gpusharectl move` (standard library only)."""
import json
import os
import shlex
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import PATIENCE, can_connect, wait_for  # noqa: E402  (in this folder and the one above)
from kit import daemons_of, resume  # noqa: E402,F401  (for the scripts)


def uuid(card):
    """Of a simulated card (tests/simcuda/ledger.c)."""
    return "GPU-51585f66-6d74-7b82-8990-979ea5acb3%02x" % card


class Cards:
    """with Cards(build) as cards: everything is ended and removed at the end."""

    def __init__(self, build, options=(), **environment):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="gpushare-test-")
        self.socket = self.folder + "/lockd.sock"
        self.options = list(options)
        self.children = []
        self.daemon = None
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSHARE_", "SIMCUDA_"))}
        self.environment.update(
            GPUSHARE_SOCKET=self.socket, GPUSHARE_LOCKD=self.folder + "/lockd.sh", SIMCUDA_CARD=self.folder + "/card",
            SIMCUDA_MEMORY="64MiB", SIMCUDA_DEVICES="2", SIMCUDA_KERNEL_NS="1000000", SIMCUDA_PCIE_GBPS="1",
            GPUSHARE_GUARD_SOCKET=self.folder + "/guard.sock", LD_LIBRARY_PATH=build + "/tests/simcuda",
            SIMCUDA_KERNELS=build + "/samples/hog_standin.so")
        self.environment.update(environment)
        self.hog = self.folder + "/hog"
        shutil.copy(build + "/samples/hog", self.hog)
        subprocess.run([build + "/rewriter/gpushare-patch", "-q", "--runtime", build + "/runtime/libgpushare.so.1", self.hog],
                       check=True, timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for guard in self.guards():
            self.kill(guard)
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
        self.kill_daemons()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill_daemons(self):
        """Also one that a program has started, which may be quicker than ours."""
        for pid in daemons_of(self.socket):
            self.kill(pid)

    @staticmethod
    def kill(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def write_starter(self, environment):
        """The daemon that a program starts: gpushare keeps the environment from it, and its guards need the simulated driver's."""
        path = self.folder + "/lockd.sh"
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("#!/bin/sh\n")
            for name, value in environment.items():
                if name.startswith("SIMCUDA_") or name == "GPUSHARE_GUARD_SOCKET":
                    file.write(f"export {name}={shlex.quote(value)}\n")
            file.write(f'exec {self.build}/lockd/gpushare-lockd "$@"\n')
        os.chmod(path + ".new", 0o755)
        os.rename(path + ".new", path)

    def spawn(self, command, environment=None, **more):
        self.write_starter({**self.environment, **(environment or {})})
        child = subprocess.Popen(command, env={**self.environment, **(environment or {})}, **more)
        self.children.append(child)
        return child

    def start_daemon(self, **environment):
        with open(self.folder + "/log", "ab") as log:
            self.daemon = self.spawn([self.build + "/lockd/gpushare-lockd", "--socket", self.socket, "--quantum", "200", *self.options], environment,
                                     stderr=log)
        wait_for(lambda: can_connect(self.socket), PATIENCE, "the daemon")

    def said(self):
        with open(self.folder + "/log", encoding="utf-8", errors="replace") as log:
            return log.read()

    def start_hog(self, share="0.5", path=None, **environment):
        """A program that works on its memory and checks it, until end_hog()."""
        return self.spawn([path or self.hog, "--share", share, "--rounds", "1000000", "--chunk", "8MiB",
                           "--quiet"], environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def end_hog(hog):
        """After one more look at all of its memory, which was right: what it printed on its standard error."""
        hog.send_signal(signal.SIGINT)
        out, err = hog.communicate(timeout=PATIENCE)
        assert hog.returncode == 0 and "ok " in out, f"exit {hog.returncode}: {out}{err}"
        return err

    def await_use(self, process, card):
        """Until the daemon knows it there, with its memory."""
        wait_for(lambda: self.state(process, card).get("demand", 0) >= 4 << 20, PATIENCE, f"process {process.pid} on card {card}")

    def devices(self):
        """Of `status --json`; beside it may be a remark of NVML's, where the machine is busy. []: no daemon is running."""
        done = subprocess.run([self.build + "/lockd/gpusharectl", "status", "--json"], env=self.environment, capture_output=True,
                              text=True, timeout=PATIENCE)
        return json.loads(done.stdout).get("devices", []) if done.returncode == 0 else []

    def state(self, process, card):
        """What the daemon says of it; {}: it is not there, or no daemon is running (a program is starting one, say)."""
        time.sleep(0.05)  # it is asked for in loops, on machines with two cores
        devices = self.devices()
        return next((p for d in devices if d["uuid"] == uuid(card) for p in d["programs"] if p["pid"] == process.pid), {})

    def show(self):
        """All cards, as soon as none is being made."""
        done = None

        def look():
            nonlocal done
            done = subprocess.run([self.build + "/tests/simcuda/simcuda-card"], env=self.environment, capture_output=True,
                                  text=True)
            return done.returncode == 0
        wait_for(look, PATIENCE, "the cards to be shown")
        return done.stdout

    def used(self, process, card):
        """Bytes that the process has on the card; memory that could be handed over is on no account."""
        units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
        parts = re.split(r"^card \d+: .*$", self.show(), flags=re.MULTILINE)
        found = re.search(rf"pid {process.pid} +\S+ +([\d.]+) (\S+)", parts[card + 1]) if card + 1 < len(parts) else None
        return int(float(found[1]) * units[found[2]]) if found else 0

    def ctl(self, *arguments):
        done = subprocess.run([self.build + "/lockd/gpusharectl", *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def move(self, process, card):
        return self.ctl("move", str(process.pid), uuid(card))

    def start_move(self, process, card):
        return self.spawn([self.build + "/lockd/gpusharectl", "move", str(process.pid), uuid(card)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)

    def guards(self):
        """Process ids of guards of our programs."""
        pids = "|".join(str(child.pid) for child in self.children)
        return [int(pid) for pid in subprocess.run(["pgrep", "-f", f"gpushare-lockd --guard ({pids})$"], capture_output=True,
                                                   text=True).stdout.split()]


class Service:
    """What systemd does for gpushare-guard.socket: a guard for each connection."""

    def __init__(self, cards):
        self.cards = cards
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(cards.environment["GPUSHARE_GUARD_SOCKET"])
        self.listener.listen(8)
        self.listener.settimeout(PATIENCE)

    def serve_one(self):
        connection, _ = self.listener.accept()
        with connection:
            connection.setblocking(True)
            return self.cards.spawn([self.cards.build + "/lockd/gpushare-lockd", "--guard-connection"], stdin=connection)

    def close(self):
        self.listener.close()
