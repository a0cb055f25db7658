#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs change cards while they run (`gpusharectl move`), on simulated cards: their memory is right, it lies where they
are, and who cannot be moved stays as it was.

usage: test_move.py BUILD-FOLDER [unittest options]"""
import os
import signal
import subprocess
import sys
import time
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from moving import PATIENCE, Cards, Service, resume, uuid, wait_for  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
MIB = 1 << 20


class MoveTest(unittest.TestCase):
    def cards(self, options=(), **environment):
        cards = Cards(BUILD, options, **environment)
        self.addCleanup(cards.__exit__)
        return cards

    def assert_right(self, hog):
        self.assertEqual(Cards.end_hog(hog), "")

    def assert_stays(self, cards, hog, reason, card=1):
        end, said = time.monotonic() + PATIENCE, "uses no GPU yet"
        while "uses no GPU yet" in said and time.monotonic() < end:
            code, said = cards.move(hog, card)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, reason)
        self.assertIsNone(hog.poll())

    def test_back_and_forth(self):
        cards = self.cards()
        cards.start_daemon()
        mover, other = cards.start_hog(), cards.start_hog(share="0.6")
        cards.await_use(mover, 0)
        cards.await_use(other, 0)
        for i in range(10):
            code, said = cards.move(mover, 1 - i % 2)
            self.assertEqual(code, 0, said)
            self.assertRegex(said, r"moved process \d+ from GPU-\S+ to GPU-\S+ in [\d.]+ s")
            cards.await_use(mover, 1 - i % 2)
            self.assertEqual(cards.used(mover, i % 2), 0)
        where = {d["uuid"]: [p["pid"] for p in d["programs"]] for d in cards.devices()}
        self.assertEqual(sorted(where[uuid(0)]), sorted([mover.pid, other.pid]))
        self.assertEqual(where.get(uuid(1), []), [])
        self.assert_right(mover)
        self.assert_right(other)

    def test_two_programs_change_places(self):
        """Each has more than half of its card. One move begins at a time."""
        cards = self.cards()
        cards.start_daemon()
        one = cards.start_hog(share="0.7")
        cards.await_use(one, 0)
        self.assertEqual(cards.move(one, 1)[0], 0)
        cards.await_use(one, 1)
        other = cards.start_hog(share="0.7")
        cards.await_use(other, 0)
        for hog, card in ((one, 0), (other, 1)):
            code, said = 1, "another move is under way"
            while "another move is under way" in said:
                code, said = cards.move(hog, card)
            self.assertEqual(code, 0, said)
        for hog, card in ((one, 0), (other, 1)):
            cards.await_use(hog, card)
            self.assertEqual(cards.used(hog, 1 - card), 0)
        self.assert_right(one)
        self.assert_right(other)

    def test_stopped_program_stays(self):
        """By a signal; it continues as if nobody had asked for a move."""
        cards = self.cards()
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        hog.send_signal(signal.SIGSTOP)
        code, said = cards.move(hog, 1)
        self.assertEqual(code, 1)
        self.assertRegex(said, "it does not (answer|stop)")  # on a busy machine its answer may have been under way
        resume(hog.pid)
        code, said = cards.move(hog, 1)
        self.assertEqual(code, 0, said)
        self.assert_right(hog)

    def test_daemon_that_hands_nothing_over(self):
        """It takes no descriptors that it has not asked for: the record of the move is one that it has."""
        cards = self.cards(options=["--hand-over", "no"])
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        code, said = cards.move(hog, 1)
        self.assertEqual(code, 0, said)
        cards.await_use(hog, 1)
        self.assert_right(hog)

    def start_idle(self, cards, mib, **environment):
        """A patched program that computes nothing and has so much memory on the second card. It does what it is told by lines."""
        idle = cards.spawn([BUILD + "/tests/runtime/moves"], {"CUDA_VISIBLE_DEVICES": "1", **environment}, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True, bufsize=1)
        self.tell(idle, f"alloc {mib}")
        wait_for(lambda: cards.state(idle, 1).get("resident", 0) >= mib * MIB, PATIENCE, "its memory to be on the second card")
        return idle

    def tell(self, idle, command):
        idle.stdin.write(command + "\n")
        self.assertEqual(idle.stdout.readline(), "ok\n", command)

    def test_room_is_made(self):
        """The other card is full of an idle program's memory, which leaves; it comes back as it was."""
        cards = self.cards(options=["--reserve", "0"])
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        idle = self.start_idle(cards, 54)
        code, said = cards.move(hog, 1)
        self.assertEqual(code, 0, said)
        cards.await_use(hog, 1)
        self.tell(idle, "check")
        self.assert_right(hog)

    def test_room_that_is_not_there(self):
        """The other card is full of memory that cannot leave: the program is not stopped, and the others have their memory again."""
        cards = self.cards(options=["--reserve", "0"])
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        idle = self.start_idle(cards, 2)
        taker = cards.spawn([BUILD + "/tests/runtime/moves"], {"CUDA_VISIBLE_DEVICES": "1", "GPUSHARE_DISABLE": "1"}, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, bufsize=1)
        self.tell(taker, "alloc 50")
        self.assert_stays(cards, hog, "cannot create a CUDA context on that GPU: CUDA_ERROR_OUT_OF_MEMORY|there is no room on that GPU")
        self.assertEqual(cards.state(hog, 0).get("state"), "runs")
        self.tell(idle, "check")
        self.assert_right(hog)

    def test_who_cannot_be_moved_stays(self):
        cards = self.cards()
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        self.assert_stays(cards, hog, "it uses that GPU already", 0)
        self.assert_stays(cards, hog, "it does not see that GPU", 5)
        self.assertEqual(cards.ctl("move", str(os.getpid()), uuid(1))[0], 4)
        self.assertEqual(cards.ctl("move", str(hog.pid), "GPU-5158")[0], 1)
        self.assertEqual(cards.ctl("move", str(hog.pid))[0], 2)
        taker = cards.start_hog(share="0.9", path=BUILD + "/samples/hog", CUDA_VISIBLE_DEVICES="1")
        wait_for(lambda: cards.used(taker, 1) > 58 * MIB, PATIENCE, "it to take the other card")
        self.assert_stays(cards, hog, "cannot create a CUDA context on that GPU: CUDA_ERROR_OUT_OF_MEMORY|there is no room on that GPU")
        taker.kill()
        taker.wait()
        ranks = [cards.start_hog(share="0.1", GPUSHARE_GROUP="job") for _ in range(2)]
        for rank in ranks:
            cards.await_use(rank, 0)
        self.assert_stays(cards, ranks[0], "gang")
        hidden = cards.start_hog(share="0.1", CUDA_VISIBLE_DEVICES="0")
        cards.await_use(hidden, 0)
        self.assert_stays(cards, hidden, "CUDA_VISIBLE_DEVICES")
        native = cards.start_hog(share="0.1", GPUSHARE_MEMORY="native")
        wait_for(lambda: cards.state(native, 0), PATIENCE, "it to be known")
        self.assert_stays(cards, native, "its memory is not moved")
        for each in (hog, hidden, native, *ranks):
            self.assert_right(each)

    def test_memory_beyond_the_card_stays(self):
        cards = self.cards(SIMCUDA_CONTEXT_MEMORY="64KiB")  # else the program takes all of the card before the daemon notices its context
        cards.start_daemon()
        hog = cards.start_hog(share="0.7", GPUSHARE_OVERCOMMIT="64MiB")
        cards.await_use(hog, 0)
        wait_for(lambda: cards.state(hog, 0).get("over", 0) > 0, PATIENCE, "memory beyond the card")
        self.assert_stays(cards, hog, "it has memory beyond the card")
        self.assert_right(hog)

    def test_driver_that_is_too_old(self):
        cards = self.cards()
        cards.start_daemon(SIMCUDA_FAIL="cuDriverGetVersion:1:3")  # as one that says nothing
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        self.assert_stays(cards, hog, "this driver cannot move programs: 13.0.*gpushare-guard.socket")
        self.assert_right(hog)

    def test_failing_driver_calls(self):
        for call, said in (("cuCheckpointProcessLock:1:999", "it cannot be locked: CUDA_ERROR_UNKNOWN"),
                           ("cuCheckpointProcessCheckpoint:1:801", "it cannot be checkpointed: CUDA_ERROR_NOT_SUPPORTED"),
                           ("cuCheckpointProcessRestore:1:2", "it cannot be restored on that GPU: CUDA_ERROR_OUT_OF_MEMORY")):
            cards = self.cards()
            cards.start_daemon(SIMCUDA_FAIL=call)
            hog = cards.start_hog()
            cards.await_use(hog, 0)
            self.assert_stays(cards, hog, said)
            cards.await_use(hog, 0)
            self.assertEqual(cards.used(hog, 1), 0)
            self.assert_right(hog)

    def test_neither_here_nor_there_for_a_while(self):
        cards = self.cards()
        cards.start_daemon(SIMCUDA_FAIL="cuCheckpointProcessRestore:1:2,cuCheckpointProcessRestore:2:2")
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        code, said = cards.move(hog, 1)
        self.assertEqual(code, 1)
        self.assertRegex(said, r"waits: cuCheckpointProcessRestore: CUDA_ERROR_OUT_OF_MEMORY.*make room on either GPU")
        self.assertIn("the process is checkpointed", cards.said())
        cards.await_use(hog, 1)
        self.assertIn("was moved", cards.said())
        self.assertIn("cannot be brought back", cards.ctl("status")[1])
        self.assert_right(hog)

    def test_guard_of_the_service(self):
        cards = self.cards()
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        service = Service(cards)
        self.addCleanup(service.close)
        started = []
        thread = threading.Thread(target=lambda: started.append(service.serve_one()))
        thread.start()
        code, said = cards.move(hog, 1)
        thread.join()
        self.assertEqual(code, 0, said)
        self.assertEqual(started[0].wait(PATIENCE), 0)
        cards.await_use(hog, 1)
        self.assert_right(hog)

    def test_paused_before_is_paused_after(self):
        cards = self.cards()
        cards.start_daemon()
        hog = cards.start_hog()
        cards.await_use(hog, 0)
        self.assertEqual(cards.ctl("pause", str(hog.pid))[0], 0)
        self.assertEqual(cards.move(hog, 1)[0], 0)

        def state():
            return [(d["uuid"], p["state"]) for d in cards.devices() for p in d["programs"]]
        wait_for(lambda: state() == [(uuid(1), "paused")], PATIENCE, "it to be paused on the other card")
        self.assertEqual(cards.used(hog, 1) >> 20, 6)  # a context and an edge
        self.assertEqual(cards.ctl("resume", str(hog.pid))[0], 0)
        self.assert_right(hog)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
