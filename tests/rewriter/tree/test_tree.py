#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-patch --tree and --venv: what they choose, patch, list, check and give back, byte for byte."""
import base64
import fcntl
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tool
from other_user import AS_OTHER_USER, copy_for_others, make_folder
from tool import OPTIONS

LOADS = '#include <dlfcn.h>\nint %s(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }'
PLAIN = '#include <dlfcn.h>\nint %s(void) { return dlsym(RTLD_DEFAULT, "puts") == 0; }'


def run(*args):
    return tool.run("--runtime", OPTIONS.runtime, *args)


def record_line(root, path):
    data = open(os.path.join(root, path), "rb").read()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    name = f'"{path}"' if "," in path or "\n" in path else path
    return f"{name},sha256={digest},{len(data)}\n"


AS_ROOT = unittest.skipUnless(os.geteuid() == 0, "only root can make files of others")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder("gpushare-tree.")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def build(self, name, source, *flags):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", path, *flags],
                       input=(source % ("f" if "-shared" in flags else "main")).encode(), check=True)
        return path

    def snapshot(self):
        """Every path with what it is."""
        found = {}
        for at, folders, files in os.walk(self.folder):
            for name in folders + files:
                path = os.path.join(at, name)
                found[path] = ("link " + os.readlink(path) if os.path.islink(path) else
                               "folder" if os.path.isdir(path) else open(path, "rb").read())
        return found

    def changed(self, before):
        now = self.snapshot()
        return sorted(os.path.relpath(p, self.folder) for p in set(now) | set(before) if now.get(p) != before.get(p))


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


