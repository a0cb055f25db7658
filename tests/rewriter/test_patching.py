#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpushare-patch does to a good file: patched, patched again or otherwise, changed by others since, given back."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tool
from tool import LOADS, OPTIONS, Case, run


class Patching(Case):
    def test_patch_again_restore(self):
        path = self.build("a")
        before = self.snapshot(path)
        self.assertEqual(run("--check", path)[0], 4)
        self.assertEqual(run("--restore", path)[0], 4)
        self.assertEqual(run(*self.runtime, path)[0], 0)
        patched = self.snapshot(path)
        self.assertNotEqual(patched[0], before[0])
        self.assertEqual(patched[3], before[3])
        self.assertEqual(run("--check", path)[0], 0)
        status, out, _ = run(*self.runtime, path)
        self.assertEqual((status, "already patched" in out), (0, True))
        self.assertEqual(self.snapshot(path), patched)
        self.assertEqual(run("--restore", path)[0], 0)
        back = self.snapshot(path)
        self.assertEqual((back[0], back[2:]), (before[0], before[2:]))

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

    def versions(self):
        """Two versions of gpushare and a link to the first, as stow, module trees and Nix profiles have it."""
        for version in ("0.1", "0.2"):
            for name, file in (("bin/gpushare-patch", OPTIONS.patch), ("lib/libgpushare.so.1", OPTIONS.runtime)):
                os.makedirs(self.path(version + "/" + os.path.dirname(name)))
                shutil.copy(file, self.path(version + "/" + name))
        os.symlink("0.1", self.path("current"))
        return self.path("current/lib/libgpushare.so.1")

    def test_link_to_the_folder_of_the_runtime_library_is_kept(self):
        library, path = self.versions(), self.build("a")
        before, real = open(path, "rb").read(), os.path.realpath(library)
        done = lambda tool, *args, **kw: subprocess.run([tool, *args, path], stdout=subprocess.PIPE, check=True, **kw).stdout.decode()
        current = self.path("current/bin/gpushare-patch")
        for said in (done(OPTIONS.patch, "--runtime", library), done(OPTIONS.patch, "--runtime", library, "--print"),
                     done(OPTIONS.patch, "--restore") and done(current),  # found beside the tool
                     done(OPTIONS.patch, "--restore") and done("./bin/gpushare-patch", "--runtime", "./../current//lib/libgpushare.so.1",
                                                               cwd=self.path("0.2")),
                     done(OPTIONS.patch, "--restore") and done(OPTIONS.patch, "--runtime", "../.././" + library[1:], cwd="/")):
            self.assertIn(library, said)
            self.assertIn(real, said)
            self.assertIn(f"[{library}]", subprocess.run(["readelf", "-dW", path], stdout=subprocess.PIPE, check=True).stdout.decode())
            self.assertIn("already patched", done(OPTIONS.patch, "--runtime", library))
        os.unlink(self.path("current"))
        os.symlink("0.2", self.path("current"))
        shutil.rmtree(self.path("0.1"))
        self.assertEqual(subprocess.run([path]).returncode, 0)
        self.assertEqual(run("--check", path)[0], 0)
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(open(path, "rb").read(), before)

    def test_exit_status_is_true_when_the_report_cannot_be_written(self):
        path = self.build("a")
        before = open(path, "rb").read()
        for args, status in ((self.runtime, 0), (["--restore"], 0), (["--restore"], 4), (["--check"], 1), (["--print"], 1), (["--help"], 1),
                             (["--version"], 1), ([*self.runtime, "--dry-run"], 1), ([*self.runtime, "-q"], 0)):
            with open("/dev/full", "w") as full:
                done = subprocess.run([OPTIONS.patch, *args, path], stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, status, (args, done))
            said = b"" if "-q" in args or status == 4 else b"cannot write to standard output"
            self.assertEqual(said in done.stderr, True, (args, done))
            if status == 0:
                self.assertEqual(open(path, "rb").read() == before, "--restore" in args)

    def test_every_change_of_content_is_seen_by_time_and_size(self):
        """As rsync and make look: the time of the last change is that of the patch, and of the original again after --restore."""
        path, start = self.build("a"), time.time_ns() - 10**9  # file systems count in steps
        mtime = lambda file: os.stat(file).st_mtime_ns
        old = (10**18, 10**18 + 123456789)
        others = [self.path(f"{name}/libgpushare.so.1") for name in ("one", "two")]
        for other in others:
            os.mkdir(os.path.dirname(other))
            shutil.copy(OPTIONS.runtime, other)
        for times in (old, (0, -1500000000), (5, 0)):
            os.utime(path, ns=times)
            original, size = open(path, "rb").read(), None
            for other in others:
                self.assertEqual(run("--runtime", other, path)[0], 0)
                self.assertGreater(mtime(path), start)
                self.assertIn(os.path.getsize(path), (size, size or os.path.getsize(path)))  # paths of one length
                size = os.path.getsize(path)
                os.utime(path, ns=(7, 7))  # as if that was long ago
            self.assertIn("already patched", run("--runtime", others[1], path)[1])
            self.assertEqual(mtime(path), 7)
            self.assertEqual(run("--restore", path)[0], 0)
            self.assertEqual((open(path, "rb").read(), mtime(path)), (original, times[1]))
        out, back = self.path("out"), self.path("back")
        self.assertEqual(run(*self.runtime, "-o", out, path)[0], 0)
        self.assertGreater(mtime(out), start)
        os.utime(out, ns=(7, 7))
        self.assertEqual(run("--restore", "-o", back, out)[0], 0)
        self.assertEqual(mtime(back), 0)
        subprocess.run(["strip", "-p", out], check=True)
        self.assertEqual(run("--restore", out)[0], 0)  # this is not what it was
        self.assertGreater(mtime(out), start)

    def test_patched_by_a_version_that_kept_the_time(self):
        path = self.build("a")
        os.utime(path, ns=(10**18, 10**18))
        self.assertEqual(run(*self.runtime, path)[0], 0)
        data = open(path, "rb").read()
        at = data.rindex(b"\nmtime=") + 1
        end = data.index(b"\n", at) + 1
        open(path, "wb").write(data[:at] + bytes(end - at) + data[end:])  # its note says nothing of it
        os.utime(path, ns=(10**18, 10**18))
        self.assertIn("already patched", run(*self.runtime, path)[1])
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(os.stat(path).st_mtime_ns, 10**18)

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
        for name, text in (("pipe", "not a regular file"), ("folder", "a folder"), (None, "is the input file itself")):
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
        for old, new, text in ((b"gpushare-undo-4", b"gpushare-undo-2", "restore it with that version"),
                               (b"gpushare-undo-4", b"gpushare-xxxx-4", "its undo note is gone")):
            self.assertEqual(data.count(old), 1)
            open(path, "wb").write(data.replace(old, new))
            self.refused(path, 3, text, "--restore")
            self.refused(path, 3, text)
            status, out, _ = run("--check", path)
            self.assertEqual((status, "runtime " + OPTIONS.runtime in out, "--restore says why" in out), (0, True, True), out)

    def test_files_with_old_notes_are_restored(self):
        """old-notes/undo-3.so was made from original.so by a build that wrote another checksum."""
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "old-notes")
        original = open(os.path.join(folder, "original.so"), "rb").read()
        old = os.path.join(folder, "undo-3.so")
        path, stripped, plain = self.path("old.so"), self.path("stripped.so"), self.path("plain.so")
        shutil.copy(old, path)
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(open(path, "rb").read(), original)
        shutil.copy(old, path)  # patched anew, it gets a note of today
        self.assertEqual(run(*self.runtime, "--any", path)[0], 0)
        self.assertIn(b"gpushare-undo-4", open(path, "rb").read())
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(open(path, "rb").read(), original)
        subprocess.run(["strip", "-o", stripped, old], check=True)
        subprocess.run(["strip", "-o", plain, path], check=True)
        self.assertEqual(run("--restore", stripped)[0], 0)
        self.assertEqual(open(stripped, "rb").read(), open(plain, "rb").read())
        data = bytearray(open(old, "rb").read())
        data[data.index(b"cuInit")] ^= 1
        open(path, "wb").write(data)
        self.refused(path, 3, "changed after it was patched", "--restore")

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

    def test_symlink_and_hard_link(self):
        path, link, other = self.build("a"), self.path("link"), self.path("other")
        os.symlink("a", link)
        os.link(path, other)
        before = open(path, "rb").read()
        status, out, _ = run(*self.runtime, link)
        self.assertEqual((status, "hard links" in out, "is a link; the file is " + path in out), (0, True, True))
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
        for field in ("st_mode", "st_uid", "st_gid"):
            self.assertEqual(getattr(now, field), getattr(before, field), field)

    def test_running_program_can_be_patched(self):
        path = self.build("sleeper", "#include <unistd.h>\n" + LOADS.replace("{ void", "{ pause(); void"))
        with subprocess.Popen([path]) as child:
            try:
                self.assertEqual(run(*self.runtime, path)[0], 0)
                self.assertIsNone(child.poll())
            finally:
                child.kill()

    def stopped_while_it_copies(self, **kw):
        """(a large program, gpushare-patch at work on it and stopped, number -> name of its open files)."""
        path, big = self.build("a"), self.path("big")
        with open(big, "wb") as out:
            out.truncate(100 << 20)
        subprocess.run(["objcopy", "--add-section", ".big=" + big, path], check=True)
        os.unlink(big)
        for _ in range(20):  # on a busy machine it may have done all of its work when we look
            child = subprocess.Popen([OPTIONS.patch, *self.runtime, path], stdout=subprocess.DEVNULL, **kw)
            while child.poll() is None:
                child.send_signal(signal.SIGSTOP)  # first, so that it is where we see it
                if os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code == os.CLD_STOPPED:
                    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
                names = self.open_files(child.pid)
                if any("(deleted)" in name or ".gpushare-patch" in name for name in names.values()):
                    return path, child, names
                child.send_signal(signal.SIGCONT)
            child.communicate()
            run("--restore", path)
        self.fail("it was never seen at work")

    @staticmethod
    def open_files(pid):
        """number -> name; nothing of one that has ended."""
        try:
            return {int(n): os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
        except OSError:
            return {}

    def test_file_changed_meanwhile_is_left_alone(self):
        path, child, _ = self.stopped_while_it_copies(stderr=subprocess.PIPE)
        os.utime(path, ns=(1, 1))
        before = os.stat(path)
        child.send_signal(signal.SIGCONT)
        err = child.communicate()[1].decode()
        self.assertEqual((child.returncode, "changed it in the meantime" in err), (1, True), err)
        now = os.stat(path)
        self.assertEqual((now.st_ino, now.st_size, now.st_mtime_ns), (before.st_ino, before.st_size, 1))

    def test_messages_never_go_into_a_file(self):
        path, child, names = self.stopped_while_it_copies(preexec_fn=lambda: os.closerange(0, 3))
        child.send_signal(signal.SIGCONT)
        child.wait()
        self.assertEqual([names[n] for n in range(3)], ["/"] * 3)
        self.assertEqual(run("--check", path)[0], 0)

    def test_read_only_folder_fails(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        path = self.build("a")
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        self.refused(path, 1, "cannot write into its folder")


if __name__ == "__main__":
    tool.main()
