#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs some of whose calls go past gpushare: no memory of theirs moves, no answer is wrong, it is said once.
test_past.py --build DIR

past_host loads libraries (past_library.c), of which some are patched. Where the program itself is patched, all of them are
routed, but not those that prefer their own symbols.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import MIB, BuildTest, Card, Told, main  # noqa: E402

KINDS = ("imports", "looks_up", "asks", "in_data")
WHOLE = 16 * MIB


class Host(Told):
    """past_host with one patched library loaded; the program itself is patched if it says so."""

    def __init__(self, card, patched=False, **more):
        self.build = card.build
        program = os.path.join(card.build, "tests", "runtime", "past_host")
        if patched:
            program = self.patch(card, program)
        super().__init__(card, command=(program,), **more)

    @staticmethod
    def patch(card, file):
        copy = os.path.join(card.folder, "patched_" + os.path.basename(file))
        subprocess.run([os.path.join(card.build, "rewriter", "gpushare-patch"), "-q", "--any", "--runtime",
                        os.path.join(card.build, "runtime", "libgpushare.so.1"), "-o", copy, file],
                       env={**card.environment, "GPUSHARE_STATE": card.folder}, check=True)
        return copy

    def library(self, kind):
        return os.path.join(self.build, "tests", "runtime", f"libpast_{kind}.so")

    def load(self, kind, patched=False, how="load"):
        path = self.library(kind)
        answer = self.say(f"{how} {self.patch(self.card, path) if patched else path}")
        assert answer == "loaded", answer

    def notes(self):
        return [note["text"] for note in self.card.status().get("notes", []) if note["pid"] == self.child.pid]


