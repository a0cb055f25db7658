#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the single cases of calls.c and pools.c on a simulated card, and checks what they say on stderr. test_calls.py --build DIR"""
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import PATIENCE, BuildTest, Card, Told, check, daemon_script, main, sanitized, wait_for  # noqa: E402


def run_case(build, case, daemon=True, memory="128MiB", timeout=PATIENCE, silent=True, program="calls", **more):
    """One case; its stderr must be empty unless silent is False. Returns stderr."""
    with Card(build, memory=memory, daemon=daemon) as card:
        try:
            code, out, err = card.run([os.path.join(build, "tests", "runtime", program), case], timeout=timeout, **more)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{case} {more}: hangs") from late
        check(code == 0 and out == "", f"{case} {more}: exit {code}: {out}{err}")
        check(not silent or err == "", f"{case} {more}: said {err}")
    return err


def same_answers(build):
    """driver_facts prints the same with and without gpushare, but for what may differ."""
    said = []
    for preload in ("", "libgpushare.so.1"):
        with Card(build, memory="256MiB") as card:
            facts = os.path.join(build, "tests", "gpu", "driver_facts")
            # the test's own way in front of a program that was not prepared; nobody else's
            code, out, err = card.run([facts], LD_PRELOAD=preload and os.path.join(build, "runtime", preload))
            check(code == 0 and err == "", f"driver_facts with {preload or 'nothing'}: exit {code}: {err}")
            said.append([line for line in out.splitlines() if line.startswith("~code ") or not line.startswith("~")])
    check(len(said[0]) > 100, f"driver_facts said only {len(said[0])} lines")
    for own, ours in zip(*said):
        check(own == ours, f"the driver says {own!r}, gpushare {ours!r}")
    check(len(said[0]) == len(said[1]), "not the same number of answers")


def never_seen(build):
    """A handle of ours does not get to a driver, which would take it for a pointer of its own."""
    with Card(build, memory="128MiB") as card:
        log = os.path.join(card.folder, "driver.log")
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "mappings"), "tiles"], SIMCUDA_LOG=log)
        check(code == 0 and out + err == "", f"tiles: exit {code}: {out}{err}")
        with open(log, encoding="utf-8") as file:
            said = [line for line in file if "cuMemMapArrayAsync" in line]
        check(len(said) == 1 and "NOT_SUPPORTED" in said[0], f"the driver was asked for arrays: {said}")


def few_driver_calls(build):
    """A large allocation takes two calls for each of its chunks of 128 MiB, and a few, six of them for what lies beside it."""
    with Card(build, memory="4GiB", daemon=False, SIMCUDA_POISON="0", GPUSHARE_QUIET="1",
              GPUSHARE_LOCKD="/nonexistent") as card:
        stats = os.path.join(card.folder, "stats")
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "calls"), "large"], SIMCUDA_STATS=stats)
        check(code == 0 and out + err == "", f"large: exit {code}: {out}{err}")
        with open(stats, encoding="utf-8") as file:
            calls = json.load(file)["calls"]
        check(3 * 18 <= calls < 3 * 48,  # the client thread asks now and then as well
              f"3 allocations of 1 GiB took {calls} driver calls")
        print(f"3 allocations of 1 GiB: {calls} driver calls in all")


def absent_daemon(build):
    """Nobody to ask and nobody to start: the program runs, and says so once."""
    err = run_case(build, "sizes", daemon=False, silent=False, GPUSHARE_LOCKD="/nonexistent")
    check(err.count("running without sharing") == 1 and err.count("\n") == 1, f"without a daemon it said: {err!r}")
    err = run_case(build, "sizes", daemon=False, GPUSHARE_LOCKD="/nonexistent", GPUSHARE_QUIET="1")
    check(err == "", "GPUSHARE_QUIET=1 is not silent")


def given_back(build):
    """An allocation that finds no room while another thread gives some back waits for that."""
    with Card(build, memory="128MiB", daemon=False, GPUSHARE_QUIET="1", GPUSHARE_LOCKD="/nonexistent") as card:
        code, out, err = card.run([os.path.join(build, "tests", "runtime", "calls"), "given_back"], SIMCUDA_SLOW="cuMemUnmap:700",
                                  SIMCUDA_LOG=os.path.join(card.folder, "driver.log"))
        check(code == 0 and out + err == "", f"given_back: exit {code}: {out}{err}")


