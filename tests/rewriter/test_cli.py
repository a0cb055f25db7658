#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpushare-patch answers: options, exit statuses, bad input, and that a refused file is not touched."""
import os
import random
import resource
import shutil
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
import tool
from other_user import AS_OTHER_USER, copy_for_others
from tool import DLSYM, LOADS, MAIN, OPTIONS, Case, run


class BadInput(Case):
    def test_missing(self):
        status, _, err = run(*self.runtime, self.path("nothing"))
        self.assertEqual((status, "No such file" in err), (1, True))

    def test_unreadable(self):
        path = self.build("a")
        os.chmod(path, 0)
        if os.geteuid() == 0:
            patch, runtime = copy_for_others(self, OPTIONS.patch, OPTIONS.runtime)
            os.chmod(self.folder, 0o755)
            status, _, err = run("--runtime", runtime, path, tool_path=patch, **AS_OTHER_USER)
        else:
            status, _, err = run(*self.runtime, path)
        self.assertEqual((status, "Permission denied" in err), (1, True))

    def test_message_about_a_long_or_odd_name_is_one_line_and_says_what_to_do(self):
        folder = self.folder
        while len(folder) < 3500:
            folder = os.path.join(folder, "n" * 200)
            os.mkdir(folder)
        for path in (os.path.join(folder, "s"), self.path("odd\n\x1b[31m")):
            with open(path, "w") as out:
                out.write("#!/bin/sh\n" + "exit 0\n" * 20)
            status, _, err = run(*self.runtime, path)
            self.assertEqual((status, err.count("\n"), "\x1b" in err), (3, 1, False), err)
            self.assertTrue(err.startswith("gpushare-patch: " + self.folder), err)
            self.assertTrue(err.endswith("patch the interpreter named in its first line\n"), err)

    def test_folder(self):
        status, _, err = run(*self.runtime, self.folder)
        self.assertEqual((status, "is a folder" in err), (3, True))

    def test_device(self):
        status, _, err = run(*self.runtime, "/dev/null")
        self.assertEqual((status, "not a regular file" in err), (3, True))

    def test_empty(self):
        open(self.path("empty"), "w").close()
        self.refused(self.path("empty"), 3, "not an ELF file")

    def test_text(self):
        open(self.path("text"), "w").write("hello\n" * 100)
        self.refused(self.path("text"), 3, "not an ELF file")

    def test_script(self):
        open(self.path("script"), "w").write("#!/bin/sh\n" + "exit 0\n" * 20)
        self.refused(self.path("script"), 3, "is a script")
        open(self.path("short"), "w").write("#!/bin/sh\nexec python3\n")
        self.refused(self.path("short"), 3, "is a script")
        open(self.path("cut"), "wb").write(b"\x7fELF\2\1\1" + bytes(33))
        self.refused(self.path("cut"), 3, "damaged or cut off: only 40 bytes")

    def test_socket(self):
        import socket
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.path("socket"))
            status, _, err = run(*self.runtime, self.path("socket"))
        self.assertEqual((status, "not a regular file" in err), (3, True), err)

    def test_debug_information_split_off(self):
        for command in (["objcopy", "--only-keep-debug"], ["eu-strip", "-f"]):
            if shutil.which(command[0]):
                debug = self.path("debug-" + command[0])
                program = self.build("a", LOADS, "-g")
                subprocess.run([*command, *([debug, program] if command[0] == "eu-strip" else [program, debug])], check=True)
                self.refused(debug, 3, "only debug information")

    def test_appimage(self):
        path = self.build("a")
        with open(path, "r+b") as f:
            f.seek(8)
            f.write(b"AI\2")
        self.refused(path, 3, "--appimage-extract")

    def test_what_belongs_to_gpushare(self):
        driver = self.build("libcuda-real.so.1", "int f;", "-shared", "-fPIC", "-Wl,-soname,/of/the/door/libcuda-real.so.1")
        for path in (shutil.copy(OPTIONS.patch, self.folder), self.build("gpushare-lockd"), self.build("gpushare-door", DLSYM),
                     self.build("libcuda.so.1", DLSYM.replace("main", "f"), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
                                "-Wl,--no-as-needed," + driver),
                     self.build("libgpushare.so.1", DLSYM.replace("main", "f"), "-shared", "-Wl,-soname,libgpushare.so.1")):
            self.refused(path, 4, "part of gpushare")

    def test_library_without_imports(self):
        self.refused(self.build("none.so", "int f;", "-shared", "-fPIC"), 4, "imports no driver function")

    def test_unicode_data_are_not_cuda(self):
        shared = ["-shared", "-fPIC", "-xnone"]
        icu, cuda = (self.build(f"lib{name}.so", "int f;", *shared, f"-Wl,-soname,lib{name}.so.72") for name in ("icudata", "x_cuda"))
        self.refused(self.build("a", DLSYM, "-xnone", "-Wl,--no-as-needed", icu), 4, "it does not use CUDA")
        self.refused(self.build("b.so", DLSYM.replace("main", "f"), *shared, "-Wl,--no-as-needed", icu), 4, "it does not use CUDA")
        self.assertEqual(run(*self.runtime, self.build("c", DLSYM, "-xnone", "-Wl,--no-as-needed", icu, cuda))[0], 0)

    def test_not_cuda(self):
        self.refused(self.build("plain", MAIN), 4, "it does not use CUDA")
        self.refused(self.build("plain2", DLSYM), 4, "--any")

    def test_setuid(self):
        path = self.build("s")
        os.chmod(path, 0o4755)
        self.refused(path, 3, "--force")
        self.assertEqual(run(*self.runtime, "--force", path)[0], 0)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o4755)

    def test_runtime_missing(self):
        self.refused(self.build("a"), 1, "the runtime library does not exist, so", "--runtime", self.path("no.so"), named=False)
        self.refused(self.build("b"), 1, "the runtime library does not exist", "--runtime", self.path("x/no.so"), named=False)

    def test_runtime_that_is_no_library(self):
        os.mkfifo(self.path("pipe"))
        self.refused(self.build("a"), 1, "is no library", "--runtime", self.path("pipe"), named=False)

    def test_runtime_that_cannot_be_opened(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))
        status, _, errors = run(*self.runtime, self.build("a"), preexec_fn=limit)
        self.assertEqual((status, "the runtime library cannot be opened: Too many open files" in errors), (1, True), errors)

    def test_cut_off_anywhere(self):
        path = self.build("whole")
        data = open(path, "rb").read()
        lengths = list(range(0, 1024, 37)) + list(range(1024, len(data) - 1, 997)) + [len(data) - 1]
        cut = self.path("cut")
        for n in lengths:
            open(cut, "wb").write(data[:n])
            status, _, err = run(*self.runtime, cut)
            self.assertEqual(status, 3, (n, err))
            self.assertEqual(open(cut, "rb").read(), data[:n])

    def test_random_damage_never_crashes(self):
        path = self.build("whole")
        data, rng = open(path, "rb").read(), random.Random(1)
        hot = list(range(0, 64 + 13 * 56)) + list(range(len(data) - 31 * 64, len(data)))
        bad = self.path("bad")
        for _ in range(300):
            copy = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                at = rng.choice(hot)
                copy[at] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
            open(bad, "wb").write(copy)
            status, _, err = run(*self.runtime, bad)
            self.assertIn(status, (0, 3, 4), (status, err))
            if status == 0:
                self.assertEqual(run("--restore", bad)[0], 0)
            self.assertEqual(open(bad, "rb").read(), bytes(copy))


