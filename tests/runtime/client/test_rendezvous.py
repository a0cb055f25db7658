# SPDX-License-Identifier: Apache-2.0
"""One daemon for one user, however its programs were started: with XDG_RUNTIME_DIR, without, with one that is not there or another
user's; beside a service, and many at once. Needs root, for a /run of its own and a user that nobody else is. test_rendezvous.py --build DIR"""
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
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import BuildTest, check, main, private_run  # noqa: E402

USER = 61000 + os.getpid() % 1900 * 2  # of this run alone: it has a place in /tmp
OTHER = USER + 1
PATIENCE = 120
SYSTEM, USUAL, COMMON = "/run/gpushare", f"/run/user/{USER}", f"/tmp/gpushare-{USER}"


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.02)


def folder_of(uid, path, mode=0o700, gid=None):
    os.makedirs(path)
    os.chown(path, uid, gid if gid is not None else uid)
    os.chmod(path, mode)
    return path


class Scene:
    """with Scene(build): copies of the programs that the user can run, a card, nothing in the places; at the end no daemon."""

    def __init__(self, build):
        self.build, self.programs, self.services = build, [], []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="gs-rendezvous-", dir="/tmp")
        os.chmod(self.folder, 0o755)
        for name in ("lockd/gpushare-lockd", "lockd/gpusharectl", "tests/runtime/moves", "runtime/libgpushare.so.1",
                     "tests/simcuda/libcuda.so.1"):
            shutil.copy(os.path.join(self.build, name), self.folder)
        self.runtime = folder_of(USER, f"{self.folder}/runtime")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSHARE_", "SIMCUDA_", "XDG_"))}
        self.environment.update(LD_LIBRARY_PATH=self.folder, GPUSHARE_LOCKD=f"{self.folder}/gpushare-lockd", SIMCUDA_MEMORY="256MiB",
                                SIMCUDA_CARD=folder_of(USER, f"{self.folder}/card"), TSAN_OPTIONS="die_after_fork=0",
                                ASAN_OPTIONS="detect_leaks=0:handle_segv=0:use_sigaltstack=0")
        return self

    def __exit__(self, *unused):
        for program in self.programs:
            program.kill()
            program.communicate()
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        for service in self.services:
            service.wait()
        wait_for(lambda: not self.daemons(), "the daemons to go")
        for path in (self.folder, COMMON, SYSTEM, USUAL):
            shutil.rmtree(path, ignore_errors=True)

    def daemons(self):
        """The user's and root's, of our copy."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/exe").removesuffix(" (deleted)") == f"{self.folder}/gpushare-lockd":
                    found.append(int(entry))
            except OSError:
                continue
        return found

    def start(self, **more):
        program = subprocess.Popen([f"{self.folder}/moves"], env={**self.environment, **more}, user=USER, group=USER, extra_groups=[],
                                   cwd="/", text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.programs.append(program)
        program.stdin.write("alloc 10\n")
        return program

    def answered(self, program):
        ready, _, _ = select.select([program.stdout], [], [], PATIENCE)
        return ready and program.stdout.readline() == "ok\n"

    def said(self, program):
        """Ends it; what it said on stderr."""
        self.programs.remove(program)
        return program.communicate(timeout=PATIENCE)[1]

    def status(self, *options, **more):
        return subprocess.run([f"{self.folder}/gpusharectl", "status", *options], env={**self.environment, **more}, user=USER, group=USER,
                              extra_groups=[], cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False)

    def known(self, **more):
        """The pids that the daemon knows, as gpusharectl sees it with that environment; and the daemon's."""
        done = self.status("--json", **more)
        if done.returncode != 0:
            return set(), 0
        answer = json.loads(done.stdout)
        if not answer["running"]:
            return set(), 0
        return {p["pid"] for d in answer["devices"] for p in d["programs"]}, answer["daemon"]["pid"]

    def service(self, group):
        """A daemon of root's at /run/gpushare for members of the group."""
        if not os.path.exists(SYSTEM):
            folder_of(0, SYSTEM, 0o755, group)
        service = subprocess.Popen([f"{self.folder}/gpushare-lockd", "--socket", f"{SYSTEM}/lockd.sock", "--log-level", "error"],
                                   env=self.environment)
        self.services.append(service)

        def serves():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
                return caller.connect_ex(f"{SYSTEM}/lockd.sock") == 0
        wait_for(serves, "the service")
        return service


def meet(scene, title, *environments, daemon=None):
    """Programs with these environments, one after the other, are known to one and the same daemon, whoever asks for it."""
    for each in environments:
        if not scene.answered(scene.start(**each)):
            check(False, f"{title}: the program with {each} answers")
    pids = {program.pid for program in scene.programs}
    answers = [scene.known(**each) for each in environments]
    first = answers[0][1] if daemon is None else daemon
    check(all(answer == (pids, first) for answer in answers), f"{title}: all {len(pids)} meet at daemon {first}: {answers}")
    check(len(scene.daemons()) == 1 + len([s for s in scene.services if s.pid != first and s.poll() is None]),
          f"{title}: one daemon: {scene.daemons()}")
    said = [scene.said(program) for program in list(scene.programs)]
    check(not any(said), f"{title}: nothing is said: {said}")