def stopped_daemon(build):
    """One that is there and does not answer: the program goes on, and says so once; and shares when it answers again."""
    with Card(build, memory="128MiB") as card:
        for seconds in (12, 36, 108):  # on a busy machine it may be over before it has found the daemon again
            card.daemon.send_signal(signal.SIGSTOP)
            try:
                child = card.start([os.path.join(build, "tests", "runtime", "soak"), "--seconds", str(seconds), "--threads", "1",
                                    "--memory", "10MiB", "--seed", "1"])
                err = child.stderr.readline()
            finally:
                card.daemon.send_signal(signal.SIGCONT)
            check("running without sharing: gpushare-lockd does not answer" in err, f"a stopped daemon: said {err!r}")
            shares = lambda: any(device["programs"] for device in card.status()["devices"])
            wait_for(lambda: shares() or child.poll() is not None)
            shared = shares()
            out, err = child.communicate(timeout=seconds + PATIENCE)
            check(child.returncode == 0 and err == "", f"with a stopped daemon: exit {child.returncode} {out}{err}")
            if shared:
                return
        check(False, "it does not share with the daemon that is back")


def slow_daemon(build):
    """One that answers late: what can be had is known before the first allocation is accepted."""
    with Card(build, memory="128MiB") as card:
        card.daemon.send_signal(signal.SIGSTOP)
        try:
            told = Told(card)
            told.tell("zero 128")  # contexts take some of it
            time.sleep(1)  # far less than GS_ALONE_AFTER_NS
        finally:
            card.daemon.send_signal(signal.SIGCONT)
        answer = told.answer(50)  # less than GS_SHORT_LIMIT_NS
        check(answer == "error 2", f"the whole card, of a slow daemon: {answer}")
        if answer == "error 2":
            told.end()


