#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of another user that answer every target and lie in their reports, beside a real program on the simulated card: it gets
on, all its bytes are right, and status names a program whose reports contradict the card. With NVIDIA's management library, and
without. As root, who can be two users.

test_liars.py --build DIR [--reports N] [--seed S] [--liars N]: N reports with random fields, one after the other, beside the real program.
--compare SECONDS [--kind KIND]: how many rounds the program makes beside each kind of liar, and beside an honest program of its size."""
import ctypes
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../runtime")]
from card import MIB, OPTIONS, BuildTest, Card, main, wait_for  # noqa: E402
from fake import MOVING, PARTIAL, RUNNING, SHORT, STUCK, WANT, Program, state  # noqa: E402
from other_user import AS_OTHER_USER  # noqa: E402  (tests)

CARD = 256 * MIB
SIZE = CARD * 7 // 10  # of the real program


def kept(program):
    """Takes memory in its turn, as far as it says, and never gives it back."""
    program.demand = CARD * 15 // 16
    program.resident = max(program.resident, min(program.demand, program.target.budget if program.target else 0))
    return {"demand": program.demand, "resident": program.resident, "flags": WANT if program.resident < program.demand else 0}


LIES = {
    "free": {"free": 0},
    "short": {"flags": WANT | SHORT | RUNNING, "short": CARD, "demand": MIB, "resident": MIB},
    "pinned": {"pinned": CARD * 15 // 16, "shared": CARD * 15 // 16},
    "host": {"host_used": 1 << 40, "host_wanted": 1 << 40},
    "total": {"total": 1 << 40},
    "small": {"total": MIB},
    "demand": {"demand": 1 << 45, "flags": WANT},
    "resident": {"demand": CARD * 15 // 16, "resident": CARD * 15 // 16},
    "kept": kept,
}
MANY = 100
YOUNG = 12  # seconds: for 10 s a new program goes first; a window in that time says nothing of honest programs
NAMED = ("kept",)  # contradicts the card beside any program; the other lies are not believed anyway
BYTES = (0, MIB, 16 * MIB, CARD // 2, CARD * 15 // 16, CARD, 4 * CARD, 1 << 45)


def wakes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


def random_lie(dice):
    def size():
        return dice.choice((*BYTES, dice.randrange(CARD)))
    pinned, host = size(), size()
    return {"flags": sum(flag for flag in (RUNNING, WANT, MOVING, STUCK, SHORT, PARTIAL) if dice.random() < 0.4),
            "total": dice.choice((CARD, CARD, CARD, 1, MIB, CARD // 2, 1 << 45)), "free": dice.choice((2**64 - 1, size())), "demand": size(),
            "resident": size(), "short": size(), "pinned": pinned, "shared": dice.choice((0, pinned)), "host_used": host,
            "host_wanted": size(), "out": size(), "moved_in": size(), "calls": dice.randrange(1 << 20), "switch_ns": dice.randrange(1 << 40)}


def take_memory(build, environment, bytes_):
    """The process has so much of the simulated card, for as long as it lives."""
    os.environ.update(environment)
    cuda = ctypes.CDLL(os.path.join(build, "tests", "simcuda", "libcuda.so.1"))
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
                   cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(bytes_))):
        if result != 0:
            raise OSError(f"CUresult {result}")


def lie_on(path, uuid, count, kind, reports, seed):
    """Lies until it is killed, or has made so many reports (0: any number): each connection about ten times a second, and to each target.
    kind: also a list of what each connection says."""
    dice = random.Random(seed)
    programs = [Program(path, f"liar{number}") for number in range(count)]
    lies = [{} for _ in programs]
    made = 0

    def say(number):
        program = programs[number]
        if isinstance(kind, list):
            lies[number] = kind[number]
        elif kind != "random":
            lies[number] = LIES[kind](program) if callable(LIES[kind]) else LIES[kind]
        elif dice.random() < 0.3:  # some lies last
            lies[number] = random_lie(dice)
        told = program.target.seq if program.target else 0
        seq = told if kind != "random" or dice.random() < 0.8 else max(0, told - dice.randrange(4))
        program.socket.settimeout(None)
        program.socket.send(state(**{"total": CARD, **lies[number], "seq": seq, "uuid": uuid}))

    while reports == 0 or made < reports:
        heard = select.select([program.socket for program in programs], [], [], 0 if reports else 0.1)[0]
        for number, program in enumerate(programs):
            answers = 0
            while program.socket in heard and answers < 16 and program.hear(0) is not None:
                answers += 1
            for _ in range(max(1, answers)):
                say(number)
                made += 1


class Scene(Card):
    """A card with a daemon that serves another user, too."""

    def __init__(self, test, nvml):
        super().__init__(test.build, memory=str(CARD), daemon=False, SIMCUDA_CONTEXT_MEMORY="4MiB",
                         SIMCUDA_KERNELS=os.path.join(test.build, "samples", "hog_standin.so"))
        self.test, self.liars = test, []
        if nvml:
            self.environment["LD_LIBRARY_PATH"] += ":" + os.path.join(test.build, "tests", "simcuda", "nvml")
        os.chown(self.folder, 0, AS_OTHER_USER["group"])
        os.chmod(self.folder, 0o710)
        self.start_daemon()
        self.hog = os.path.join(self.folder, "hog")
        subprocess.run([os.path.join(test.build, "rewriter", "gpushare-patch"), "-q", "-o", self.hog,
                        os.path.join(test.build, "samples", "hog")], check=True)

    def __exit__(self, *unused):
        self.end_liars()
        super().__exit__(*unused)

    def end_liars(self):
        for pid in self.liars:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.liars = []

    def victim(self, *options, size=SIZE, **more):
        return self.start([self.hog, "--bytes", str(size), "--chunk", "16MiB", *options], **more)

    def uuid(self):
        """The card's, from the first program on it."""
        first = self.victim("--rounds", "1000000", "--seconds", "600", "--quiet", size=MIB)
        wait_for(lambda: self.status()["devices"])
        found = self.status()["devices"][0]["uuid"]
        first.kill()
        first.communicate()
        return bytes.fromhex(found.removeprefix("GPU-").replace("-", ""))

    def lie(self, count, kind, reports=0, seed=1, holds=0):
        """holds: bytes of the card that the liars' process really has."""
        uuid = self.uuid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.nice(10 if OPTIONS.compare else 0)
                if holds:
                    take_memory(self.build, self.environment, holds)
                os.setgroups([])
                os.setresgid(*[AS_OTHER_USER["group"]] * 3)
                os.setresuid(*[AS_OTHER_USER["user"]] * 3)
                lie_on(self.socket, uuid, count, kind, reports, seed)
                code = 0
            except (EOFError, OSError) as end:
                print("the daemon hung up on the liar:", repr(end), file=sys.stderr)
            finally:
                os._exit(code)
        self.liars.append(pid)
        self.test.assertTrue(wait_for(lambda: sum(program["name"].startswith("liar") for program in self.programs()) == count))

    def programs(self):
        return [program for device in self.status()["devices"] for program in device["programs"]]

    def named(self):
        """Whether status says that a liar's reports are not used."""
        return any(remark["name"].startswith("liar") and "contradict" in remark["text"] for remark in self.status()["notes"])

    def neighbour(self):
        """An honest program of the victim's size in a container, which is another user's for the daemon; the card is root's alone."""
        root = "/sys/fs/cgroup/pids" if os.path.isdir("/sys/fs/cgroup/pids") else "/sys/fs/cgroup"
        group = os.path.join(root, f"{os.getpid():064x}")
        os.makedirs(group, exist_ok=True)
        self.freezers.add(group)

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        return self.start([self.hog, "--bytes", str(SIZE), "--chunk", "16MiB", "--rounds", "1000000", "--seconds", "3600", "--quiet"], prepare=enter)


