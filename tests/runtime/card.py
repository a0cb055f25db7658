# SPDX-License-Identifier: Apache-2.0
"""A simulated card of its own with its own gpushare-lockd, for the tests of runtime/ (standard library only)."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time


class Card:
    """with Card(build, memory="64MiB") as card: card.start([...]); everything is ended and removed at the end."""

    def __init__(self, build, memory="64MiB", daemon=True, **environment):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="gs-rt-")
        self.socket = os.path.join(self.folder, "lockd.sock")
        self.lockd = os.path.join(build, "lockd", "gpushare-lockd")
        self.children = []
        self.daemon = None
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
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_daemon(self):
        """Returns when one listens: ours, or one that a program was quicker to start (ours then ends with 1)."""
        self.daemon = subprocess.Popen([self.lockd, "--foreground", "--socket", self.socket, "--log-level", "error"],
                                       env=self.environment, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 20
        while not os.path.exists(self.socket):
            code = self.daemon.poll()
            if code is not None:
                said = self.daemon.stderr.read()
                if "another gpushare-lockd serves" not in said:
                    raise RuntimeError(f"{self.lockd} ended with {code}: {said}")
                return
            if time.monotonic() > until:
                raise RuntimeError(f"{self.lockd} does not come up")
            time.sleep(0.01)

    def stop_daemon(self, how=signal.SIGTERM):
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(how)
            self.daemon.wait(timeout=20)
        self.daemon = None

    def daemon_pids(self):
        """The daemons that serve this card's socket: by their command line, which names our own temporary folder."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0].endswith("gpushare-lockd") and self.socket in words:
                found.append(int(entry))
        return found

    def start(self, command, **more):
        environment = dict(self.environment)
        environment.update(more)
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def run(self, command, timeout=60, **more):
        child = self.start(command, **more)
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err

    def status(self):
        ctl = os.path.join(self.build, "lockd", "gpusharectl")
        done = subprocess.run([ctl, "--socket", self.socket, "status", "--json"], env=self.environment,
                              capture_output=True, text=True, timeout=20, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None