class Venv(Case):
    def setUp(self):
        super().setUp()
        self.env = self.path("env")
        if subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", self.env], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("the system has no python3 with venv")

    def test_link_becomes_a_patched_copy_and_a_link_again(self):
        before, python = self.snapshot(), os.path.join(self.env, "bin", "python3")
        self.assertTrue(os.path.islink(python))
        status, out, err = run("--venv", self.env)
        self.assertEqual((status, err), (0, ""), out)
        self.assertFalse(os.path.islink(python))
        self.assertEqual(run("--check", python)[0], 0)
        got = subprocess.run([os.path.join(self.env, "bin", "python"), "-c", "import sys; print(sys.prefix)"],
                             stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        self.assertEqual(got, self.env)
        self.assertEqual(run("--venv", self.env, "--check")[0], 0)
        patched = self.snapshot()
        self.assertEqual(run("--venv", self.env)[0], 0)
        self.assertEqual(self.snapshot(), patched)
        self.assertEqual(run("--venv", self.env, "--restore")[0], 0)
        self.assertEqual(self.changed(before), [])

    def test_check_sees_another_interpreter(self):
        python = os.path.join(self.env, "bin", "python3")
        self.assertEqual(run("--venv", self.env)[0], 0)
        os.unlink(python)
        shutil.copy("/usr/bin/python3", python)
        status, _, err = run("--venv", self.env, "--check")
        self.assertEqual((status, "is not a patched copy of" in err), (1, True), err)

    def relocatable(self):
        """An environment whose interpreter finds its library from where it lies, as those of uv and conda do."""
        library = self.build("base/lib/libpython9.so", "int %s(void) { return 0; }", "-shared", "-Wl,-soname,libpython9.so")
        base = self.build("base/bin/python3.11", "int f(void); int %s(void) { return f(); }", "-xnone", library,
                          "-Wl,-rpath,/nowhere:$ORIGIN/../lib:${ORIGIN}")
        os.makedirs(self.path("made/bin"))
        open(self.path("made/pyvenv.cfg"), "w").write("home = " + os.path.dirname(base))
        os.symlink(base, self.path("made/bin/python"))
        os.symlink("./python", self.path("made/bin/python3"))
        return base, self.path("made/bin/python")

    def test_interpreter_that_finds_its_library_from_where_it_lies(self):
        base, python = self.relocatable()
        before, env = self.snapshot(), self.path("made")
        for _ in range(2):
            self.assertEqual(run("--venv", env)[0], 0)
            self.assertEqual([subprocess.run([python + end]).returncode for end in ("", "3")], [0, 0])
        self.assertEqual(run("--venv", env, "--check")[0], 0)
        needed = subprocess.run(["readelf", "-dW", python], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertIn(f"/nowhere:{self.path('base/bin')}/../lib:{self.path('base/bin')}]", needed)
        os.mkdir(self.path("other"))  # patched again by itself it still finds it
        other = shutil.copy(OPTIONS.runtime, self.path("other/libgpushare.so.1"))
        self.assertEqual(run("--runtime", other, python)[0], 0)
        self.assertEqual(subprocess.run([python]).returncode, 0)
        status, _, err = run("--restore", python)  # and as it was it would not
        self.assertEqual((status, "--venv DIR --restore" in err), (3, True), err)
        self.assertEqual(subprocess.run([python]).returncode, 0)
        shutil.rmtree(self.path("other"))
        self.assertEqual(run("--venv", env, "--restore")[0], 0)
        self.assertEqual(self.changed(before), [])

    def test_interpreter_of_another_name(self):
        base = self.build("base/bin/plain", "int %s(void) { return 0; }")
        for links, copy in (({"python": "python3.13t", "python3": "python3.13t", "python3.13t": base}, "bin/python3.13t"),
                            ({"python3": "pypy3", "python": "pypy3", "pypy3": base}, "bin/pypy3"),
                            ({"python": "graalpy", "graalpy": base}, "bin/graalpy"),
                            ({"python3.11d": base}, "bin/python3.11d"),
                            ({"python": "ENV/bin/other", "other": "../libexec/run", "../libexec/run": "../../base/bin/plain"}, "libexec/run"),
                            ({"python": "python3", "python3": "python"}, None), ({"python": "missing"}, None)):
            env = self.path("odd")
            os.makedirs(env + "/bin")
            os.makedirs(env + "/libexec")
            open(env + "/pyvenv.cfg", "w").close()
            for name, target in links.items():
                os.symlink(target.replace("ENV", env), os.path.join(env, "bin", name))
            before = self.snapshot()
            for _ in range(2):
                status, out, err = run("--venv", env)
                self.assertEqual((status, err if copy else ""), (0 if copy else 4, ""), (links, out, err))
            self.assertEqual(self.changed(before), ["odd/.gpushare-manifest", "odd/" + copy] if copy else [])
            if copy:
                self.assertEqual(subprocess.run([os.path.join(env, "bin", next(iter(links)))]).returncode, 0)
                self.assertEqual([run("--check", os.path.join(env, copy))[0], run("--venv", env, "--check")[0]], [0, 0])
                self.assertEqual(run("--venv", env, "--restore")[0], 0)
            self.assertEqual(self.changed(before), [])
            shutil.rmtree(env)

    def test_link_out_of_an_environment_is_not_followed(self):
        base, python = self.relocatable()
        os.symlink("made/bin/python3", self.path("elsewhere"))  # python3 -> ./python -> base
        before, env = self.snapshot(), self.path("made")
        for name in (python, self.path("made/bin/python3"), self.path("elsewhere")):
            for args in ([], ["--dry-run"], ["--force"]):
                status, _, err = run(*args, name)
                self.assertEqual((status, f"gpushare-patch --venv {env} " in err, f"to {base} outside" in err), (3, True, True), err)
            status, out, _ = run("--print", "--json", name)
            report = json.loads(out)
            self.assertEqual((status, report["exit"], report["environment"], "--venv" in report["problem"]), (3, 3, env, True), out)
        status, _, err = tool.run("--runtime", OPTIONS.runtime, "python3", cwd=self.path("made/bin"))
        self.assertEqual((status, f"--venv {env} " in err), (3, True), err)
        self.assertEqual(self.changed(before), [])
        self.assertEqual(run("-o", self.path("copy"), python)[0], 0)  # changes nothing outside
        self.assertEqual(self.changed(before), ["copy"])
        self.assertIsNone(json.loads(run("--print", "--json", base)[1])["environment"])
        self.assertEqual(run(base)[0], 0)
        self.assertIn("already patched", run(python)[1])  # nothing would be changed
        status, _, err = run("--restore", python)
        self.assertEqual((status, f"to {base} outside" in err), (3, True), err)
        self.assertEqual(run("--check", base)[0], 0)
        self.assertEqual(run("--restore", base)[0], 0)

    def test_link_inside_an_environment_is_followed(self):
        base, python = self.relocatable()
        os.unlink(python)
        shutil.copy(base, python)  # as venv --copies makes it
        self.assertEqual(run(self.path("made/bin/python3"))[0], 0)
        self.assertEqual([run("--check", path)[0] for path in (python, base)], [0, 4])

    def test_second_run_leaves_the_copy_alone(self):
        python = os.path.join(self.env, "bin", "python3")
        self.assertEqual(run("--venv", self.env)[0], 0)
        before = os.stat(python)
        status, out, _ = run("--venv", self.env)
        self.assertEqual((status, python + ": already patched" in out), (0, True), out)
        self.assertEqual(os.stat(python).st_ino, before.st_ino)

    def test_interpreter_that_is_patched_itself(self):
        base, python = self.relocatable()
        self.assertEqual(run(base)[0], 0)
        self.assertEqual(run("--venv", self.path("made"))[0], 0)
        self.assertEqual(subprocess.run([python]).returncode, 0)
        status, _, err = run("--venv", self.path("made"), "--check")
        self.assertEqual((status, err), (0, ""))

    def test_restore_leaves_alone_what_is_not_the_copy(self):
        python = os.path.join(self.env, "bin", "python3")
        self.assertEqual(run("--venv", self.env)[0], 0)
        os.unlink(python)
        shutil.copy("/bin/ls", python)
        status, out, _ = run("--venv", self.env, "--restore")
        self.assertEqual((status, "is no longer a patched copy" in out), (0, True), out)
        self.assertEqual(open(python, "rb").read(), open("/bin/ls", "rb").read())

    def test_not_a_venv(self):
        status, _, err = run("--venv", self.folder)
        self.assertEqual((status, "no pyvenv.cfg" in err), (1, True))


if __name__ == "__main__":
    tool.main()