class Past(BuildTest):
    def suspend(self, card, host, command="suspend"):
        subprocess.run([os.path.join(self.build, "lockd", "gpusharectl"), "--socket", card.socket, command, str(host.child.pid)],
                       env=card.environment, check=True, stdout=subprocess.DEVNULL)

    def expect_partial(self, host, what):
        """Partly covered, all memory on the card and pinned, said once with the object's or the function's name."""
        entry = host.until(lambda entry: entry["partial"] and entry["pinned"] >= WHOLE)
        self.assertTrue(entry["partial"] and entry["pinned"] >= WHOLE and entry["demand"] == 0, entry)
        notes = host.notes()
        self.assertEqual(len(notes), 1, notes)
        self.assertRegex(notes[0], "partly covered, memory not moved.*" + re.escape(what))

    def test_library_that_is_loaded_first(self):
        for kind in KINDS:
            for routed in ("looks_up", "asks"):
                with self.subTest(kind=kind, routed=routed), Card(self.build) as card:
                    host = Host(card)
                    host.load(kind)
                    host.load(routed, patched=True)
                    self.assertEqual(host.say("alloc 16"), "0")
                    self.expect_partial(host, f"libpast_{kind}.so")
                    self.suspend(card, host)
                    host.until(lambda entry: entry["paused"])
                    host.say("use 0")
                    self.assertEqual(host.say("check"), "0 7")
                    self.expect_partial(host, f"libpast_{kind}.so")

    def test_library_that_is_loaded_when_memory_is_out(self):
        for kind in KINDS[1:]:
            with self.subTest(kind=kind), Card(self.build) as card:
                host = Host(card)
                host.load("looks_up", patched=True)
                self.assertEqual(host.say("alloc 16"), "0")
                self.suspend(card, host)
                host.until(lambda entry: entry["moved_out"] >= WHOLE and entry["resident"] == 0)
                host.load(kind)
                self.assertEqual(host.say("check"), "0 7")  # at once: it has come back
                self.expect_partial(host, f"libpast_{kind}.so")
                out = host.entry()["moved_out"]
                self.suspend(card, host)
                self.assertEqual(host.say("check"), "0 7")
                self.assertEqual(host.entry()["moved_out"], out)

    def test_copies_of_another_patched_library_wait_until_the_program_is_resumed(self):
        for kind in KINDS:
            with self.subTest(kind=kind), Card(self.build) as card:
                host = Host(card)
                host.load("looks_up", patched=True)
                self.assertEqual(host.say("alloc 16"), "0")
                host.load(kind, patched=True)
                self.suspend(card, host)
                host.until(lambda entry: entry["moved_out"] >= WHOLE and entry["resident"] == 0)
                host.tell("check")
                self.assertEqual(host.answer(0.3), "no answer")  # on a slow machine it may not even have begun
                self.assertEqual(host.entry()["resident"], 0)
                self.suspend(card, host, "resume")
                self.assertEqual(host.answer(), "0 7")
                entry = host.until(lambda entry: entry["resident"] >= WHOLE)
                self.assertTrue(entry["resident"] >= WHOLE and not entry["partial"], entry)

    def test_imports_behind_a_patched_library_are_routed(self):
        with Card(self.build) as card:
            host = Host(card)
            host.load("looks_up", patched=True)
            host.load("imports")
            self.assertEqual(host.say("alloc 16"), "0")
            self.suspend(card, host)
            entry = host.until(lambda entry: entry["moved_out"] >= WHOLE)
            self.assertTrue(entry["moved_out"] >= WHOLE and not entry["partial"], entry)
            self.assertEqual(host.notes(), [])

    def test_patched_program_routes_all(self):
        for kind in KINDS:
            with self.subTest(kind=kind), Card(self.build) as card:
                host = Host(card, patched=True)
                host.load(kind)
                self.assertEqual(host.say("alloc 16"), "0")
                self.suspend(card, host)
                entry = host.until(lambda entry: entry["moved_out"] >= WHOLE)
                self.assertTrue(entry["moved_out"] >= WHOLE and not entry["partial"], entry)
                self.assertEqual(host.notes(), [])

    def test_library_that_prefers_its_own_symbols(self):
        for kind in ("asks", "imports"):
            with self.subTest(kind=kind), Card(self.build) as card:
                host = Host(card, patched=True)
                host.load("looks_up")
                self.assertEqual(host.say("alloc 16"), "0")
                self.suspend(card, host)
                host.until(lambda entry: entry["moved_out"] >= WHOLE and entry["resident"] == 0)
                host.load(kind, how="deep")
                self.assertEqual(host.say("check"), "0 7")
                self.expect_partial(host, f"libpast_{kind}.so")

    def test_other_programs_run_beside_it(self):
        with Card(self.build, memory="64MiB", **Told.SMALL_CONTEXTS) as card:
            host, other = Host(card), Host(card)
            host.load("imports")
            host.load("looks_up", patched=True)
            self.assertEqual(host.say("alloc 16"), "0")
            self.expect_partial(host, "libpast_imports.so")
            other.load("looks_up", patched=True)
            self.assertEqual(other.say("alloc 24"), "0")
            third = Host(card)
            third.load("asks", patched=True)
            self.assertEqual(third.say("alloc 24"), "0")  # takes turns with the second
            for program in (host, other, third):
                self.assertEqual(program.say("check"), "0 7")
            self.expect_partial(host, "libpast_imports.so")

    def test_function_of_the_future(self):
        for late in (False, True):
            with self.subTest(late=late), Card(self.build, SIMCUDA_FUTURE="cuFutureCopy") as card:
                host = Host(card, patched=True)
                host.load("asks")
                self.assertEqual(host.say("alloc 16"), "0")
                if late:
                    self.suspend(card, host)
                    host.until(lambda entry: entry["moved_out"] >= WHOLE and entry["resident"] == 0)
                for _ in range(3):
                    self.assertEqual(host.say("given cuFutureCopy 14000"), "0 7")
                self.expect_partial(host, "cuFutureCopy")
                self.suspend(card, host)
                host.until(lambda entry: entry["paused"])
                self.assertEqual(host.say("given cuFutureCopy 14000"), "0 7")
                self.expect_partial(host, "cuFutureCopy")

    def test_strict_refuses_it(self):
        with Card(self.build, SIMCUDA_FUTURE="cuFutureCopy", GPUSHARE_STRICT="1") as card:
            host = Host(card, patched=True)
            host.load("asks")
            self.assertEqual(host.say("alloc 16"), "0")
            self.assertEqual(host.say("given cuFutureCopy 14000"), "-1 0")
            self.suspend(card, host)
            entry = host.until(lambda entry: entry["moved_out"] >= WHOLE)
            self.assertTrue(entry["moved_out"] >= WHOLE and not entry["partial"], entry)

    def test_doctor_names_object_and_remedy(self):
        with Card(self.build) as card:
            host = Host(card)
            host.load("imports")
            host.load("looks_up", patched=True)
            self.assertEqual(host.say("alloc 16"), "0")
            self.expect_partial(host, "libpast_imports.so")
            done = subprocess.run([os.path.join(self.build, "lockd", "gpusharectl"), "--socket", card.socket, "doctor",
                                   str(host.child.pid)], env=card.environment, capture_output=True, text=True, check=False)
            self.assertRegex(done.stdout, r"warn .*partly covered.*libpast_imports\.so.*gpushare-patch")


if __name__ == "__main__":
    main()
