#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to "running without sharing": the program's calls come back, its bytes are right, and the reason is said once.

test_alone.py --build DIR; see alone.c. The table at the end of this file lists the ways; runtime/client/session.c and client.c say them.
"""
import argparse
import concurrent.futures
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import Card, Told, check, failures, sanitized  # noqa: E402

PATIENCE = 100  # seconds, on a busy machine; the library gives up after 5


class Listener:
    """In the daemon's place: takes connections and says nothing; ends: and hangs up at once."""

    def __init__(self, path, ends):
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server.bind(path)
        self.server.listen(8)
        self.ends = ends
        self.taken = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            if self.ends:
                connection.close()
            else:
                self.taken.append(connection)


def run(build, card, words, **more):
    """What it said, and how long it took."""
    start = time.monotonic()
    code, out, err = card.run([os.path.join(build, "tests", "runtime", "alone"), words], timeout=PATIENCE, **more)
    return code, out, err, time.monotonic() - start


def no_daemon(build, words="work", **more):
    with Card(build, daemon=False) as card:
        return run(build, card, words, **{name: value.format(folder=card.folder) for name, value in more.items()})


def listener(build, ends):
    with Card(build, daemon=False) as card:
        there = Listener(card.socket, ends)
        try:
            return run(build, card, "work")
        finally:
            there.server.close()


def refused(build):
    with Card(build, options=["--max-programs", "1"]) as card:
        first = Told(card)
        assert first.say("zero 4") == "ok"
        said = run(build, card, "work")
        first.end()
        return said


def lost(build):
    """The daemon ends while this program's memory is in host memory, and no other one can be started."""
    start = time.monotonic()
    with Card(build, **Told.SMALL_CONTEXTS) as card:
        told = Told(card, GPUSHARE_LOCKD="/nonexistent")
        other = Told(card, GPUSHARE_LOCKD="/nonexistent")
        assert told.say("alloc 20") == "ok"
        told.make_room(other)
        other.end()
        card.stop_daemon()
        answers = [told.say("check", PATIENCE), told.say("alloc 8"), told.say("free 0"), told.say("check")]
        return 0, "ok\n" if answers == ["ok"] * 4 else str(answers), told.end(silent=False), time.monotonic() - start


# The way there: what brings a program there; what it says.
WAYS = {
    "no thread": (lambda build: no_daemon(build, GS_THREADS="0"), "cannot start a thread"),
    "no thread, a daemon": (lambda build: with_daemon(build, GS_THREADS="0"), "cannot start a thread"),
    "no descriptor": (lambda build: no_daemon(build, "numbers"), "Too many open files"),
    "no program of the daemon": (lambda build: no_daemon(build, GPUSHARE_LOCKD="/nonexistent"), "is not a program"),
    "a daemon that cannot start": (lambda build: no_daemon(build, GPUSHARE_LOCKD="/bin/false"), "could not be started"),
    "a path that is none": (lambda build: no_daemon(build, GPUSHARE_SOCKET="lockd.sock"), "not the full path"),
    "a folder that is none": (lambda build: no_daemon(build, GPUSHARE_SOCKET="/dev/null/lockd.sock"), "Not a directory"),
    "a daemon that says nothing": (lambda build: listener(build, False), "does not answer"),
    "a daemon that hangs up": (lambda build: listener(build, True), "ends before it answers"),
    "a daemon that refuses": (refused, "refuses it"),
    "a daemon that ends, and no other": (lost, "is not a program"),
}
OWN_PTHREAD_CREATE = ("no thread", "no thread, a daemon")  # which a sanitizer does not let a program have


def with_daemon(build, **more):
    with Card(build) as card:
        return run(build, card, "work", **more)


def attempt(build, name):
    try:
        return WAYS[name][0](build)
    except Exception as error:  # pylint: disable=broad-except  # of whatever kind: this way failed, the others go on
        return -1, f"{type(error).__name__}: {error}", "", 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    names = [name for name in WAYS if args.only in name and not (sanitized(args.build) and name in OWN_PTHREAD_CREATE)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of them only wait
        for name, (code, out, err, seconds) in zip(names, pool.map(lambda name: attempt(args.build, name), names)):
            check(code == 0 and out == "ok\n", f"{name}: {seconds:.1f} s, exit {code}: {out.strip()} {err.strip()}")
            said = [line for line in err.splitlines() if "running without sharing" in line]
            check(len(said) == 1 and WAYS[name][1] in said[0], f"{name}: said {said}")
    sys.exit(1 if failures or not names else 0)


main()
