#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cancelled threads: no call of the driver becomes a cancellation point by gpushare. test_cancel.py --build DIR

First a program whose cancelled threads wait at the gate: all come back from their calls, and when it sleeps it counts as idle.
Then the programs of other tests with cancel_points.c in front of them, which looks at every call into libc that could end a thread.
"""
import os
import re
import select
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import PATIENCE, BuildTest, Card, Told, check, main, sanitized  # noqa: E402

# pthreads(7) and glibc's SYSCALL_CANCEL; those that the library does not use need not be in cancel_points.c
CANCELLATION_POINTS = set("""
    accept accept4 aio_suspend clock_nanosleep close connect copy_file_range creat epoll_pwait epoll_wait fallocate fclose fcntl fdatasync
    fopen fsync getmsg getpmsg getrandom lockf mkostemp mkostemps mkstemp mq_receive mq_send mq_timedreceive mq_timedsend msgrcv msgsnd
    msync nanosleep open open64 openat openat2 pause poll popen posix_fallocate ppoll pread preadv preadv2 pselect pthread_cond_clockwait
    pthread_cond_timedwait pthread_cond_wait pthread_join pthread_testcancel pthread_timedjoin_np pwrite pwritev pwritev2 read readv recv
    recvfrom recvmmsg recvmsg select sem_clockwait sem_timedwait sem_wait send sendmmsg sendmsg sendto sigpause sigsuspend sigtimedwait
    sigwait sigwaitinfo sleep splice sync_file_range syslog system tcdrain tee usleep vmsplice wait wait3 wait4 waitid waitpid write
    writev""".split())


def comes_back(build):
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        card.set("quantum", "200")
        threads = subprocess.Popen([os.path.join(build, "tests", "runtime", "cancel"), "6"], env=card.environment, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        card.children.append(threads)
        other = Told(card)
        check(other.say("alloc 40") == "ok", "another program that does not fit beside it")
        until = time.monotonic() + 5  # turns come and go meanwhile
        while time.monotonic() < until and threads.poll() is None:
            other.say("check")
        ready, _, _ = select.select([threads.stdout], [], [], PATIENCE)
        said = threads.stdout.readline().split() if ready else ["nothing"]
        check(len(said) > 3 and said[0] == said[2] != "0", f"cancelled threads: {' '.join(said)}")
        if not ready:
            return
        assert threads.stdout.readline() == "idle\n"
        idle_beside(card, threads, other)
        threads.stdin.write("\n")
        threads.stdin.flush()
        check(threads.wait(timeout=PATIENCE) == 0, f"it ended with {threads.returncode}")
        other.end()


def idle_beside(card, threads, other):
    """A program that sleeps wants no turns. Looked at for longer than it takes to say so."""
    def entry():
        return [program for device in card.status()["devices"] for program in device["programs"] if program["pid"] == threads.pid][0]

    until = time.monotonic() + PATIENCE
    turns = -1
    while time.monotonic() < until:
        known = entry()
        other.say("check", 10)
        if known["state"] == "idle" or (known["state"] == "waits" and known["resident"] == 0):
            turns = known["turns"]
        time.sleep(0.1)
        if turns >= 0:
            break
    states = set()
    for _ in range(30):
        other.say("check", 10)
        states.add(entry()["state"])
        time.sleep(0.1)
    check(states == {"idle"}, f"it sleeps, and is {states}")
    check(entry()["turns"] == turns, f"it sleeps, and had {entry()['turns'] - turns} turns")


def symbols(path, *options):
    done = subprocess.run(["nm", "-D", *options, path], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def all_are_seen(build):
    """What the library imports of them is looked at: else the checks below would see nothing of it."""
    used = symbols(os.path.join(build, "runtime", "libgpushare.so.1"), "--undefined-only") & CANCELLATION_POINTS
    watched = symbols(os.path.join(build, "tests", "runtime", "libcancel_points.so"), "--defined-only")
    check(len(used) > 10 and used <= watched, f"{len(used)} cancellation points in the library; not in cancel_points.c: {used - watched}")


def look_at(build, title, scene, least, memory="64MiB"):
    """scene(card, environment) under cancel_points.c: at least so many calls were seen, and none of them with cancellation enabled."""
    with Card(build, memory=memory, **Told.SMALL_CONTEXTS) as card:
        points = os.path.join(card.folder, "points")
        scene(card, {"LD_PRELOAD": os.path.join(build, "tests", "runtime", "libcancel_points.so"), "GS_CANCEL_POINTS": points,
                     "GPUSHARE_LOG": os.path.join(card.folder, "log")})
        with open(points, encoding="ascii") as file:
            said = file.read()
    seen = sum(int(number) for number in re.findall(r"^seen (\d+)$", said, re.MULTILINE))
    enabled = sorted(set(re.findall(r"^enabled (.*)$", said, re.MULTILINE)))
    check(seen >= least and not enabled, f"{title}: {seen} calls looked at; with cancellation enabled: {', '.join(enabled)}")


def case(build, program, name):
    def scene(card, environment):
        code, out, err = card.run([os.path.join(build, "tests", "runtime", program), name], timeout=300, **environment)  # as the programs' own alarm
        if code != 0:
            check(False, f"{program} {name}: exit {code}: {out}{err}")
    return scene


def there_and_back(card, environment):
    """In turns, with memory on its way; some of it in a file."""
    environment = {**environment, "GPUSHARE_SPILL": card.folder, "GPUSHARE_STATS": os.path.join(card.folder, "stats")}
    told, other = Told(card, **environment), Told(card, **environment)
    assert told.say("alloc 10") == "ok"
    told.make_room(other)
    assert [told.say(f"alloc {mib}") for mib in (10, 20)] == ["ok"] * 2 and told.say("limit 14") == "ok"
    for _ in range(2):
        told.make_room(other)
        assert told.say("check") == "ok"
    told.end()
    other.end()


class Cancel(BuildTest):
    def test_threads_come_back(self):
        comes_back(self.build)

    def watched(self):
        if sanitized(self.build):
            self.skipTest("there the library is in the program, and the sanitizer in front of libc")

    def test_all_points_are_watched(self):
        self.watched()
        all_are_seen(self.build)

    def test_there_and_back(self):
        self.watched()
        look_at(self.build, "moves", there_and_back, 100)

    def test_programs_of_other_tests(self):
        self.watched()
        for program, names in (("calls", ("frees", "fork", "destroy_beside")), ("lives", ("destructors", "reset", "fork_beside", "many_streams")),
                               ("pools", ("order_large", "wait_behind", "graph")), ("mappings", ("ring", "mixed"))):
            for name in names:
                with self.subTest(program=program, name=name):
                    look_at(self.build, f"{program} {name}", case(self.build, program, name), 5, "512MiB")


if __name__ == "__main__":
    main()