def silent_start(build):
    """A daemon that cannot start says why on the program's stderr; with GPUSHARE_QUIET=1 nothing is said."""
    with Card(build, memory="128MiB", daemon=False) as card, open(card.socket + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [os.path.join(build, "tests", "runtime", "calls"), "sizes"]
        code, out, err = card.run(command)
        check(code == 0 and "no daemon answers" in err and "running without sharing" in err, f"a held lock: exit {code} {out}{err}")
        code, out, err = card.run(command, GPUSHARE_QUIET="1")
        check(code == 0 and err == "", f"a held lock, quietly: exit {code} {out}{err}")


def many_at_once(build):
    """Programs that start at the same moment start one daemon between them, and all share."""
    with Card(build, memory="128MiB", daemon=False) as card:
        command = [os.path.join(build, "tests", "runtime", "soak"), "--seconds", "1", "--threads", "1", "--memory",
                   "10MiB"]
        script = daemon_script(card, 600)  # it stays until we have counted
        children = [card.start(command + ["--seed", str(i)], GPUSHARE_LOCKD=script) for i in range(8)]
        for child in children:
            out, err = child.communicate(timeout=PATIENCE)
            check(child.returncode == 0 and err == "", f"one of eight at once: exit {child.returncode} {out}{err}")
        wait_for(lambda: len(card.daemon_pids()) == 1)  # those that came second may yet have to leave
        check(len(card.daemon_pids()) == 1, f"{len(card.daemon_pids())} daemons")


class Cases(BuildTest):
    """Each case of the programs calls, lives, pools and mappings by itself."""

    def cases(self, names, program="calls", **more):
        for name in names:
            with self.subTest(program=program, case=name, **more):
                run_case(self.build, name, program=program, **more)

    def test_calls(self):
        self.cases(("sizes", "frees", "attributes", "pitch", "destroy_beside", "only_queries", "fork", "child_only", "green"))
        # with a limit what is free is exact; else it changes with what contexts take of the card
        self.cases(("contexts",), GPUSHARE_DEVICE_LIMIT="120MiB")
        self.cases(("limit",), GPUSHARE_DEVICE_LIMIT="32MiB")
        self.cases(("wait", "descriptors"), daemon=False)

    def test_lives(self):
        self.cases(("capture_beside", "destructors", "fork_beside", "reset", "two_contexts", "many_streams", "fault", "share_at_once"), "lives")
        self.cases(("fault",), "lives", GPUSHARE_DISABLE="1")

    def test_nodes_for_memory_that_comes(self):
        """Programs that start together wait for their memory: each one's first call that needs it waits, too."""
        program = os.path.join(self.build, "tests", "runtime", "lives")
        with Card(self.build, memory="512MiB") as card:
            for _ in range(10):
                children = [card.start([program, "node_early"]) for _ in range(4)]
                for child in children:
                    out, err = child.communicate(timeout=PATIENCE)
                    self.assertEqual((child.returncode, out + err), (0, ""))

    def test_managed_memory_says_the_same(self):
        for more in ({"GPUSHARE_MEMORY": "managed"}, {"SIMCUDA_VMM": "0"}):
            self.cases(("sizes", "frees", "attributes", "pitch", "destroy_beside", "fork", "green"), **more)
            self.cases(("contexts",), GPUSHARE_DEVICE_LIMIT="120MiB", **more)
            self.cases(("limit",), GPUSHARE_DEVICE_LIMIT="32MiB", **more)
            self.cases(("order_small", "stream_gone", "attributes", "current", "frees", "per_thread", "graph"), "pools", **more)
            self.cases(("wait_behind",), "pools", GPUSHARE_DEVICE_LIMIT="32MiB", **more)
        self.cases(("attributes",), "mappings", memory="512MiB", GPUSHARE_MEMORY="managed")

    def test_driver_says_the_same(self):
        """What the tests believe, against the driver's own."""
        self.cases(("sizes", "frees", "attributes", "contexts", "fork", "green"), GPUSHARE_DISABLE="1")
        self.cases(("attributes", "current", "frees", "graph", "context_piece", "free_waits_here", "free_waits_beside_capture",
                    "refused_beside_capture", "pool_free_waits_not"), "pools", GPUSHARE_DISABLE="1")

    def test_pools(self):
        self.cases(("order_large", "order_small", "order_green", "stream_gone", "attributes", "threshold", "current", "most", "frees",
                    "per_thread", "graph", "context_gone", "context_piece", "free_waits_here", "free_waits_beside_capture",
                    "refused_beside_capture", "slab_of_freed"), "pools")
        self.cases(("wait_behind", "slab_behind"), "pools", GPUSHARE_DEVICE_LIMIT="32MiB")

    def test_mappings(self):
        for more in ({"GPUSHARE_DISABLE": "1"}, {}):
            self.cases(("beside", "ring", "occupied", "mixed", "part", "gap", "strangers", "freed", "attributes", "without_access", "tiles", "multicast",
                        "multicast_address", "newer_calls", "multicast_newer", "endpoint"), "mappings", memory="512MiB", **more)
            self.cases(("without_access",), "mappings", memory="512MiB", SIMCUDA_DEVICES="2", **more)

    def test_settings_that_are_wrong(self):
        for name, value in (("GPUSHARE_DEVICE_LIMIT", "0"), ("GPUSHARE_DEVICE_LIMIT", "100"), ("GPUSHARE_LOG", "/tmp"), ("GPUSHARE_MEMORY", "fast")):
            err = run_case(self.build, "frees", silent=False, **{name: value})
            self.assertEqual((err.count(f"{name}={value}"), err.count("\n")), (1, 1), err)


    def test_settings_of_its_own(self):
        """A program sets variables in its own environment, before its first call."""
        with Card(self.build, memory="128MiB") as card:
            log = os.path.join(card.folder, "log")
            code, out, err = card.run([os.path.join(self.build, "tests", "runtime", "own_settings"), "48MiB", log])
            self.assertEqual((code, out, err), (0, "48 MiB\n", ""))
            self.assertTrue(os.path.exists(log), "its log")


class Scenes(BuildTest):
    def test_same_answers(self):
        if not os.path.exists(os.path.join(self.build, "tests", "gpu", "driver_facts")) or sanitized(self.build):
            self.skipTest("there is no driver_facts that can be run here")
        same_answers(self.build)

    def test_never_seen(self):
        never_seen(self.build)

    def test_few_driver_calls(self):
        few_driver_calls(self.build)

    def test_absent_daemon(self):
        absent_daemon(self.build)

    def test_room_of_graphs(self):
        run_case(self.build, "room_of_graphs", **Told.SMALL_CONTEXTS)
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            other = Told(card)
            check(other.say("zero 4") == "ok", "4 MiB")
            code, out, err = card.run([os.path.join(self.build, "tests", "runtime", "calls"), "room_of_graphs"])
            check(code == 0 and out + err == "", f"beside another program: exit {code}: {out}{err}")
            other.end()

    def test_refused_by_a_daemon_that_hangs(self):
        """The first allocation that is refused waits for the daemon's answer; the next ones do not wait again."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told = Told(card)
            check(told.say("zero 4") == "ok", "4 MiB")
            card.daemon.send_signal(signal.SIGSTOP)
            took = []
            for _ in range(5):
                begun = time.monotonic()
                check(told.say("alloc 124") == "error 2", "more than there is")
                took.append(time.monotonic() - begun)
            card.daemon.send_signal(signal.SIGCONT)
            check(sum(took[1:]) < took[0], f"waited {took} s")
            told.end()

    def test_given_back(self):
        given_back(self.build)

    def test_stopped_daemon(self):
        stopped_daemon(self.build)

    def test_slow_daemon(self):
        slow_daemon(self.build)

    def test_silent_start(self):
        silent_start(self.build)

    def test_many_at_once(self):
        many_at_once(self.build)


if __name__ == "__main__":
    main()
