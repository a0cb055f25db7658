#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to "running without sharing": the program's calls come back, its bytes are right, and the reason is said once.

test_alone.py --build DIR; see alone.c. The table at the end of this file lists the ways; runtime/client/session.c and client.c say them.
"""
import concurrent.futures
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import OPTIONS, BuildTest, Card, Told, main, sanitized  # noqa: E402

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
        said = told.child.stderr.readline().decode()  # once it has waited for one for as long as a daemon may be away
        answers = [told.say("check", PATIENCE), told.say("alloc 8"), told.say("free 0"), told.say("check")]
        return 0, "ok\n" if answers == ["ok"] * 4 else str(answers), said + told.end(silent=False), time.monotonic() - start


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


class Alone(BuildTest):
    def test_every_way(self):
        names = [name for name in WAYS if OPTIONS.only in name and not (sanitized(self.build) and name in OWN_PTHREAD_CREATE)]
        self.assertTrue(names)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of them only wait
            for name, (code, out, err, seconds) in zip(names, pool.map(lambda name: attempt(self.build, name), names)):
                with self.subTest(name):
                    self.assertEqual((code, out), (0, "ok\n"), f"{seconds:.1f} s, {err.strip()}")
                    said = [line for line in err.splitlines() if "running without sharing" in line]
                    self.assertEqual(len(said), 1, said)
                    self.assertIn(WAYS[name][1], said[0])

    def test_slow_context(self):
        """A context may take longer to make than a daemon has for its answer: nothing has been asked until then."""
        code, out, err, _ = with_daemon(self.build, SIMCUDA_SLOW="cuDevicePrimaryCtxRetain:6000")
        self.assertEqual((code, out, err), (0, "ok\n", ""))


if __name__ == "__main__":
    main(only="")
