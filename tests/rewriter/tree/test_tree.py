#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-patch --tree: what it chooses, patches, lists, checks and gives back, byte for byte."""
import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from tree_case import LOADS, PLAIN, Case, record_line, run  # first: it leads to the folders above
import tool
from other_user import AS_OTHER_USER, copy_for_others
from tool import OPTIONS

AS_ROOT = unittest.skipUnless(os.geteuid() == 0, "only root can make files of others")


class Tree(Case):
    def setUp(self):
        super().setUp()
        self.build("bin/uses", LOADS)
        self.build("bin/plain", PLAIN)
        self.build("lib/cuda, too.so", LOADS, "-shared", "-fPIC")
        self.build("lib/plain.so", PLAIN, "-shared", "-fPIC")
        self.build("old/uses", LOADS)
        open(self.path("lib/text"), "w").write("libcuda.so.1" * 99)
        os.symlink("bin/uses", self.path("link"))
        os.makedirs(self.path("lib/x-1.dist-info"))
        root = self.path("lib")
        with open(self.path("lib/x-1.dist-info/RECORD"), "w", newline="") as out:
            out.write(record_line(root, "cuda, too.so") + record_line(root, "text") + record_line(root, "plain.so") +
                      record_line(root, "../bin/uses") + "x-1.dist-info/RECORD,,\n")

    def test_patches_what_reaches_cuda_and_gives_it_back(self):
        before, record = self.snapshot(), self.path("lib/x-1.dist-info/RECORD")
        os.utime(record, ns=(7, 7))
        status, out, err = run("--tree", self.folder, "--exclude", "old", "--jobs", "3")
        self.assertNotEqual(os.stat(record).st_mtime_ns, 7)
        self.assertEqual((status, err), (0, ""), out)
        self.assertEqual(self.changed(before), [".gpushare-manifest", "bin/uses", "lib/cuda, too.so",
                                                "lib/x-1.dist-info/RECORD"])
        root = self.path("lib")
        record = open(self.path("lib/x-1.dist-info/RECORD"), newline="").read()
        self.assertEqual(record, record_line(root, "cuda, too.so") + record_line(root, "text") +
                         record_line(root, "plain.so") + record_line(root, "../bin/uses") + "x-1.dist-info/RECORD,,\n")
        patched = self.snapshot()
        self.assertEqual(run("--tree", self.folder, "--exclude", "old")[0], 0)
        self.assertEqual(self.snapshot(), patched)
        self.assertEqual(run("--tree", self.folder, "--check", "--exclude", "old")[0], 0)
        status, out, err = run("--tree", self.folder, "--restore")
        self.assertEqual((status, err), (0, ""), out)
        self.assertEqual(self.changed(before), [])

    def test_check_names_what_an_upgrade_overwrote(self):
        original = open(self.path("bin/uses"), "rb").read()
        self.assertEqual(run("--tree", self.folder)[0], 0)
        self.assertEqual(run("--tree", self.folder, "--check")[0], 0)
        open(self.path("bin/uses"), "wb").write(original)
        self.build("bin/more", LOADS)
        status, _, err = run("--tree", self.folder, "--check")
        self.assertEqual(status, 1)
        self.assertIn(self.path("bin/uses") + ": was patched and no longer is", err)
        self.assertIn(self.path("bin/more") + ": uses CUDA and is not listed", err)
        self.assertNotIn("plain", err)
        self.assertEqual(run("--tree", self.folder)[0], 0)
        self.assertEqual(run("--tree", self.folder, "--check")[0], 0)

    def test_dry_run_and_print_touch_nothing(self):
        before = self.snapshot()
        status, out, _ = run("--tree", self.folder, "--dry-run")
        self.assertEqual((status, out.count("would be patched")), (0, 3), out)
        self.assertEqual(run("--tree", self.folder, "--print")[0], 0)
        self.assertEqual(self.changed(before), [])

    def test_refused_file_is_named_and_others_are_patched(self):
        self.build("lib/libcuda.so.1", LOADS, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
        status, _, err = run("--tree", self.folder)
        self.assertEqual((status, "libcuda.so.1 itself" in err), (3, True), err)
        self.assertEqual(run("--check", self.path("bin/uses"))[0], 0)

    def test_nothing_there(self):
        os.makedirs(self.path("empty"))
        self.assertEqual(run("--tree", self.path("empty"))[0], 4)
        self.assertEqual(run("--tree", self.path("empty"), "--restore")[0], 4)
        self.assertEqual(run("--tree", self.path("missing"))[0], 1)

    def test_manifest_that_leads_out_is_refused(self):
        for line in ("file ../outside", "file /etc/passwd", "link bin/python3", "file a%0", "nonsense x"):
            with open(self.path(".gpushare-manifest"), "w") as out:
                out.write("gpushare-manifest 1\n" + line + "\n")
            status, _, err = run("--tree", self.folder, "--restore")
            self.assertEqual((status, "line 2 is not valid" in err), (1, True), (line, err))

    def test_listed_path_through_a_link_is_left_alone(self):
        outside = tempfile.mkdtemp(prefix="gpushare-tree.")
        self.addCleanup(shutil.rmtree, outside)
        self.assertEqual(run("--tree", self.folder)[0], 0)
        shutil.move(self.path("bin"), outside)  # what is listed as bin/uses lies outside now
        os.symlink(os.path.join(outside, "bin"), self.path("bin"))
        self.assertEqual(run("--check", os.path.join(outside, "bin", "uses"))[0], 0)
        status, _, err = run("--tree", self.folder, "--restore")
        self.assertEqual((status, self.path("bin/uses") + ": is listed, but is now a link" in err), (1, True), err)
        self.assertEqual(run("--check", os.path.join(outside, "bin", "uses"))[0], 0)
        self.assertEqual(run("--check", self.path("lib/cuda, too.so"))[0], 0)
        os.unlink(self.path("bin"))
        shutil.move(os.path.join(outside, "bin"), self.path("moved"))
        os.symlink("moved", self.path("bin"))  # a link inside the folder is as good as a folder
        self.assertEqual(run("--tree", self.folder, "--restore")[0], 0)
        self.assertEqual(run("--check", self.path("moved/uses"))[0], 4)

    def test_second_run_leaves_true_records_alone(self):
        record = self.path("lib/x-1.dist-info/RECORD")
        self.assertEqual(run("--tree", self.folder)[0], 0)
        before = os.stat(record).st_ino
        status, out, _ = run("--tree", self.folder)
        self.assertEqual((status, "wheel records" in out, os.stat(record).st_ino), (0, False, before), out)

    def test_record_of_a_record_is_kept_true(self):
        """Wheels that carry other wheels' folders list the RECORD in there with its hash."""
        inner, middle, outer = ("lib/x-1.dist-info/RECORD", "mid-1.dist-info/RECORD", "a-1.dist-info/RECORD")
        lines = lambda *paths: "".join(record_line(self.folder, path) for path in paths)
        for path, listed in ((middle, (inner, "bin/uses")), (outer, (middle, "lib/text"))):
            os.makedirs(os.path.dirname(self.path(path)))
            with open(self.path(path), "w", newline="") as out:
                out.write(lines(*listed) + path + ",,\n")
        before = self.snapshot()
        is_true = lambda: (open(self.path(middle), newline="").read() == lines(inner, "bin/uses") + middle + ",,\n" and
                           open(self.path(outer), newline="").read() == lines(middle, "lib/text") + outer + ",,\n")
        self.assertTrue(is_true())
        stale = {path: open(self.path(path), "rb").read() for path in (middle, outer)}
        self.assertEqual(run("--tree", self.folder)[0], 0)
        self.assertTrue(is_true())
        self.assertTrue({middle, outer, inner} < set(self.changed(before)))
        for path in stale:  # as if an earlier run had died before it came to this one
            open(self.path(path), "wb").write(stale[path])
            self.assertEqual(run("--tree", self.folder)[0], 0)
            self.assertTrue(is_true(), path)
        self.assertEqual(run("--tree", self.folder, "--restore")[0], 0)
        self.assertEqual(self.changed(before), [])

    def test_records_that_list_each_other_end(self):
        one, two = "a-1.dist-info/RECORD", "b-1.dist-info/RECORD"
        for path in (one, two):
            os.makedirs(os.path.dirname(self.path(path)))
            open(self.path(path), "w").close()
        for path, listed in ((one, two), (two, one)):
            with open(self.path(path), "w", newline="") as out:
                out.write(record_line(self.folder, listed) + record_line(self.folder, "bin/uses"))
        status, _, err = run("--tree", self.folder)
        self.assertEqual((status, "list each other" in err), (1, True), err)
        self.assertEqual(run("--check", self.path("bin/uses"))[0], 0)

    def test_manifest_lists_nothing_that_was_not_patched(self):
        self.build("big/uses", LOADS + " char room[2 << 20] = {1};")
        os.mkdir(self.path("other"))
        manifest, big, other = self.path(".gpushare-manifest"), "file big/uses\n", shutil.copy(OPTIONS.runtime, self.path("other/libgpushare.so.1"))
        before = self.snapshot()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # there is no room for the large one
        limited = lambda folder, runtime: subprocess.run([OPTIONS.patch, "--runtime", runtime, "--tree", folder], stdout=subprocess.DEVNULL,
                                                         stderr=subprocess.PIPE, preexec_fn=limit)
        done = limited(self.path("big"), OPTIONS.runtime)
        self.assertEqual((done.returncode, b"File too large" in done.stderr), (1, True), done)
        self.assertEqual(self.changed(before), [])
        self.assertEqual(limited(self.folder, OPTIONS.runtime).returncode, 1)
        listed = open(manifest).read()
        self.assertEqual((big in listed, "file bin/uses\n" in listed), (False, True), listed)
        self.assertEqual(run("--tree", self.folder)[0], 0)
        self.assertIn(big, open(manifest).read())
        self.assertEqual(limited(self.folder, other).returncode, 1)  # and is as it was before
        self.assertIn(big, open(manifest).read())
        self.assertEqual(run("--tree", self.folder, "--restore")[0], 0)
        self.assertEqual(self.changed(before), [])

    def test_what_a_killed_run_has_left_is_named_and_removed(self):
        def leave():
            os.symlink("x", self.path("bin/.gpushare-patch.0"))
            open(self.path("lib/.gpushare-patch.1"), "w").close()
            os.mkdir(self.path("lib/.gpushare-patch.2"), 0o700)
            shutil.copy(self.path("bin/uses"), self.path("lib/.gpushare-patch.2/new"))
        at_work = open(self.path("bin/.gpushare-patch.3"), "w")
        self.addCleanup(at_work.close)
        fcntl.flock(at_work, fcntl.LOCK_EX)  # of a run that is at work
        before = self.snapshot()
        leave()
        for args in ([], ["--restore"]):
            self.assertEqual(run("--tree", self.folder, *args)[0], 0)
            self.assertEqual([p for p in self.changed(before) if ".gpushare-patch" in p], [])
            leave()
            left = self.snapshot()
            for more in (["--dry-run"], ["--print"]):
                run("--tree", self.folder, *more)
            _, _, err = run("--tree", self.folder, "--check")
            for name in ("bin/.gpushare-patch.0", "lib/.gpushare-patch.1", "lib/.gpushare-patch.2"):
                self.assertIn(self.path(name) + ": was left behind by a killed run", err)
            self.assertEqual(self.changed(left), [])
        self.assertEqual(run("--tree", self.folder, "--restore")[0], 4)  # nothing listed any more
        self.assertEqual(self.changed(before), [])

    def test_one_bad_record_stops_no_other(self):
        bad, odd = self.path("lib/a-1.dist-info/RECORD"), "odd\nname.so"
        os.makedirs(os.path.dirname(bad))
        with open(bad, "w") as out:
            out.truncate(257 << 20)
        os.rename(self.path("lib/cuda, too.so"), self.path("lib", odd))
        record, root = self.path("lib/x-1.dist-info/RECORD"), self.path("lib")
        with open(record, "w", newline="") as out:
            out.write(record_line(root, odd) + record_line(root, "text").replace("\n", "\r\n") + '"open quote,x\n')
        status, _, err = run("--tree", self.folder)
        self.assertEqual((status, bad + ": is too large" in err), (1, True), err)
        self.assertEqual(open(record, newline="").read(), record_line(root, odd) +
                         record_line(root, "text").replace("\n", "\r\n") + '"open quote,x\n')

    def test_excluded_is_not_restored_and_stays_listed(self):
        self.assertEqual(run("--tree", self.folder)[0], 0)
        status, out, _ = run("--tree", self.folder, "--restore", "--exclude", "old", "--exclude", "*too.so")
        self.assertEqual((status, out.count(": restored")), (0, 1), out)
        self.assertEqual([run("--check", self.path(p))[0] for p in ("bin/uses", "old/uses", "lib/cuda, too.so")], [4, 0, 0])
        status, out, _ = run("--tree", self.folder, "--restore")
        self.assertEqual((status, out.count(": restored")), (0, 2), out)
        self.assertFalse(os.path.exists(self.path(".gpushare-manifest")))

    def test_check_with_json_says_nothing_else(self):
        self.assertEqual(run("--tree", self.folder)[0], 0)
        os.unlink(self.path("old/uses"))
        status, out, err = run("--tree", self.folder, "--check", "--json")
        self.assertEqual([json.loads(line)["exit"] for line in out.splitlines()], [0, 0])
        self.assertEqual((status, self.path("old/uses") + ": no longer exists" in err), (0, True), err)

    def test_names_of_one_file_stay_one_file(self):
        names = [self.path(p) for p in ("bin/uses", "bin/other", "envs/uses")]
        os.mkdir(self.path("envs"))
        for name in names[1:]:
            os.link(names[0], name)
        outside = self.folder + ".outside"
        os.link(names[0], outside)
        self.addCleanup(os.unlink, outside)
        before = self.snapshot()
        for args in ([], [], ["--restore"]):
            self.assertEqual(run("--tree", self.folder, "--jobs", "3", *args)[0], 0)
            self.assertEqual(len({os.stat(name).st_ino for name in names}), 1)
            self.assertEqual(run("--check", names[2])[0], 4 if args else 0)
        self.assertEqual(self.changed(before), [])
        self.assertEqual(open(outside, "rb").read(), open(names[0], "rb").read())

    def test_only_one_run_at_a_time_changes_a_folder(self):
        before = self.snapshot()
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        for args in ([], ["--restore"]):
            status, _, err = run("--tree", self.folder, *args)
            self.assertEqual((status, self.folder + ": another gpushare-patch" in err), (1, True), err)
        self.assertEqual(run("--tree", self.folder, "--dry-run")[0], 0)
        self.assertEqual(self.changed(before), [])

    def test_manifest_that_is_no_file(self):
        os.mkfifo(self.path(".gpushare-manifest"))
        status, _, err = run("--tree", self.folder)
        self.assertEqual((status, "is not a regular file; remove it" in err), (1, True), err)

    def test_who_stops_reading_does_not_stop_the_work(self):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([OPTIONS.patch, "--runtime", OPTIONS.runtime, "--tree", self.folder, "--jobs", "1"],
                              stdout=write, stderr=subprocess.PIPE, timeout=600)
        os.close(write)
        self.assertEqual((done.returncode, b"cannot write to standard output" in done.stderr), (0, True), done)
        self.assertEqual(run("--tree", self.folder, "--check")[0], 0)
        self.assertIn(record_line(self.path("lib"), "cuda, too.so"), open(self.path("lib/x-1.dist-info/RECORD")).read())

    def as_nobody(self, *args):
        """Patches the tree as somebody who owns what is in it."""
        patch, runtime = copy_for_others(self, OPTIONS.patch, OPTIONS.runtime)
        os.chmod(self.folder, 0o777)
        for path in ("bin", "lib", "lib/x-1.dist-info", "lib/x-1.dist-info/RECORD", "lib/cuda, too.so", "old", "old/uses"):
            os.chown(self.path(path), 65534, 65534)
        return tool.run("--runtime", runtime, "--tree", self.folder, *args, tool_path=patch, **AS_OTHER_USER)[::2]

    @AS_ROOT
    def test_what_may_not_be_read_is_named(self):
        os.chmod(self.path("bin/uses"), 0o711)
        status, errors = self.as_nobody()
        self.assertEqual((status, self.path("bin/uses") + ": cannot open" in errors), (1, True), errors)
        self.assertEqual(run("--check", self.path("old/uses"))[0], 0)

    @AS_ROOT
    def test_what_may_not_be_looked_at_is_named(self):
        os.chmod(self.path("old"), 0o666)  # its names can be read, but not what they are
        status, errors = self.as_nobody()
        self.assertEqual((status, self.path("old/uses") + ": cannot read its attributes (--exclude" in errors), (1, True), errors)

    @AS_ROOT
    def test_folder_that_may_not_be_looked_into_can_be_left_out(self):
        os.chmod(self.path("old"), 0o666)
        status, errors = self.as_nobody("--exclude", "bin", "--exclude", "old")
        self.assertEqual((status, errors), (0, ""))

    def test_path_that_is_too_long_is_named(self):
        at = os.open(self.folder, os.O_RDONLY)
        for _ in range(17):
            os.mkdir("d" * 250, dir_fd=at)
            at, before = os.open("d" * 250, os.O_RDONLY, dir_fd=at), at
            os.close(before)
        os.close(at)
        status, _, errors = run("--tree", self.folder)
        self.assertEqual((status, "File name too long" in errors, len(errors.splitlines())), (1, True, 1), errors)
        subprocess.run(["rm", "-r", self.path("d" * 250)], check=True)

    def test_usage(self):
        for args in (["--tree", "a", "b"], ["--tree", "a", "--venv", "b"], ["--jobs", "2", "b"], ["--exclude", "x", "b"],
                     ["--tree", "a", "--jobs", "0"], ["--tree", "a", "-o", "b"], ["--tree", "a", "--json"]):
            self.assertEqual(run(*args)[0], 2, args)


if __name__ == "__main__":
    tool.main()
