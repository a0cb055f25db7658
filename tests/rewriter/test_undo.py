#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The list of patched files: what is in it, and what --list, --restore-all and --repatch make of it.

Usage: test_undo.py --patch TOOL --runtime LIBRARY
"""
import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

OPTIONS = argparse.Namespace()
LOADS = '#include <dlfcn.h>\nint main(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }'


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gpushare-undo.")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.state = os.path.join(self.folder, "state")
        self.environment = dict(os.environ, GPUSHARE_STATE=self.state)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_tool(self, *words, status=0, **more):
        done = subprocess.run([OPTIONS.patch, *words], env=dict(self.environment, **more), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, text=True, check=False)
        self.assertEqual(done.returncode, status, done)
        return done

    def patch(self, *words, **more):
        return self.run_tool("--runtime", OPTIONS.runtime, "--no-sync", *words, **more)

    def build(self, name):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", path], input=LOADS.encode(), check=True)
        return path, read(path)

    def listed(self, status=0):
        return [line.split(None, 1) for line in self.run_tool("--list", status=status).stdout.splitlines()]


class Own(Case):
    def test_patched_files_are_listed_until_they_are_restored(self):
        first, _ = self.build("a program")
        second, before = self.build("b%20\n")
        self.run_tool("--list", status=4)
        odd, _ = self.build("back\\slash\nline\x1b")
        self.patch(odd)
        quiet = self.run_tool("--list", "--quiet").stdout
        self.assertEqual(quiet.count("\n"), 1)
        self.assertEqual(subprocess.run(["bash", "-c", 'printf %b "$0"', quiet[:-1]], stdout=subprocess.PIPE, check=True).stdout.decode(), odd)
        self.run_tool("--restore", odd)
        self.patch(first, second)
        self.assertEqual(self.listed(), [["patched", first], ["patched", second.replace("\n", "?")]])
        self.run_tool("--restore", first)
        self.assertEqual(len(self.listed()), 1)
        self.run_tool("--restore-all")
        self.assertEqual(read(second), before)
        self.run_tool("--list", status=4)
        self.run_tool("--restore-all", status=4)

    def test_names_steer_no_terminal(self):
        """Root reads the names of other users' files; U+009B is an escape sequence's beginning in one character."""
        path, _ = self.build("red\x9b31m\x1b[1mé")
        self.patch(path)
        self.assertEqual(self.listed(), [["patched", self.path("red??31m?[1mé")]])

    def test_dry_runs_change_nothing(self):
        path, _ = self.build("program")
        self.patch("--dry-run", path)
        self.run_tool("--list", status=4)
        self.patch(path)
        after = read(path)
        self.run_tool("--restore-all", "--dry-run")
        self.assertEqual((read(path), len(self.listed())), (after, 1))

    def test_output_is_listed_where_it_lies(self):
        path, _ = self.build("program")
        os.mkdir(self.path("real"))
        os.symlink("real", self.path("link"))
        self.patch("-o", self.path("link/copy"), path)
        self.assertEqual(self.listed(), [["patched", self.path("real/copy")]])

    def test_gone_replaced_and_changed_files_are_told(self):
        names = ["gone", "kept", "other", "replaced"]
        before = {name: self.build(name) for name in names}
        self.patch(*(before[name][0] for name in names))
        os.unlink(self.path("gone"))
        shutil.copy("/bin/true", self.path("replaced"))
        with open(self.path("other"), "r+b") as file:  # its undo note is damaged
            content = file.read()
            at = content.rindex(b"gpushare-undo-")
            file.seek(at + 24)
            file.write(b"\xff" * 64)
        self.assertEqual([state for state, _ in self.listed()], ["gone", "patched", "changed", "replaced"])
        done = self.run_tool("--restore-all", status=1)
        self.assertIn("gone: is gone", done.stdout)
        self.assertIn("replaced: was replaced", done.stdout)
        self.assertIn("other: is patched, but not as it was listed", done.stderr)
        self.assertEqual(read(self.path("kept")), before["kept"][1])
        self.assertEqual(self.listed(), [["changed", self.path("other")]])

    def test_a_list_that_cannot_be_written_does_not_keep_from_patching(self):
        path, _ = self.build("program")
        with open(self.state, "w", encoding="ascii"):
            pass
        done = self.patch(path)
        self.assertIn("patched, but not listed", done.stderr)
        self.run_tool("--check", path)
        self.patch(path, GPUSHARE_STATE="/proc/nothing")

    def test_what_is_no_entry_is_left_out(self):
        path, _ = self.build("program")
        self.patch(path)
        place = os.path.join(self.state, "patched")
        entry = os.listdir(place)[0]
        for name, text in [("0" * 32, "path=relative\n"), ("1" * 32, ""), ("2" * 32, "nonsense"), ("x", "path=/x\n"),
                           ("3" * 32, "path=/a/../../x\n"), ("4" * 32, "path=/" + "a" * 70000), ("5" * 32, "original=zz\n")]:
            with open(os.path.join(place, name), "w", encoding="ascii") as out:
                out.write(text)
        os.symlink(entry, os.path.join(place, "6" * 32))
        self.assertEqual(self.listed(), [["patched", path]])

    def test_many_patchers_at_once_lose_no_entry(self):
        paths = [self.build(f"p{i}")[0] for i in range(8)]
        runs = [subprocess.Popen([OPTIONS.patch, "--runtime", OPTIONS.runtime, "--no-sync", "-q", path], env=self.environment)
                for path in paths]
        self.assertEqual([run.wait(600) for run in runs], [0] * 8)
        self.assertEqual(self.listed(), [["patched", path] for path in paths])

    def test_folders_come_back_whole(self):
        path, before = self.build("app/bin/program")
        self.patch("--tree", self.path("app"))
        self.assertEqual(self.listed(), [["patched", path]])
        self.run_tool("--restore-all")
        self.assertEqual(read(path), before)
        self.assertEqual(os.listdir(self.path("app")), ["bin"])  # no manifest
        self.run_tool("--list", status=4)

    def test_environments_come_back_whole(self):
        self.assertEqual(subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.path("env")],
                                        check=False).returncode, 0)
        links = {name: os.readlink(self.path("env/bin/" + name)) for name in os.listdir(self.path("env/bin"))
                 if os.path.islink(self.path("env/bin/" + name))}
        self.patch("--venv", VIRTUAL_ENV=self.path("env"))
        self.assertGreater(len(self.listed()), 0)
        self.run_tool("--restore-all")
        self.assertEqual(links, {name: os.readlink(self.path("env/bin/" + name)) for name in links})
        self.assertFalse(os.path.exists(self.path("env/.gpushare-manifest")))
        self.run_tool("--list", status=4)

    def test_venv_without_folder_needs_an_environment(self):
        done = self.run_tool("--venv", status=2, VIRTUAL_ENV="")
        self.assertIn("no Python environment", done.stderr)

    def test_upgraded_files_are_patched_again(self):
        path, before = self.build("program")
        self.patch(path)
        with open(self.path("new"), "wb") as out:
            out.write(before)
        os.chmod(self.path("new"), 0o755)
        os.rename(self.path("new"), path)
        self.assertEqual(self.listed(), [["replaced", path]])
        self.patch("--repatch")
        self.assertEqual(self.listed(), [["patched", path]])

    def test_links_are_not_followed(self):
        path, before = self.build("deep/program")
        self.patch(path)
        after = read(path)
        os.rename(self.path("deep"), self.path("moved"))
        os.symlink("moved", self.path("deep"))
        self.assertEqual(self.listed(), [["replaced", path]])
        self.run_tool("--restore-all")
        self.assertEqual(read(self.path("moved/program")), after)
        self.assertNotEqual(after, before)

    def test_a_folder_that_became_a_link_is_not_patched_again(self):
        """Whoever owns a folder above it decides where the link leads, and root patches again what an upgrade overwrote."""
        path, before = self.build("app/bin/program")
        other, theirs = self.build("other/bin/program")
        self.patch("--tree", self.path("app"))
        os.rename(self.path("app"), self.path("moved"))
        os.symlink("other", self.path("app"))
        done = self.patch("--repatch", status=1)
        self.assertIn("symbolic link", done.stderr)
        self.assertEqual(read(other), theirs)
        self.assertEqual(os.listdir(self.path("other")), ["bin"])  # no manifest
        self.run_tool("--restore-all")
        self.assertEqual(os.listdir(self.path("other")), ["bin"])
        self.assertNotEqual(read(self.path("moved/bin/program")), before)
        os.unlink(self.path("app"))
        os.rename(self.path("moved"), self.path("app"))
        self.run_tool("--restore", "--tree", self.path("app"))
        self.assertEqual(read(path), before)

    def test_a_library_is_the_same_by_whatever_path(self):
        """A package that is removed names its library by one path, files name it by the one that gpushare-patch was started by."""
        path, before = self.build("program")
        os.mkdir(self.path("1.0"))
        shutil.copy(OPTIONS.runtime, self.path("1.0/libgpushare.so.1"))
        os.symlink("1.0", self.path("current"))
        self.run_tool("--runtime", self.path("current/libgpushare.so.1"), "--no-sync", path)
        named = ["--runtime", self.path("1.0/libgpushare.so.1")]
        self.assertIn(path, self.run_tool("--list", *named).stdout)
        self.assertNotIn(path, self.run_tool("--list", "--runtime", OPTIONS.runtime, status=4).stdout)
        self.run_tool("--restore-all", *named)
        self.assertEqual(read(path), before)

    def test_options_that_do_not_go_together(self):
        for words in (["--list", "--restore-all"], ["--list", "x"], ["--restore-all", "--tree", "x"], ["--all-users", "x"]):
            self.run_tool(*words, status=2)


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class Root(Case):
    """Files of another user, listed by root."""

    def give(self, path):
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
        return nobody.pw_uid

    def test_a_users_file_is_restored_as_that_user(self):
        path, before = self.build("theirs/program")
        user = self.give(path)
        self.give(os.path.dirname(path))
        self.patch(path)
        self.assertEqual(os.stat(path).st_uid, user)
        self.run_tool("--restore-all")
        self.assertEqual((read(path), os.stat(path).st_uid), (before, user))
        self.run_tool("--list", status=4)

    def test_a_folder_of_another_user_is_not_patched_again(self):
        path, before = self.build("theirs/bin/program")
        self.patch("--tree", self.path("theirs"))
        self.give(self.path("theirs"))
        with open(self.path("new"), "wb") as out:
            out.write(before)
        os.rename(self.path("new"), path)  # root's, in a folder that is not
        done = self.patch("--repatch", status=1)
        self.assertIn("belongs to user", done.stderr)
        self.assertEqual(read(path), before)

    def test_a_users_list_counts_for_that_users_files_alone(self):
        """Root looks at the lists of all users before it removes a package: one may name any path."""
        tool = shutil.copy(OPTIONS.patch, self.path("tool"))  # the lists of users, which a tool in a build folder does not read
        home = tempfile.mkdtemp(prefix="gpushare-undo.", dir="/home")
        self.addCleanup(shutil.rmtree, home)
        paths = [self.build(name)[0] for name in ("ours", "theirs", "program")]
        os.mkdir(self.path("closed"), 0o700)
        paths[0] = shutil.move(paths[0], self.path("closed"))
        for path in paths:
            self.patch(path)
        listed = os.path.join(home, ".local", "state", "gpushare", "patched")
        shutil.copytree(os.path.join(self.state, "patched"), listed)
        for folder, _, _ in os.walk(home):
            os.chown(folder, 61234, 61234)
        os.chown(paths[1], 61234, 61234)
        empty = {**self.environment, "GPUSHARE_STATE": self.path("empty")}
        done = subprocess.run([tool, "--list", "--all-users"], env=empty, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=600, check=False)
        shown = [line.split(None, 1)[1] for line in done.stdout.splitlines() if self.folder in line]
        self.assertEqual(shown, [paths[1]], done)

    def test_others_may_enter_the_folder_whatever_the_umask(self):
        """It also holds the library of a wheel, which programs of all users load."""
        path, _ = self.build("program")
        before = os.umask(0o077)
        try:
            self.patch(path)
        finally:
            os.umask(before)
        self.assertEqual(os.stat(self.state).st_mode & 0o777, 0o755)

    def test_that_user_needs_the_right_to_write(self):
        path, _ = self.build("ours/program")
        self.give(path)
        self.patch(path)
        after = read(path)
        self.run_tool("--restore-all", status=1)
        self.assertEqual((read(path), len(self.listed())), (after, 1))


    def children_of(self, parent, user):
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
                    status = dict(line.split(":", 1) for line in file)
            except OSError:
                continue
            if int(status["PPid"]) == parent and int(status["Uid"].split()[0]) == user:
                yield int(name)

    def test_a_user_cannot_hold_root_up(self):
        """The process that restores a user's file is that user's, who can stop it. It waits here to say what it has done."""
        path, _ = self.build("theirs/program")
        user = self.give(path)
        self.give(os.path.dirname(path))
        for number, status in ((signal.SIGSTOP, 1), (signal.SIGTSTP, 0)):
            self.patch(path)
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            with self.assertRaises(BlockingIOError):
                while True:
                    os.write(writer, b"x" * 4096)
            os.set_blocking(writer, True)
            tool = subprocess.Popen([OPTIONS.patch, "--restore-all", "--no-sync"], env=self.environment, stdin=subprocess.DEVNULL,
                                    stdout=writer, stderr=subprocess.PIPE, text=True)
            self.addCleanup(tool.kill)
            os.close(writer)
            child = None
            while child is None and tool.poll() is None:
                child = next(self.children_of(tool.pid, user), None)
            self.assertIsNotNone(child)
            os.kill(child, number)
            if status == 0:  # a terminal sends that one to all; the others go on by themselves
                os.close(reader)
            said = tool.communicate(timeout=300)[1]
            self.assertEqual(tool.returncode, status, said)
            self.assertEqual("process of user" in said, status == 1, said)
            if status == 1:
                os.close(reader)


class Stub(Case):
    def test_the_stub_of_another_installation_stays(self):
        """A package that is removed restores its own files, and then others may still need a stub."""
        path, _ = self.build("program")
        self.patch(path)
        stub = self.path("libgpushare.so.1")
        with open(stub, "wb") as out:
            out.write(b"ELF gpushare-stub-of-a-removed-library\0 and so on")
        with open(os.path.join(self.state, "stub"), "w", encoding="utf-8") as out:
            out.write(f"{stub}\n")
        self.run_tool("--restore-all", "--runtime", stub, status=4)
        self.assertTrue(os.path.exists(stub))
        self.run_tool("--restore-all")
        self.assertFalse(os.path.exists(stub))

    def test_the_stub_goes_when_the_last_file_is_restored(self):
        path, _ = self.build("program")
        self.patch(path)
        stub, foreign = self.path("libgpushare.so.1"), self.path("foreign")
        with open(stub, "wb") as out:
            out.write(b"ELF gpushare-stub-of-a-removed-library\0 and so on")
        with open(foreign, "wb") as out:
            out.write(b"a library that was installed since")
        with open(os.path.join(self.state, "stub"), "w", encoding="utf-8") as out:
            out.write(f"{stub}\n{foreign}\n")
        with open(path, "r+b") as file:
            content = file.read()
            at = content.rindex(b"gpushare-undo-") + 24
            file.seek(at)
            file.write(b"\xff" * 64)
        self.run_tool("--restore-all", status=1)
        self.assertTrue(os.path.exists(stub))
        with open(path, "wb") as file:
            file.write(content)
        done = self.run_tool("--restore-all")
        self.assertIn("nothing of gpushare is left", done.stdout)
        self.assertFalse(os.path.exists(stub))
        self.assertTrue(os.path.exists(foreign))
        self.assertFalse(os.path.exists(self.state))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--patch", required=True)
    parser.add_argument("--runtime", required=True)
    rest = parser.parse_known_args(namespace=OPTIONS)[1]
    unittest.main(argv=[sys.argv[0], *rest])
