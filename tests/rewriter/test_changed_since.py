#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A patched file that others have changed since: stripped, edited, appended to, with the note of another build."""
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tool
from tool import LOADS, OPTIONS, Case, run


class ChangedSince(Case):
    def test_changed_after_patch_is_not_restored(self):
        path = self.build("a")
        self.assertEqual(run(*self.runtime, path)[0], 0)
        data = bytearray(open(path, "rb").read())
        data[len(data) // 3] ^= 1
        open(path, "wb").write(data)
        self.refused(path, 3, "its loaded part is no longer the original's", "--restore")

    def stripped(self, *command):
        """(what the command makes of the original, the patched file after the same command)."""
        path, wanted = self.build("a", LOADS, "-g"), self.path("wanted")
        shutil.copy(path, wanted)
        self.assertEqual(run(*self.runtime, path)[0], 0)
        for file in (wanted, path):
            subprocess.run([*command, file], check=True, stderr=subprocess.DEVNULL)
        return wanted, path

    def test_stripped_after_patch_is_restored_as_strip_would_have_made_it(self):
        for command in (["strip"], ["strip", "--strip-debug"], ["objcopy", "-S"], ["eu-strip"], ["llvm-strip"],
                        ["llvm-strip", "--strip-debug"]):
            if not shutil.which(command[0]):
                continue
            with self.subTest(command):
                wanted, path = self.stripped(*command)
                report = json.loads(run("--check", "--json", path)[1])
                self.assertEqual((report["patched"], report["restorable"]), (True, True))
                self.assertIn("already patched", run(*self.runtime, path)[1])
                self.assertEqual(run("--restore", "--dry-run", path)[0], 0)
                self.assertEqual(run("--restore", path)[0], 0)
                self.assertEqual(open(path, "rb").read(), open(wanted, "rb").read())
                self.assertEqual(run("--check", path)[0], 4)

    def fragile(self):
        """A library whose program headers can only move to the end: strip breaks it."""
        script = subprocess.run(["ld", "-shared", "--verbose"], stdout=subprocess.PIPE, check=True).stdout.decode().split("=" * 50 + "\n")[1]
        line, at = next(l for l in script.splitlines() if l.startswith("  .rodata  ")), script.index("  .note.gnu.build-id")
        with open(self.path("script"), "w") as out:
            out.write(script[:at].replace(line, "") + line + "\n" + script[at:].replace(line, ""))
        return self.build("a.so", LOADS, "-shared", "-fPIC", "-Wl,-T," + self.path("script"))

    def test_quiet_still_warns_of_strip(self):
        path = self.fragile()
        for options in (["--dry-run"], []):
            status, out, errors = run("-q", *options, *self.runtime, path)
            self.assertEqual((status, out, errors), (0, "", f"{path}: note: strip would break this file from now on; strip it before patching\n"))
        self.assertEqual(run("-q", *self.runtime, path), (0, "", ""))  # patched already
        self.assertEqual(run("-q", *self.runtime, self.build("b")), (0, "", ""))

    def test_what_strip_broke_is_told_from_other_damage(self):
        path = self.fragile()
        self.assertEqual(run(*self.runtime, path)[0], 0)
        subprocess.run(["strip", path], check=True, stderr=subprocess.DEVNULL)
        if subprocess.run([sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", path], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0:  # binutils 2.44 leaves the program headers where they are
            self.assertEqual(run("--check", path)[0], 0)
            self.assertIn("already patched", run(*self.runtime, path)[1])
            self.refused(path, 3, "cannot be restored", "--restore")
            return
        for options in (["--check"], ["--restore"], []):
            self.refused(path, 3, "strip or objcopy ran after it was patched and broke it", *options)
        self.assertIn("broke it", json.loads(run("--check", "--json", path)[1])["problem"])

    def test_stripped_after_patch_is_not_patched_anew(self):
        path = self.stripped("strip")[1]
        os.mkdir(self.path("other"))
        other = shutil.copy(OPTIONS.runtime, self.path("other/libgpushare.so.1"))
        self.refused(path, 3, "restore it with --restore", "--runtime", other)

    def test_edited_after_patch_is_not_patched_anew(self):
        path, other = self.build("a", LOADS, "-Wl,-rpath,/nowhere/long"), self.path("other/libgpushare.so.1")
        before = open(path, "rb").read()
        os.mkdir(self.path("other"))
        shutil.copy(OPTIONS.runtime, other)
        self.assertEqual(run(*self.runtime, path)[0], 0)
        patched = open(path, "rb").read()
        at, tag = patched.rindex(b"/nowhere/long\0"), patched.index(b"\x1d" + b"\0" * 7)  # in .dynstr; DT_RUNPATH in .dynamic
        for edited in (patched[:at] + b"/x\0" + patched[at + 3:], patched[:tag] + b"\x0f" + patched[tag + 1:]):
            open(path, "wb").write(edited)
            self.assertIn("already patched", run(*self.runtime, path)[1])
            self.refused(path, 3, "edited after it was patched", "--runtime", other)
        open(path, "wb").write(patched[:at] + b"/x\0" + patched[at + 3:])
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(open(path, "rb").read(), before)

    def test_without_the_runtime_library_it_is_not_called_patched(self):
        path = self.build("a")
        run(*self.runtime, path)
        data = open(path, "rb").read()
        name = OPTIONS.runtime.encode() + b"\0"
        open(path, "wb").write(data.replace(name, name[:-2] + b"9\0", 1))  # the first is the loader's, the second the marker's
        for args in (["--check"], self.runtime):
            status, out, errors = run(*args, path)
            self.assertEqual((status, out, "no longer loads" in errors), (3, "", True), (args, errors))
        report = json.loads(run("--check", "--json", path)[1])
        self.assertEqual((report["exit"], report["patched"], "no longer loads" in report["problem"]), (3, True, True))
        open(path, "wb").write(data[:-1000])  # the section headers
        status, out, errors = run("--check", path)
        self.assertEqual((status, out, "damaged" in errors), (3, "", True), errors)

    def test_note_of_another_build_is_told_from_damage(self):
        path = self.build("a")
        self.assertEqual(run(*self.runtime, path)[0], 0)
        data = open(path, "rb").read()
        for old, new, text in ((b"gpushare-undo-4", b"gpushare-undo-3", "restore it with that version"),
                               (b"gpushare-undo-4", b"gpushare-xxxx-4", "its undo note is gone")):
            self.assertEqual(data.count(old), 1)
            open(path, "wb").write(data.replace(old, new))
            self.refused(path, 3, text, "--restore")
            self.refused(path, 3, text)
            status, out, _ = run("--check", path)
            self.assertEqual((status, "runtime " + OPTIONS.runtime in out, "--restore says why" in out), (0, True, True), out)

    def test_stripped_and_changed_is_not_restored(self):
        path = self.stripped("strip")[1]
        data = bytearray(open(path, "rb").read())
        at = data.index(b"libcuda.so.1")
        data[at] ^= 1
        open(path, "wb").write(data)
        self.refused(path, 3, "its loaded part is no longer the original's", "--restore")
        data[at] ^= 1
        open(path, "wb").write(data + b"payload")
        self.refused(path, 3, "data was appended", "--restore")

    def test_appended_to_after_patch_is_not_restored(self):
        path = self.build("a")
        self.assertEqual(run(*self.runtime, path)[0], 0)
        with open(path, "ab") as out:
            out.write(b"payload")
        self.refused(path, 3, "data was appended", "--restore")


if __name__ == "__main__":
    tool.main()
