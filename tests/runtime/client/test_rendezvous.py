# SPDX-License-Identifier: Apache-2.0
"""One daemon for one user, however its programs were started: with XDG_RUNTIME_DIR, without, with one that is not there or another
user's; beside a service, and many at once. Needs root, for a /run of its own and a user that nobody else is. test_rendezvous.py --build DIR"""
import argparse
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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import check, failures  # noqa: E402

USER, OTHER = 64994, 64993
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
PATIENCE = 60
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


def with_and_without(scene):
    meet(scene, "first with XDG_RUNTIME_DIR, then without", {"XDG_RUNTIME_DIR": scene.runtime}, {})


def without_and_with(scene):
    meet(scene, "first without XDG_RUNTIME_DIR, then with", {}, {"XDG_RUNTIME_DIR": scene.runtime})


def strange_runtime_folders(scene):
    others = folder_of(OTHER, f"{scene.folder}/others")
    meet(scene, "XDG_RUNTIME_DIR that is not there, or another user's", {"XDG_RUNTIME_DIR": "/run/user/99999"},
         {"XDG_RUNTIME_DIR": others}, {"XDG_RUNTIME_DIR": "relative"}, {"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": "/dev/null"})


def taken_folder_in_tmp(scene):
    folder_of(OTHER, COMMON, 0o777)
    folder_of(USER, USUAL)
    meet(scene, "somebody has taken our folder in /tmp", {}, {"XDG_RUNTIME_DIR": USUAL}, {"XDG_RUNTIME_DIR": "/run/user/99999"})


def no_place_at_all(scene):
    folder_of(OTHER, COMMON, 0o777)
    program = scene.start()
    check(scene.answered(program), "no place at all: the program goes on")
    said = scene.said(program)
    check(said.count("\n") == 1 and f"{COMMON} belongs to user {OTHER}" in said, f"no place at all: the reason is said once: {said!r}")


def service_for_all(scene):
    service = scene.service(USER)
    meet(scene, "a service", {"XDG_RUNTIME_DIR": scene.runtime}, {}, daemon=service.pid)


def service_for_others(scene):
    scene.service(OTHER)
    done = scene.status()
    check(done.returncode == 3 and "may not connect to the service" in done.stderr,
          f"a service for others: gpusharectl says so: {done.returncode} {done.stderr!r}")
    meet(scene, "a service for others", {"XDG_RUNTIME_DIR": scene.runtime}, {})


def dead_service(scene):
    service = scene.service(USER)
    service.kill()
    service.wait()
    check(os.path.exists(f"{SYSTEM}/lockd.sock"), "a dead service: its socket is there")
    meet(scene, "a dead service", {"XDG_RUNTIME_DIR": scene.runtime}, {})


def service_that_comes_later(scene):
    programs = [scene.start(XDG_RUNTIME_DIR=scene.runtime), scene.start()]
    check(all(scene.answered(program) for program in programs) and len(scene.daemons()) == 1, "a service that comes later: one daemon before")
    service = scene.service(USER)
    wanted = {program.pid for program in programs}
    wait_for(lambda: scene.known() == (wanted, service.pid), "the programs to go over to the service")
    wait_for(lambda: scene.daemons() == [service.pid], "the user's daemon to leave")
    for program in programs:
        program.stdin.write("alloc 10\n")
    check(all(scene.answered(program) for program in programs), "a service that comes later: the programs go on")
    said = [scene.said(program) for program in programs]
    check(not any(said), f"a service that comes later: nothing is said: {said}")


def many_at_once(scene):
    environments = [{"XDG_RUNTIME_DIR": scene.runtime}, {}, {"XDG_RUNTIME_DIR": "/run/user/99999"}] * 3
    for turn in range(5):
        programs = [scene.start(**each) for each in environments]
        pids = {program.pid for program in programs}
        check(all(scene.answered(program) for program in programs), f"many at once, {turn}: all go on")
        wait_for(lambda: all(scene.known(**each)[0] == pids for each in environments), f"all programs to be known: {scene.known()}")
        wait_for(lambda: len(scene.daemons()) == 1, f"one daemon: {scene.daemons()}")
        said = [scene.said(program) for program in programs]
        check(not any(said), f"many at once, {turn}: one daemon, nothing is said: {said}")
        for pid in scene.daemons():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not scene.daemons(), "the daemon to go")


def private_run():
    libc = ctypes.CDLL(None, use_errno=True)
    return os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0 and \
        libc.mount(b"none", b"/run", b"tmpfs", 0, b"mode=755") == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    words = parser.parse_args()
    if not private_run():
        print("skipped: it takes root and mount namespaces")
        sys.exit(77)
    shutil.rmtree(COMMON, ignore_errors=True)  # of a run that was killed
    for scene in (with_and_without, without_and_with, strange_runtime_folders, taken_folder_in_tmp, no_place_at_all, service_for_all,
                  service_for_others, dead_service, service_that_comes_later, many_at_once):
        with Scene(words.build) as stage:
            try:
                scene(stage)
            except RuntimeError as error:
                check(False, f"{scene.__name__}: {error}")
    sys.exit(1 if failures else 0)


main()
