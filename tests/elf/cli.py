#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpushare-patch answers: options, exit statuses, bad input, and that a refused file is not touched."""
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import tool
from tool import OPTIONS, run

MAIN = "int main(void) { return 0; }"
DLSYM = '#include <dlfcn.h>\nint main(void) { return dlsym(RTLD_DEFAULT, "puts") == 0; }'
LOADS = '#include <dlfcn.h>\nint main(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }'


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-cli.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.runtime = ["--runtime", OPTIONS.runtime]

    def path(self, name):
        return os.path.join(self.folder, name)

    def build(self, name, source=LOADS, *flags):
        path = self.path(name)
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", path, *flags], input=source.encode(), check=True,
                       stderr=subprocess.DEVNULL)
        return path

    def snapshot(self, path):
        st = os.stat(path)
        return open(path, "rb").read(), st.st_ino, st.st_mtime_ns, st.st_mode

    def refused(self, path, status, text, *options, named=True):
        before = self.snapshot(path)
        got = run(*self.runtime, *options, path)
        self.assertEqual(got[0], status, got)
        self.assertEqual(len(got[2].strip().splitlines()), 1, got)
        self.assertIn(text, got[2])
        self.assertIn(path if named else options[-1], got[2])
        self.assertEqual(self.snapshot(path), before)
        self.assertEqual([f for f in os.listdir(self.folder) if f.startswith(".gpushare")], [])


class BadInput(Case):
    def test_missing(self):
        status, _, err = run(*self.runtime, self.path("nothing"))
        self.assertEqual((status, "No such file" in err), (1, True))

    def test_unreadable(self):
        path = self.build("a")
        os.chmod(path, 0)
        if os.geteuid() == 0:
            drop = {"user": 65534, "group": 65534, "extra_groups": []}
            os.chmod(self.folder, 0o755)
            if not os.access(OPTIONS.patch, os.X_OK) or subprocess.run([OPTIONS.patch, "--version"], stdout=subprocess.DEVNULL,
                                                                      stderr=subprocess.DEVNULL, **drop).returncode:
                self.skipTest("another user cannot run the tool from here")
            status, _, err = run(*self.runtime, path, **drop)
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
            self.assertTrue(err.endswith("patch the interpreter that its first line names\n"), err)

    def test_folder(self):
        status, _, err = run(*self.runtime, self.folder)
        self.assertEqual((status, "is a folder" in err), (3, True))

    def test_device(self):
        status, _, err = run(*self.runtime, "/dev/null")
        self.assertEqual((status, "no regular file" in err), (3, True))

    def test_empty(self):
        open(self.path("empty"), "w").close()
        self.refused(self.path("empty"), 3, "not an ELF file")

    def test_text(self):
        open(self.path("text"), "w").write("hello\n" * 100)
        self.refused(self.path("text"), 3, "not an ELF file")

    def test_script(self):
        open(self.path("script"), "w").write("#!/bin/sh\n" + "exit 0\n" * 20)
        self.refused(self.path("script"), 3, "is a script")

    def test_socket(self):
        import socket
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.path("socket"))
            status, _, err = run(*self.runtime, self.path("socket"))
        self.assertEqual((status, "no regular file" in err), (3, True), err)

    def test_debug_information_split_off(self):
        for command in (["objcopy", "--only-keep-debug"], ["eu-strip", "-f"]):
            if shutil.which(command[0]):
                debug = self.path("debug-" + command[0])
                program = self.build("a", LOADS, "-g")
                subprocess.run([*command, *([debug, program] if command[0] == "eu-strip" else [program, debug])], check=True)
                self.refused(debug, 3, "nothing but debug information")

    def test_appimage(self):
        path = self.build("a")
        with open(path, "r+b") as f:
            f.seek(8)
            f.write(b"AI\2")
        self.refused(path, 3, "--appimage-extract")

    def test_what_belongs_to_gpushare(self):
        for path in (shutil.copy(OPTIONS.patch, self.folder), self.build("gpushare-lockd"),
                     self.build("libgpushare.so.1", DLSYM.replace("main", "f"), "-shared", "-Wl,-soname,libgpushare.so.1")):
            self.refused(path, 4, "part of gpushare")

    def test_library_without_imports(self):
        self.refused(self.build("none.so", "int f;", "-shared", "-fPIC"), 4, "imports no driver function")

    def test_unicode_data_are_not_cuda(self):
        shared = ["-shared", "-fPIC", "-xnone"]
        icu, cuda = (self.build(f"lib{name}.so", "int f;", *shared, f"-Wl,-soname,lib{name}.so.72") for name in ("icudata", "x_cuda"))
        self.refused(self.build("a", DLSYM, "-xnone", "-Wl,--no-as-needed", icu), 4, "no CUDA in it")
        self.refused(self.build("b.so", DLSYM.replace("main", "f"), *shared, "-Wl,--no-as-needed", icu), 4, "no CUDA in it")
        self.assertEqual(run(*self.runtime, self.build("c", DLSYM, "-xnone", "-Wl,--no-as-needed", icu, cuda))[0], 0)

    def test_not_cuda(self):
        self.refused(self.build("plain", MAIN), 4, "no CUDA in it")
        self.refused(self.build("plain2", DLSYM), 4, "--any")

    def test_setuid(self):
        path = self.build("s")
        os.chmod(path, 0o4755)
        self.refused(path, 3, "--force")
        self.assertEqual(run(*self.runtime, "--force", path)[0], 0)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o4755)

    def test_runtime_missing(self):
        self.refused(self.build("a"), 1, "the runtime library is not there", "--runtime", self.path("no.so"), named=False)
        self.refused(self.build("b"), 1, "no such runtime library", "--runtime", self.path("x/no.so"), named=False)

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

    def test_several_files_worst_status(self):
        good, plain, text = self.build("good"), self.build("plain", MAIN), self.path("text")
        open(text, "w").write("no elf at all, but long enough" * 9)
        self.assertEqual(run(*self.runtime, good, plain)[0], 4)
        self.assertEqual(run(*self.runtime, plain, text, good)[0], 3)
        self.assertEqual(run(*self.runtime, text, self.path("missing"), plain)[0], 1)

    def test_python_needs_no_option(self):
        self.assertEqual(run(*self.runtime, self.build("python3.11", MAIN))[0], 0)
        self.assertEqual(run(*self.runtime, self.build("pythonista", MAIN))[0], 4)