class Usage(Case):
    def test_wrong_usage(self):
        for args in ([], ["--nonsense", "x"], ["--scope", "all", "x"], ["--print", "--check", "x"], ["-o"],
                     ["-o", "out", "x", "y"], ["--json", "x"]):
            status, out, err = run(*args)
            self.assertEqual((status, out), (2, ""), args)
            self.assertIn("gpushare-patch: ", err)

    def test_help_and_version(self):
        status, out, _ = run("--help")
        self.assertEqual(status, 0)
        for option in ("--print", "--check", "--restore", "--output", "--dry-run", "--runtime", "--scope", "--any", "--force", "--json"):
            self.assertIn(option, out)
        self.assertRegex(run("--version")[1], r"^gpushare-patch \d+\.\d+\.\d+\n$")
        path = self.build("a")
        before = self.snapshot(path)
        for others in ([], [path], ["--tree", self.folder], ["-q", "--print", "--check", path]):  # wherever they stand
            for asked in ((option, *others) for option in ("-h", "-V", "--help", "--version")):
                for args in (asked, asked[::-1] if len(others) < 2 else (*others, asked[0])):
                    same = run("--help" if asked[0] in ("-h", "--help") else "--version")
                    self.assertEqual(run(*args), same, args)
        self.assertEqual(self.snapshot(path), before)

    def test_several_files_worst_status(self):
        good, plain, text = self.build("good"), self.build("plain", MAIN), self.path("text")
        open(text, "w").write("no elf at all, but long enough" * 9)
        self.assertEqual(run(*self.runtime, good, plain)[0], 4)
        self.assertEqual(run(*self.runtime, plain, text, good)[0], 3)
        self.assertEqual(run(*self.runtime, text, self.path("missing"), plain)[0], 1)

    def test_python_needs_no_option(self):
        for name in ("python3.11", "python3.13t", "python3.12d", "pypy", "pypy3.10"):
            self.assertEqual(run(*self.runtime, self.build(name, MAIN))[0], 0)
        self.assertEqual(run(*self.runtime, self.build("pythonista", MAIN))[0], 4)


if __name__ == "__main__":
    tool.main()
