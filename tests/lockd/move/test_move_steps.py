#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves whose guard stops before each of its driver calls, so with each state of the record (lockd/protocol/move_record.h) and of
the process. There the guard, the daemon, both, or one after the other are killed. The program comes to the device that the record
tells, with all of its memory, and nothing of the move stays.

usage: test_move_steps.py BUILD-FOLDER [--verbose] [unittest options]"""
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from moving import PATIENCE, Cards, daemons_of, resume, uuid, wait_for  # noqa: E402

VERBOSE = "--verbose" in sys.argv
if VERBOSE:
    sys.argv.remove("--verbose")
BUILD = os.path.abspath(sys.argv.pop(1))
ALONE_AFTER = 5  # seconds: runtime/base/daemon.h
STATE, LOCK, CHECKPOINT, RESTORE, UNLOCK = (
    "cuCheckpointProcess" + what for what in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock"))

# The call before which the guard stops, what the record says then (None: there is none yet), and whether a guard that takes the move
# up from there finishes it on the other device.
STEPS = (
    (STATE, 1, None, False),  # whether it may be moved
    (STATE, 2, "-", False),   # it has the record
    (LOCK, 1, "C", False),
    (STATE, 3, "C", True),    # locked
    (CHECKPOINT, 1, "C", True),
    (STATE, 4, "C", True),    # checkpointed
    (STATE, 5, "T", True),
    (RESTORE, 1, "T", True),
    (STATE, 6, "T", True),    # restored
    (UNLOCK, 1, "T", True),
    (STATE, 7, "T", True),    # it runs
)
# ... where a call fails, and the program goes back. The guard that takes it up is told of no failure.
BACK = (
    (LOCK + ":1:999", STATE, 3, "B"),
    (CHECKPOINT + ":1:801", STATE, 4, "B"),
    (CHECKPOINT + ":1:801", UNLOCK, 1, "B"),
    (RESTORE + ":1:2", STATE, 6, "B"),
    (RESTORE + ":1:2", RESTORE, 2, "B"),
    (RESTORE + ":1:2", UNLOCK, 1, "B"),
    (RESTORE + ":1:2", STATE, 8, "B"),
)


# Restores the process onto the other card, as a driver does for a guard that was killed. Arguments: pid, UUIDs of both cards.
RESTORER = """
import ctypes, os, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
one, other = (bytes.fromhex(text) for text in sys.argv[2:])
pairs = ctypes.create_string_buffer(one + other + other + one)
restore = ctypes.create_string_buffer(64)
ctypes.memmove(restore, ctypes.addressof(pairs).to_bytes(8, sys.byteorder) + (2).to_bytes(4, sys.byteorder), 12)
assert driver.cuCheckpointProcessRestore(int(sys.argv[1]), restore) == 0
"""


class Scene:
    """One program on two cards, that is moved again and again."""

    def __init__(self, cards):
        self.cards = cards
        self.stop = cards.folder + "/stop"
        self.faults = cards.folder + "/faults"
        self.log = cards.folder + "/card-log"
        cards.environment.update(SIMCUDA_STOP=self.stop, SIMCUDA_FAIL=self.faults, SIMCUDA_LOG=self.log)  # also of a daemon that the program starts
        cards.start_daemon()
        self.said = cards.folder + "/hog-said"
        with open(self.said, "w", encoding="ascii") as file:
            self.hog = cards.spawn([cards.hog, "--share", "0.3", "--rounds", "100000000", "--chunk", "8MiB"], stdout=file, stderr=file)
        self.place = 0
        cards.await_use(self.hog, 0)

    def rounds(self):
        """In each it checks all of its memory."""
        with open(self.said, encoding="utf-8") as file:
            lines = file.read().splitlines()
        wrong = [line for line in lines[1:-1] if not line.startswith("round ")]
        assert not wrong, wrong
        return len(lines)

    def record(self):
        """The records that the program has; of a move that is under way one."""
        found = []
        folder = f"/proc/{self.hog.pid}/fd/"
        for fd in os.listdir(folder):
            try:
                if "gpushare-move" in os.readlink(folder + fd):
                    with open(folder + fd, "rb") as file:
                        found.append(file.read(1).decode())
            except OSError:
                continue
        return found

    def is_stopped(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "T"
        except OSError:
            return False

    def begin(self, call, nth, fail):
        """The asker, and the process (a guard, or the program) that has stopped before the call; the next guard fails in none."""
        with open(self.faults, "w", encoding="ascii") as file:
            file.write(fail)
        with open(self.stop, "w", encoding="ascii") as file:
            file.write(f"{call}:{nth}")
        asker = self.cards.start_move(self.hog, 1 - self.place)
        stopped = []

        def look():
            stopped[:] = [pid for pid in (*self.cards.guards(), self.hog.pid) if self.is_stopped(pid)]
            if asker.poll() is not None:
                raise AssertionError(f"the move ended before {call}:{nth}: {asker.communicate()[0]}{self.cards.said()[-1500:]}")
            return stopped
        wait_for(look, PATIENCE, f"it to stop before {call}:{nth}")
        os.unlink(self.faults)
        return asker, stopped[0]

    def await_guard_beside(self, guard):
        """Another one, started by a daemon that has taken the move up."""
        wait_for(lambda: [each for each in self.cards.guards() if each != guard], PATIENCE, "a guard that takes the move up")

    def await_place(self, place):
        def is_there():
            return (self.cards.state(self.hog, place).get("demand", 0) >= 4 << 20 and not self.record() and
                    self.cards.used(self.hog, place) != 0 and self.cards.used(self.hog, 1 - place) == 0)
        wait_for(is_there, PATIENCE, f"the program on card {place}: record {self.record()}\n{self.cards.show()}{self.cards.said()[-2000:]}")
        self.place = place

    def finish(self, asker):
        try:
            said = asker.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            raise AssertionError("no answer") from None
        return asker.returncode, said.strip()


def kill_guard(scene, guard):
    scene.cards.kill(guard)


def kill_daemon(scene, guard):
    """The guard goes on alone, before there is another daemon."""
    scene.cards.kill_daemons()
    os.kill(guard, signal.SIGCONT)
    scene.cards.start_daemon()


def kill_daemon_first(scene, guard):
    """The guard goes on when the next daemon has started another guard, which waits for it."""
    taken = scene.record() != []
    scene.cards.kill_daemons()
    scene.cards.start_daemon()
    if taken:
        scene.await_guard_beside(guard)
    os.kill(guard, signal.SIGCONT)


def kill_both(scene, guard):
    scene.cards.kill_daemons()
    scene.cards.kill(guard)
    scene.cards.start_daemon()


def kill_daemon_then_guard(scene, guard):
    taken = scene.record() != []
    scene.cards.kill_daemons()
    scene.cards.start_daemon()
    if taken:
        scene.await_guard_beside(guard)
    scene.cards.kill(guard)


def kill_both_and_nobody_starts_one(scene, guard):
    """The program starts the next daemon itself."""
    scene.cards.kill_daemons()
    scene.cards.kill(guard)


FATES = (kill_guard, kill_daemon, kill_daemon_first, kill_both, kill_daemon_then_guard, kill_both_and_nobody_starts_one)
LIVES = (kill_daemon, kill_daemon_first)  # the guard does


class StepsTest(unittest.TestCase):
    def scene(self, options=()):
        cards = Cards(BUILD, options)
        self.addCleanup(cards.__exit__)
        return Scene(cards)

    def go_through(self, scene, fate, fail, call, nth, record, moved):
        asker, guard = scene.begin(call, nth, fail)
        self.assertEqual(scene.record(), [record] if record else [])
        fate(scene, guard)
        code, said = scene.finish(asker)
        if fate is kill_guard:
            self.assertEqual(code, 0 if moved else 1)
            self.assertRegex(said, "moved process" if moved else "is not moved: its guard was killed")
        else:
            self.assertEqual(code, 1)
            self.assertRegex(said, "closed the connection: .*the move may continue without it")
        scene.await_place(1 - scene.place if moved else scene.place)
        wait_for(lambda: not scene.cards.guards(), PATIENCE, "the guards to end")
        rounds = scene.rounds()
        wait_for(lambda: scene.rounds() >= rounds + 3, PATIENCE, "the program to go on")
        if VERBOSE:
            print(f"{fate.__name__} before {call}:{nth}{' (' + fail + ')' if fail else ''}, record {record}: "
                  f"{'moved' if moved else 'stayed'}; {code}, {said}", flush=True)


    def test_guard_that_takes_long(self):
        """No daemon has anything to say to the program meanwhile: it does not take that for silence."""
        scene = self.scene()
        asker, guard = scene.begin(CHECKPOINT, 1, "")
        scene.cards.kill_daemons()
        scene.cards.start_daemon()
        scene.await_guard_beside(guard)
        time.sleep(ALONE_AFTER + 2)
        scene.rounds()
        for each in scene.cards.guards():
            scene.cards.kill(each)
        kill_both_and_nobody_starts_one(scene, guard)
        scene.finish(asker)
        scene.await_place(1)

    def test_room_is_kept_for_a_move_that_is_taken_up(self):
        """The daemon that comes in the middle of a move keeps the other card's programs from taking what the program needs there."""
        scene = self.scene()
        idle = scene.cards.spawn([BUILD + "/tests/runtime/moves"], {"CUDA_VISIBLE_DEVICES": "1", "SIMCUDA_STOP": "", "SIMCUDA_FAIL": ""},
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        idle.stdin.write("alloc 20\n")
        self.assertEqual(idle.stdout.readline(), "ok\n")

        def short():
            return next((d["short"] for d in scene.cards.devices() if d["uuid"] == uuid(1)), -1)
        wait_for(lambda: short() == 0, PATIENCE, "the other card to be known")
        asker, guard = scene.begin(RESTORE, 1, "")
        scene.cards.kill_daemons()
        scene.cards.start_daemon()
        scene.await_guard_beside(guard)
        wait_for(lambda: short() >= 1 << 20, PATIENCE, "room to be kept on the other card")
        os.kill(guard, signal.SIGCONT)
        scene.finish(asker)
        scene.await_place(1)
        wait_for(lambda: short() == 0, PATIENCE, "the room not to be kept any more")

    def test_restore_of_a_killed_guard_that_still_takes_place(self):
        """A driver restores in the program. The next guard's own call fails meanwhile, and is not taken for the end."""
        scene = self.scene()
        asker, guard = scene.begin(RESTORE, 1, "")
        with open(scene.faults, "w", encoding="ascii") as file:
            file.write(RESTORE + ":1:401")
        scene.cards.kill(guard)
        wait_for(lambda: os.path.exists(scene.log) and RESTORE + " failed" in open(scene.log, encoding="utf-8").read(), PATIENCE,
                 "the next guard's call to fail")
        subprocess.run([sys.executable, "-c", RESTORER, str(scene.hog.pid), *(uuid(card)[4:].replace("-", "") for card in (0, 1))],
                       env={**scene.cards.environment, "SIMCUDA_FAIL": ""}, check=True, timeout=PATIENCE)
        code, said = scene.finish(asker)
        self.assertEqual(code, 0, said)
        scene.await_place(1)

    def test_program_that_cannot_be_brought_back_keeps_no_other(self):
        scene = self.scene()
        other = scene.cards.start_hog(share="0.2")
        scene.cards.await_use(other, 0)
        with open(scene.faults, "w", encoding="ascii") as file:
            file.write(RESTORE + ":0:2")
        code, said = scene.cards.move(scene.hog, 1)
        self.assertEqual(code, 1)
        self.assertRegex(said, "waits: .*CUDA_ERROR_OUT_OF_MEMORY.*make room on either GPU")
        guards = scene.cards.guards()
        os.unlink(scene.faults)
        self.assertRegex(scene.cards.move(scene.hog, 1)[1], "another move is under way")
        self.assertEqual(scene.cards.move(other, 1)[0], 0)
        scene.cards.await_use(other, 1)
        for guard in guards:
            scene.cards.kill(guard)
        wait_for(lambda: scene.record() == [], PATIENCE, "the next guard to bring it back")
        self.assertIsNone(other.poll())

    def test_daemon_that_ends_while_memory_leaves(self):
        scene = self.scene()
        asker, program = scene.begin("cuMemUnmap", 1, "")
        self.assertEqual(program, scene.hog.pid)
        scene.cards.kill_daemons()
        os.kill(program, signal.SIGCONT)
        self.assertEqual(scene.finish(asker)[0], 1)
        wait_for(lambda: not scene.cards.guards(), PATIENCE, "the guard to end")
        scene.await_place(0)
        self.assertEqual(scene.cards.move(scene.hog, 1)[0], 0)
        scene.await_place(1)

    def test_program_that_is_stopped_while_a_guard_moves_it(self):
        scene = self.scene()
        asker, guard = scene.begin(CHECKPOINT, 1, "")
        scene.hog.send_signal(signal.SIGSTOP)
        os.kill(guard, signal.SIGCONT)
        self.assertEqual(scene.finish(asker)[0], 0)
        scene.cards.kill_daemons()
        resume(scene.hog.pid)
        scene.await_place(1)

    def test_next_daemon_that_hands_nothing_over(self):
        """Nor does it take descriptors of programs that it has not asked; the next guard needs the record."""
        scene = self.scene(["--hand-over", "no"])
        asker, guard = scene.begin(CHECKPOINT, 1, "")
        kill_both(scene, guard)
        scene.finish(asker)
        scene.await_place(1)

    def test_daemon_that_does_not_hear_the_end(self):
        scene = self.scene()
        asker, guard = scene.begin(STATE, 7, "")
        for daemon in daemons_of(scene.cards.socket):
            os.kill(daemon, signal.SIGSTOP)
        os.kill(guard, signal.SIGCONT)
        wait_for(lambda: not scene.cards.guards(), PATIENCE, "the guard to end")
        self.assertEqual(scene.record(), ["M"])
        scene.cards.kill_daemons()
        scene.finish(asker)
        scene.await_place(1)

    def test_nothing_stays(self):
        scene = self.scene()

        def count():
            return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (scene.cards.daemon.pid, scene.hog.pid)]
        before = count()
        for call, nth in ((STATE, 1), (STATE, 2), (CHECKPOINT, 1), (UNLOCK, 1)):
            asker, guard = scene.begin(call, nth, "")
            scene.cards.kill(guard)
            scene.finish(asker)
            scene.await_place(1 - scene.place if nth == 1 and call != STATE else scene.place)
        wait_for(lambda: count() == before, PATIENCE, f"descriptors {before}, not {count()}")


def add_tests():
    for fate in FATES:
        def forward(self, fate=fate):
            scene = self.scene()
            for call, nth, record, taken_up in STEPS:
                with self.subTest(call=call, nth=nth):
                    moved = record is not None and (taken_up or fate in LIVES)
                    self.go_through(scene, fate, "", call, nth, record, moved)

        def back(self, fate=fate):
            scene = self.scene()
            for fail, call, nth, record in BACK:
                with self.subTest(fail=fail, call=call, nth=nth):
                    self.go_through(scene, fate, fail, call, nth, record, False)
        setattr(StepsTest, f"test_{fate.__name__}_on_the_way", forward)
        if fate in (kill_guard, kill_daemon_first, kill_both):
            setattr(StepsTest, f"test_{fate.__name__}_on_the_way_back", back)


add_tests()
if __name__ == "__main__":
    unittest.main(warnings="ignore", failfast=True)
