#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-patch where the system gets in its way: full disks, limits, rights, other file systems, attributes, and itself.

Whatever happens, the file is the complete old or the complete new one, nothing else is left in the folder, and the message
names the file. What this machine cannot do (mount, chattr, setcap) is skipped and says so.
"""
import os
import resource
import shutil
import struct
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import tool
from other_user import AS_OTHER_USER, copy_for_others, make_folder
from tool import OPTIONS

SOURCE = ('#include <dlfcn.h>\nint main(void) { void *h = dlopen("libcuda.so.1", 1); return h && !dlsym(h, "cuInit"); }\n'
          'char room[600000] = {1};')


def command(*args):
    return [OPTIONS.patch, "--runtime", OPTIONS.runtime, *args]


def run(*args, **kw):
    return tool.run("--runtime", OPTIONS.runtime, *args, **kw)


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Trouble(unittest.TestCase):
    def setUp(self):
        self.folder = make_folder("gpushare-trouble.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "program")
        subprocess.run(["gcc", "-w", "-x", "c", "-", "-o", self.path], input=SOURCE.encode(), check=True)
        self.before = read(self.path)

    def must(self, *args):
        """Runs a command that this machine may not allow."""
        if not shutil.which(args[0]):
            self.skipTest(args[0] + " is not installed")
        done = subprocess.run(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode:
            self.skipTest(" ".join(args) + ": " + done.stderr.decode("utf-8", "replace").strip())

    def left_alone(self, got, text, path=None):
        path = path or self.path
        self.assertEqual(got[0], 1, got)
        self.assertIn(text, got[2])
        self.assertIn(path, got[2])
        self.assertEqual(len(got[2].strip().splitlines()), 1, got)
        self.assertEqual(read(path), self.before)
        self.assertEqual([f for f in os.listdir(os.path.dirname(path)) if f.startswith(".gpushare")], [])

    def mount(self, size, *more):
        at = os.path.join(self.folder, "small")
        os.mkdir(at)
        self.must("mount", "-t", "tmpfs", "-o", ",".join((f"size={size}k", *more)), "gpushare-test", at)
        self.addCleanup(subprocess.run, ["umount", at], check=True)
        return at

    def image(self, kind, mib):
        """A file system of that kind in a file, mounted."""
        at, image = os.path.join(self.folder, kind), os.path.join(self.folder, kind + ".img")
        os.mkdir(at)
        with open(image, "wb") as out:
            out.truncate(mib << 20)
        self.must("mkfs." + kind, "-q", image)
        self.must("mount", "-o", "loop", image, at)
        self.addCleanup(subprocess.run, ["umount", at], check=True)
        return at

    def test_full_disk(self):
        at = self.mount(len(self.before) // 1024 + 300)
        path = shutil.copy(self.path, at)
        for more in ([], ["--no-sync"]):
            self.left_alone(run(*more, path), "free enough space for a second copy of the file): No space left", path)

    def test_file_size_limit(self):
        size = len(self.before)
        for limit in (4096, size - 1, size + 10):
            got = run(self.path, preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            self.left_alone(got, "ulimit -f): File too large")

    def test_small_stack(self):
        small = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_STACK, (65536, 65536))}
        self.assertEqual(run("--print", self.path, **small)[0], 0)
        self.assertEqual(run(self.path, **small)[0], 0)
        self.assertEqual(run("--check", self.path, **small)[0], 0)
        subprocess.run(["strip", self.path], check=True)
        self.assertEqual(run("--restore", self.path, **small)[0], 0)
        folder = os.path.dirname(self.path)
        for words in (["--any"], ["--check"], ["--restore"]):
            self.assertEqual(run(*words, "--tree", folder, **small)[0], 0, words)

    def test_tmpfs_patch_and_restore(self):
        path = shutil.copy(self.path, self.mount(8192))
        self.assertEqual(run(path)[0], 0)
        self.assertNotEqual(read(path), self.before)
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(read(path), self.before)

    def test_output_to_another_file_system(self):
        out = os.path.join(self.mount(8192), "out")
        self.assertEqual(run("-o", out, self.path)[0], 0)
        self.assertEqual(read(self.path), self.before)
        self.assertEqual(run("--restore", out)[0], 0)
        self.assertEqual(read(out), self.before)

    def test_read_only_file_system(self):
        at = self.mount(8192)
        path = shutil.copy(self.path, at)
        self.must("mount", "-o", "remount,ro", at)
        self.left_alone(run(path), "mount it writable): Read-only file system", path)

    def test_folder_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        patch, runtime = copy_for_others(self, OPTIONS.patch, OPTIONS.runtime)
        for mode, text in ((0o755, "a user who may write there): Permission denied"), (0o777, "run this as that user or as root")):
            os.chmod(self.folder, mode)
            self.left_alone(tool.run("--runtime", runtime, self.path, tool_path=patch, **AS_OTHER_USER), text)

    def test_mount_point(self):
        point = os.path.join(self.folder, "point")
        open(point, "w").close()
        self.must("mount", "--bind", self.path, point)
        self.addCleanup(subprocess.run, ["umount", point], check=True)
        self.left_alone(run(point), "is a mount point", point)

    def test_no_programs_may_run_there(self):
        path = shutil.copy(self.path, self.mount(8192, "noexec"))
        self.assertEqual(run(path)[0], 0)
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(read(path), self.before)

    def chroot(self):
        """A folder with what gpushare-patch needs to run in it as the root folder, but without /proc and /dev."""
        if os.geteuid() != 0:
            self.skipTest("only root can change its root folder")
        root = os.path.join(self.folder, "root")
        libraries = subprocess.run(["ldd", OPTIONS.patch], stdout=subprocess.PIPE, check=True).stdout.decode().split()
        for path in {p for p in libraries if p.startswith("/")} | {OPTIONS.runtime, OPTIONS.patch}:
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            shutil.copy(path, root + path)
        shutil.copy(self.path, root)
        return root

    def test_image_that_is_being_made(self):
        root = self.chroot()
        path, enter = root + "/program", {"preexec_fn": lambda: os.chroot(root), "cwd": "/"}
        status, _, err = run("/program", **enter)
        self.assertEqual((status, "/proc is not mounted; mount it" in err), (1, True), err)
        self.assertEqual(read(path), self.before)
        os.mkdir(root + "/proc")
        self.must("mount", "--bind", "/proc", root + "/proc")
        self.addCleanup(subprocess.run, ["umount", root + "/proc"], check=True)
        self.assertEqual(run("/program", **enter)[::2], (0, ""))
        self.assertEqual(run("--restore", "/program", **enter)[::2], (0, ""))
        self.assertEqual(read(path), self.before)

    def test_kernels_folders_below_a_tree(self):
        for name in ("proc", "sys"):
            os.mkdir(os.path.join(self.folder, name))
            self.must("mount", "--bind", "/" + name, os.path.join(self.folder, name))
            self.addCleanup(subprocess.run, ["umount", os.path.join(self.folder, name)], check=True)
        status, out, err = run("--tree", self.folder, "--dry-run")
        self.assertEqual((status, err, out.count("would be patched")), (0, "", 1), out)

    def test_overlay_file_system(self):
        at = self.mount(8192)
        for name in ("lower", "upper", "work", "merged"):
            os.mkdir(os.path.join(at, name))
        shutil.copy(self.path, os.path.join(at, "lower"))
        self.must("mount", "-t", "overlay", "-o", f"lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work", "gpushare-test",
                  at + "/merged")
        self.addCleanup(subprocess.run, ["umount", at + "/merged"], check=True)
        path = at + "/merged/program"
        self.assertEqual(run(path)[0], 0)
        self.assertEqual((read(at + "/lower/program"), read(at + "/upper/program")), (self.before, read(path)))
        self.assertEqual(run("--restore", path)[0], 0)
        self.assertEqual(read(path), self.before)

    def test_blocks_are_shared_where_they_can_be(self):
        for kind, mib in (("btrfs", 128), ("xfs", 320)):
            with self.subTest(kind):
                at = self.image(kind, mib)
                path, out = os.path.join(at, "program"), os.path.join(at, "out")
                shutil.copy(self.path, path)
                os.sync()
                self.assertEqual(run("-o", out, path)[0], 0)
                shared = subprocess.run(["filefrag", "-v", out], stdout=subprocess.PIPE, check=True).stdout.decode()
                self.assertIn("shared", shared)
                self.assertEqual(subprocess.run([out]).returncode, 0)
                self.assertEqual(run("--restore", out)[0], 0)
                self.assertEqual(read(out), self.before)

    def test_file_system_without_files_that_have_no_name(self):
        """As NFS: the new file has a name from the start. A library says so in its place."""
        shim = os.path.join(self.folder, "shim.so")
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", shim], check=True, input=b"""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <errno.h>
            #include <fcntl.h>
            long hook(long a, long b, long flags, long mode) __asm__("openat");
            long hook(long a, long b, long flags, long mode)
            {
                long (*real)(long, long, long, long) = dlsym(RTLD_NEXT, "openat");
                if ((flags & O_TMPFILE) != O_TMPFILE)
                    return real(a, b, flags, mode);
                errno = EOPNOTSUPP;
                return -1;
            }""")
        environment = {"env": {**os.environ, "LD_PRELOAD": shim, "ASAN_OPTIONS": "verify_asan_link_order=0"}}
        names = sorted(os.listdir(self.folder))
        for mode in (0o755, 0o4755):
            os.chmod(self.path, mode)
            for args in (["--force"], ["--restore"]):
                self.assertEqual(run(*args, self.path, **environment)[::2], (0, ""))
                self.assertEqual((sorted(os.listdir(self.folder)), os.stat(self.path).st_mode & 0o7777), (names, mode))
            self.assertEqual(read(self.path), self.before)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        self.left_alone(run("--force", self.path, preexec_fn=limit, **environment), "File too large")

    def test_immutable_file(self):
        self.must("chattr", "+i", self.path)
        self.addCleanup(subprocess.run, ["chattr", "-i", self.path], check=True)
        self.left_alone(run(self.path), "lsattr, ls -ld): Operation not permitted")

    def test_folder_that_only_grows(self):
        self.must("chattr", "+a", self.folder)
        self.addCleanup(subprocess.run, ["chattr", "-a", self.folder], check=True)
        self.left_alone(run(self.path), "lsattr, ls -ld): Operation not permitted")

    def test_access_list_is_kept(self):
        entries = [(1, 7, -1), (2, 5, 1234), (4, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]  # acl(5): tag, rights, user
        try:
            os.setxattr(self.path, "system.posix_acl_access",
                        struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries))
        except OSError as error:
            self.skipTest(f"no access lists here: {error}")
        wanted = os.getxattr(self.path, "system.posix_acl_access")
        for args in ([], ["--restore"]):
            self.assertEqual(run(*args, self.path)[0], 0)
            self.assertEqual(os.getxattr(self.path, "system.posix_acl_access"), wanted)

    def test_default_access_list_of_the_folder_gives_no_new_rights(self):
        entries = [(1, 7, -1), (2, 7, 1234), (4, 7, -1), (0x10, 7, -1), (0x20, 5, -1)]
        os.chmod(self.path, 0o700)
        try:
            os.setxattr(self.folder, "system.posix_acl_default",
                        struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries))
        except OSError as error:
            self.skipTest(f"no access lists here: {error}")
        for args in ([], ["--restore"], ["-o", os.path.join(self.folder, "out")]):
            self.assertEqual(run(*args, self.path)[0], 0)
            path = args[-1] if len(args) == 2 else self.path
            self.assertNotIn("system.posix_acl_access", os.listxattr(path), args)
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o700)

    def test_capabilities_need_force_and_are_kept(self):
        self.must("setcap", "cap_net_raw+ep", self.path)
        wanted = os.getxattr(self.path, "security.capability")
        got = run(self.path)
        self.assertEqual((got[0], "file capabilities" in got[2]), (3, True), got)
        self.assertEqual(read(self.path), self.before)
        self.assertEqual(run("--force", self.path)[0], 0)
        self.assertEqual(os.getxattr(self.path, "security.capability"), wanted)
        out = os.path.join(self.folder, "out")  # a copy elsewhere gets no rights
        self.assertEqual(run("--force", "-o", out, self.path)[0], 0)
        self.assertNotIn("security.capability", os.listxattr(out))

    def test_ima_signature_is_dropped_with_a_warning(self):
        try:
            os.setxattr(self.path, "security.ima", b"\x04signature")
        except OSError as error:
            self.skipTest(f"security.ima cannot be set here: {error}")
        status, out, err = run(self.path)
        self.assertEqual((status, "sign the new file again" in out), (0, True), err)
        self.assertNotIn("security.ima", os.listxattr(self.path))

    def test_several_at_once_on_one_file(self):
        for args in ([], ["--restore"]):
            runs = [subprocess.Popen(command(*args, self.path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    for _ in range(6)]
            ends = [(p.communicate(timeout=600)[1].decode(), p.returncode) for p in runs]
            self.assertIn(0, [e[1] for e in ends], ends)
            for text, status in ends:  # the others saw another file than they had read, or nothing left to do
                self.assertTrue(status in (0, 4) or "changed it in the meantime" in text or "No such file" in text, (text, status))
            check = run("--check", self.path)
            self.assertEqual(check[0], 4 if args else 0, check)
        self.assertEqual(read(self.path), self.before)
        self.assertEqual(os.listdir(self.folder), ["program"])

    def test_two_trees_at_once(self):
        for i in range(8):
            shutil.copy(self.path, os.path.join(self.folder, f"program{i}"))
        runs = [subprocess.Popen(command("--tree", self.folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                for _ in range(2)]
        for p in runs:
            p.communicate(timeout=600)
        self.assertEqual(run("--tree", self.folder)[0], 0)
        self.assertEqual(run("--tree", self.folder, "--check")[0], 0)
        self.assertEqual(run("--tree", self.folder, "--restore")[0], 0)
        for i in range(8):
            self.assertEqual(read(os.path.join(self.folder, f"program{i}")), self.before)


if __name__ == "__main__":
    tool.main()
