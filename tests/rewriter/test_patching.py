#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gpushare-patch does to a good file: patched, patched again or otherwise, given back."""
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tool
from tool import LOADS, MAIN, OPTIONS, Case, run
from other_user import AS_OTHER_USER, copy_for_others


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

    def other_users_file(self, mode):
        """A program of a user who is not in its group, in a folder of that user."""
        if os.geteuid() != 0:
            self.skipTest("only root can give files away")
        path = self.build("a")
        os.chmod(path, mode)
        os.chown(path, 65534, 1235)
        os.chmod(path, mode)  # chown takes setgid away
        os.chown(self.folder, 65534, 65534)
        os.chmod(self.folder, 0o755)
        return path, {**AS_OTHER_USER, "tool_path": copy_for_others(self, OPTIONS.patch)[0]}

    def test_group_that_the_owner_is_not_in(self):
        path, user = self.other_users_file(0o754)
        runtime = ["--runtime", *copy_for_others(self, OPTIONS.runtime)]
        before = open(path, "rb").read()
        status, out, err = run(*runtime, path, **user)
        self.assertEqual((status, "its group 1235 could not be kept" in out), (0, True), (out, err))
        st = os.stat(path)
        self.assertEqual((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)), (65534, 65534, 0o744))  # no more than all may
        status, out, _ = run("--restore", path, **user)
        self.assertEqual((status, open(path, "rb").read()), (0, before))

    def test_rights_of_a_group_that_the_owner_is_not_in(self):
        path, user = self.other_users_file(0o2755)
        status, out, err = run("--runtime", *copy_for_others(self, OPTIONS.runtime), "--force", path, **user)
        self.assertEqual((status, "group 1235, which you are not in" in err), (1, True), (out, err))
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o2755)

    def test_signature_that_cannot_come_back(self):
        path = self.build("a")
        try:
            os.setxattr(path, "security.ima", b"\x03signature")
        except OSError:
            self.skipTest("no signatures in attributes here")
        status, out, _ = run(*self.runtime, path)
        self.assertEqual((status, "signature is valid for the old content only, and --restore cannot" in out), (0, True), out)
        self.assertIn("already patched", run(*self.runtime, path)[1])
        status, out, _ = run("--restore", path)
        self.assertEqual((status, "signature was lost when it was patched" in out), (0, True), out)

    def test_program_that_unpacks_another(self):
        source = "#include <unistd.h>\n" + LOADS.replace("{ void", '{ char *a[] = {%s, 0}; execv(*a, a); void')
        for name, whole, text in (("start", MAIN, True), ("inside", LOADS, False)):  # the inner program has the texts as well
            path = self.build(name, "#include <unistd.h>\n" + whole.replace("{ ", '{ char *a[] = {"NUITKA_ONEFILE_RANDOM", 0}; execv(*a, a); ', 1))
            self.assertEqual("unpacks" in run(*self.runtime, "--any", "--dry-run", path)[1], text, name)
        for name, more, text in (("unpacker", '"other"', True), ("restarts", '"_MEIPASS"', False)):
            path = self.build(name, source % more)
            self.assertNotIn("unpacks", run(*self.runtime, "--dry-run", path)[1])
            open(path, "ab").write(b"payload" * 99)
            status, out, _ = run(*self.runtime, path)
            self.assertEqual((status, "one that it unpacks (Nuitka --onefile) is not routed" in out), (0, text), out)

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
        self.assertEqual([names[n] for n in range(3)], ["/dev/null"] * 3)
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