class Rendezvous(BuildTest):
    @classmethod
    def setUpClass(cls):
        if not private_run():
            raise unittest.SkipTest("it takes root and mount namespaces")
        shutil.rmtree(COMMON, ignore_errors=True)  # of a run that was killed

    def setUp(self):
        self.scene = Scene(self.build).__enter__()
        self.addCleanup(self.scene.__exit__)

    def test_with_and_without(self):
        meet(self.scene, "first with XDG_RUNTIME_DIR, then without", {"XDG_RUNTIME_DIR": self.scene.runtime}, {})

    def test_without_and_with(self):
        meet(self.scene, "first without XDG_RUNTIME_DIR, then with", {}, {"XDG_RUNTIME_DIR": self.scene.runtime})

    def test_strange_runtime_folders(self):
        others = folder_of(OTHER, f"{self.scene.folder}/others")
        meet(self.scene, "XDG_RUNTIME_DIR that is not there, or another user's", {"XDG_RUNTIME_DIR": "/run/user/99999"},
             {"XDG_RUNTIME_DIR": others}, {"XDG_RUNTIME_DIR": "relative"}, {"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": "/dev/null"})

    def test_taken_folder_in_tmp(self):
        folder_of(OTHER, COMMON, 0o777)
        folder_of(USER, USUAL)
        meet(self.scene, "somebody has taken our folder in /tmp", {}, {"XDG_RUNTIME_DIR": USUAL}, {"XDG_RUNTIME_DIR": "/run/user/99999"})

    def test_no_place_at_all(self):
        folder_of(OTHER, COMMON, 0o777)
        program = self.scene.start()
        check(self.scene.answered(program), "no place at all: the program goes on")
        said = self.scene.said(program)
        check(said.count("\n") == 1 and f"{COMMON} belongs to user {OTHER}" in said, f"no place at all: the reason is said once: {said!r}")

    def test_service_for_all(self):
        service = self.scene.service(USER)
        meet(self.scene, "a service", {"XDG_RUNTIME_DIR": self.scene.runtime}, {}, daemon=service.pid)

    def test_service_for_others(self):
        self.scene.service(OTHER)
        done = self.scene.status()
        check(done.returncode == 3 and "may not connect to the service" in done.stderr,
              f"a service for others: gpusharectl says so: {done.returncode} {done.stderr!r}")
        meet(self.scene, "a service for others", {"XDG_RUNTIME_DIR": self.scene.runtime}, {})

    def test_dead_service(self):
        service = self.scene.service(USER)
        service.kill()
        service.wait()
        check(os.path.exists(f"{SYSTEM}/lockd.sock"), "a dead service: its socket is there")
        meet(self.scene, "a dead service", {"XDG_RUNTIME_DIR": self.scene.runtime}, {})

    def test_service_that_comes_later(self):
        programs = [self.scene.start(XDG_RUNTIME_DIR=self.scene.runtime), self.scene.start()]
        check(all(self.scene.answered(program) for program in programs) and len(self.scene.daemons()) == 1, "a service that comes later: one daemon before")
        service = self.scene.service(USER)
        wanted = {program.pid for program in programs}
        wait_for(lambda: self.scene.known() == (wanted, service.pid), "the programs to go over to the service")
        wait_for(lambda: self.scene.daemons() == [service.pid], "the user's daemon to leave")
        for program in programs:
            program.stdin.write("alloc 10\n")
        check(all(self.scene.answered(program) for program in programs), "a service that comes later: the programs go on")
        said = [self.scene.said(program) for program in programs]
        check(not any(said), f"a service that comes later: nothing is said: {said}")

    def test_many_at_once(self):
        environments = [{"XDG_RUNTIME_DIR": self.scene.runtime}, {}, {"XDG_RUNTIME_DIR": "/run/user/99999"}] * 3
        for turn in range(5):
            programs = [self.scene.start(**each) for each in environments]
            pids = {program.pid for program in programs}
            check(all(self.scene.answered(program) for program in programs), f"many at once, {turn}: all go on")
            wait_for(lambda: all(self.scene.known(**each)[0] == pids for each in environments), f"all programs to be known: {self.scene.known()}")
            wait_for(lambda: len(self.scene.daemons()) == 1, f"one daemon: {self.scene.daemons()}")
            said = [self.scene.said(program) for program in programs]
            check(not any(said), f"many at once, {turn}: one daemon, nothing is said: {said}")
            for pid in self.scene.daemons():
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not self.scene.daemons(), "the daemon to go")


if __name__ == "__main__":
    main()