class Rounds:
    """A program that works all the time, and how often it got through its memory."""

    def __init__(self, scene):
        self.child = scene.victim("--rounds", "1000000", "--seconds", "3600", "--json")
        self.made = 0
        threading.Thread(target=self.count, daemon=True).start()

    def count(self):
        for line in self.child.stdout:
            self.made += line.startswith('{"round"')

    def during(self, seconds):
        time.sleep(YOUNG)
        before = self.made
        time.sleep(seconds)
        return self.made - before


class LiarsTest(BuildTest):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")

    def assert_right(self, program):
        out, err = program.communicate(timeout=600)
        self.assertEqual((program.returncode, err), (0, ""), out)

    def test_program_beside_each_kind_of_liar(self):
        for nvml, count, kind in [(nvml, count, kind) for nvml in (True, False) for count in (OPTIONS.liars, MANY) for kind in LIES]:
            if OPTIONS.kind not in ("", kind) or not (nvml or OPTIONS.kind or OPTIONS.all or kind in ("free", "resident", "kept")):
                continue  # --all 1: each kind without NVML, too
            if count == MANY and kind not in ("short", "kept"):
                continue
            with self.subTest(kind=kind, count=count, nvml=nvml), Scene(self, nvml) as scene:
                scene.lie(count, kind)
                if kind == "kept":
                    self.assertTrue(wait_for(lambda: any(program["resident"] > CARD // 2 for program in scene.programs())))
                self.assert_right(scene.victim("--rounds", "10", "--quiet"))
                self.assertEqual(os.waitpid(scene.liars[0], os.WNOHANG), (0, 0), "the liar is gone")
                if kind in NAMED:
                    beside = scene.victim("--rounds", "1000000", "--seconds", "600", "--quiet")
                    self.assertTrue(wait_for(scene.named))
                    beside.kill()

    def test_process_with_two_connections(self):
        """They have what the card shows of their process, together. Each claims all of it: status names them. The parts need not be equal."""
        holds = 64 * MIB
        for parts, wrong in (((holds, holds), True), ((holds * 3 // 4, holds // 4), False)):
            with self.subTest(parts=parts), Scene(self, True) as scene:
                scene.lie(2, [{"demand": part, "resident": part} for part in parts], holds=holds)
                beside = scene.victim("--rounds", "1000000", "--seconds", "600", "--quiet", size=32 * MIB)
                self.assertTrue(wait_for(lambda: any(program["pid"] == beside.pid and program["resident"] for program in scene.programs())))
                if wrong:
                    self.assertTrue(wait_for(scene.named))
                else:
                    time.sleep(5)  # five questions
                    self.assertFalse(scene.named())
                self.assertEqual(os.waitpid(scene.liars[0], os.WNOHANG), (0, 0), "the liar is gone")
                beside.kill()

    def test_library_that_never_answers(self):
        """The daemon looks for the answer ever more rarely, not each 20 ms."""
        with Scene(self, False) as scene:
            scene.stop_daemon()
            scene.environment["LD_LIBRARY_PATH"] += ":" + os.path.join(self.build, "tests/lockd/ctl/nvml")
            scene.environment.update(FAKE_NVML="GPU-00010203-0405-0607-0809-0a0b0c0d0e0f:0", FAKE_NVML_FAULT="hang-asked")
            scene.start_daemon()
            scene.lie(1, "free")
            scene.victim("--rounds", "2", "--cpu-ms", "3600000", "--quiet")  # it idles after the first
            self.assertTrue(wait_for(lambda: len(scene.programs()) == 2))

            def wakes_in_four_seconds():
                before = wakes(scene.daemon.pid)
                time.sleep(4)
                return wakes(scene.daemon.pid) - before
            self.assertTrue(wait_for(lambda: wakes_in_four_seconds() < 120))  # each 20 ms: 200; some 40 are the reports of the other program

    def test_program_beside_random_lies(self):
        for nvml in (True, False):
            with self.subTest(nvml=nvml), Scene(self, nvml) as scene:
                scene.lie(OPTIONS.liars, "random", OPTIONS.reports, OPTIONS.seed)
                programs, slowest, ended = 0, 0, (0, 0)
                while ended == (0, 0):
                    began = time.monotonic()
                    self.assert_right(scene.victim("--rounds", "10", "--quiet"))
                    programs, slowest = programs + 1, max(slowest, time.monotonic() - began)
                    ended = os.waitpid(scene.liars[0], os.WNOHANG)
                scene.liars.clear()
                self.assertEqual(ended[1], 0)
                print(f"{programs} programs beside {OPTIONS.reports} reports, the slowest took {slowest:.1f} s; nvml: {nvml}", file=sys.stderr)

    def test_compare(self):
        """One program, beside an honest one and beside liars by turns, so that whatever else the machine does concerns both. All but the liars
        go before what else runs there. A window begins when a new program is young no more."""
        if OPTIONS.compare == 0:
            self.skipTest("takes long: --compare SECONDS")
        os.nice(-10)
        for nvml, kind, count in [(nvml, kind, count) for nvml in (True, False) for kind in (*LIES, "random") for count in (1, 2, MANY)]:
            if OPTIONS.kind not in ("", kind):
                continue
            with self.subTest(kind=kind, count=count, nvml=nvml), Scene(self, nvml) as scene:
                honest, lying = [], []
                rounds = Rounds(scene)
                self.assertTrue(wait_for(lambda: rounds.made != 0))
                for _ in range(3):
                    other = scene.neighbour()
                    self.assertTrue(wait_for(lambda: any(program["pid"] == other.pid and program["resident"] != 0 for program in scene.programs())))
                    honest.append(rounds.during(OPTIONS.compare))
                    other.kill()
                    other.communicate()
                    scene.lie(count, kind)
                    lying.append(rounds.during(OPTIONS.compare))
                    named = scene.named()
                    scene.end_liars()
                self.assertIsNone(rounds.child.poll())
                least = 0.9 * statistics.median(honest)
                print(f"{count} x {kind}, nvml {nvml}: {lying} rounds, beside an honest program {honest}: {0.9 * statistics.median(lying) / max(0.9, least):.2f}; "
                      f"named: {named}", file=sys.stderr)
                self.assertGreaterEqual(statistics.median(lying), least)


if __name__ == "__main__":
    main(reports=100000, seed=1, liars=2, compare=0, kind="", all=0)