class Patching(Case):
    def test_patch_again_restore(self):
        path = self.build("a")
        before = self.snapshot(path)
        self.assertEqual(run("--check", path)[0], 4)
        self.assertEqual(run("--restore", path)[0], 4)
        self.assertEqual(run(*self.runtime, path)[0], 0)
        patched = self.snapshot(path)
        self.assertNotEqual(patched[0], before[0])
        self.assertEqual(patched[2:], before[2:])
        self.assertEqual(run("--check", path)[0], 0)
        status, out, _ = run(*self.runtime, path)
        self.assertEqual((status, "already patched" in out), (0, True))
        self.assertEqual(self.snapshot(path), patched)
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(self.snapshot(path)[0], before[0])

    def test_other_options_patch_anew(self):
        path, other = self.build("a"), self.path("other/libgpushare.so.1")
        before = open(path, "rb").read()
        os.mkdir(self.path("other"))
        shutil.copy(OPTIONS.runtime, other)
        self.assertEqual(run(*self.runtime, path)[0], 0)
        self.assertEqual(run("--runtime", other, path)[0], 0)
        needed = subprocess.run(["readelf", "-dW", path], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertIn(other, needed)
        self.assertNotIn(OPTIONS.runtime, needed)
        os.unlink(other)
        self.assertEqual(run("--check", path)[0], 1)
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(open(path, "rb").read(), before)

    def test_output_leaves_input(self):
        path, out = self.build("a"), self.path("out")
        os.chmod(path, 0o751)
        before = self.snapshot(path)
        self.assertEqual(run(*self.runtime, "-o", out, path)[0], 0)
        self.assertEqual(self.snapshot(path), before)
        self.assertEqual(stat.S_IMODE(os.stat(out).st_mode), 0o751)
        self.assertEqual(run("--check", out)[0], 0)
        self.assertEqual(run("--restore", "-o", self.path("back"), out)[0], 0)
        self.assertEqual(open(self.path("back"), "rb").read(), before[0])

    def test_output_never_replaces_what_is_no_file(self):
        path, patched = self.build("a"), self.path("patched")
        self.assertEqual(run(*self.runtime, "-o", patched, path)[0], 0)
        os.mkfifo(self.path("pipe"))
        os.mkdir(self.path("folder"))
        for name, text in (("pipe", "no regular file"), ("folder", "a folder"), (None, "is the file itself")):
            for options, source in (([], path), (["--restore"], patched)):
                out = self.path(name) if name else source
                before = os.stat(out)
                status, _, err = run(*self.runtime, *options, "-o", out, source)
                self.assertEqual((status, text in err, out in err), (1, True, True), err)
                self.assertEqual((os.stat(out).st_ino, os.stat(out).st_mtime_ns), (before.st_ino, before.st_mtime_ns))

    def test_output_replaces_a_link_by_a_file(self):
        path, link = self.build("a"), self.path("link")
        before = open(path, "rb").read()
        os.symlink("a", link)
        self.assertEqual(run(*self.runtime, "-o", link, path)[0], 0)
        self.assertFalse(os.path.islink(link))
        self.assertEqual(open(path, "rb").read(), before)

    def test_dry_run_touches_nothing(self):
        path = self.build("a")
        before = self.snapshot(path)
        status, out, _ = run(*self.runtime, "--dry-run", path)
        self.assertEqual((status, "would be patched" in out), (0, True))
        self.assertEqual(self.snapshot(path), before)

    def test_changed_after_patch_is_not_restored(self):
        path = self.build("a")
        self.assertEqual(run(*self.runtime, path)[0], 0)
        data = bytearray(open(path, "rb").read())
        data[len(data) // 3] ^= 1
        open(path, "wb").write(data)
        self.refused(path, 3, "its loaded part is not the original's", "--restore")

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

    def test_stripped_after_patch_is_not_patched_anew(self):
        path = self.stripped("strip")[1]
        os.mkdir(self.path("other"))
        other = shutil.copy(OPTIONS.runtime, self.path("other/libgpushare.so.1"))
        self.refused(path, 3, "--restore it first", "--runtime", other)

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

    def test_note_of_another_build_is_told_from_damage(self):
        path = self.build("a")
        self.assertEqual(run(*self.runtime, path)[0], 0)
        data = open(path, "rb").read()
        for old, new, text in ((b"gpushare-undo-3", b"gpushare-undo-2", "restore it with that build"),
                               (b"gpushare-undo-3", b"gpushare-xxxx-3", "its undo note is gone")):
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
        self.refused(path, 3, "its loaded part is not the original's", "--restore")
        data[at] ^= 1
        open(path, "wb").write(data + b"payload")
        self.refused(path, 3, "something is appended", "--restore")

    def test_appended_to_after_patch_is_not_restored(self):
        path = self.build("a")
        self.assertEqual(run(*self.runtime, path)[0], 0)
        with open(path, "ab") as out:
            out.write(b"payload")
        self.refused(path, 3, "something is appended", "--restore")

    def test_symlink_and_hard_link(self):
        path, link, other = self.build("a"), self.path("link"), self.path("other")
        os.symlink("a", link)
        os.link(path, other)
        before = open(path, "rb").read()
        status, out, _ = run(*self.runtime, link)
        self.assertEqual((status, "hard links" in out, "is a link; " + path in out), (0, True, True))
        self.assertTrue(os.path.islink(link))
        self.assertEqual(run("--check", path)[0], 0)
        self.assertEqual(open(other, "rb").read(), before)

    def test_attributes_are_kept(self):
        path = self.build("a")
        os.chmod(path, 0o750)
        os.utime(path, ns=(10**18, 10**18 + 5))
        try:
            os.setxattr(path, "user.gpushare", b"kept")
        except OSError:
            self.skipTest("no extended attributes here")
        if os.geteuid() == 0:
            os.chown(path, 1234, 1235)
        before = os.stat(path)
        self.assertEqual(run(*self.runtime, path)[0], 0)
        now = os.stat(path)
        self.assertEqual(os.getxattr(path, "user.gpushare"), b"kept")
        for field in ("st_mode", "st_uid", "st_gid", "st_mtime_ns"):
            self.assertEqual(getattr(now, field), getattr(before, field), field)

    def test_running_program_can_be_patched(self):
        path = self.build("sleeper", LOADS.replace("{ void", "{ sleep(20); void"))
        with subprocess.Popen([path]) as child:
            try:
                self.assertEqual(run(*self.runtime, path)[0], 0)
                self.assertIsNone(child.poll())
            finally:
                child.kill()

    def test_file_changed_meanwhile_is_left_alone(self):
        path, big = self.build("a"), self.path("big")
        with open(big, "wb") as out:
            out.truncate(100 << 20)
        subprocess.run(["objcopy", "--add-section", ".big=" + big, path], check=True)
        os.unlink(big)
        child = subprocess.Popen([OPTIONS.patch, *self.runtime, path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        fds, stopped = f"/proc/{child.pid}/fd", False
        while child.poll() is None and not stopped:  # stop it while it copies
            try:
                stopped = any("(deleted)" in os.readlink(f"{fds}/{n}") or ".gpushare-patch" in os.readlink(f"{fds}/{n}")
                              for n in os.listdir(fds))
            except OSError:
                pass
        child.send_signal(signal.SIGSTOP)
        os.utime(path, ns=(1, 1))
        before = os.stat(path)
        child.send_signal(signal.SIGCONT)
        err = child.communicate()[1].decode()
        self.assertTrue(stopped)
        self.assertEqual((child.returncode, "changed it meanwhile" in err), (1, True), err)
        now = os.stat(path)
        self.assertEqual((now.st_ino, now.st_size, now.st_mtime_ns), (before.st_ino, before.st_size, 1))

    def test_read_only_folder_fails(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        path = self.build("a")
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        self.refused(path, 1, "cannot write into its folder")


if __name__ == "__main__":
    tool.main()
