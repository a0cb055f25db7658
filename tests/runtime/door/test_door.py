#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fourth door: unpatched programs on the simulated card, with the door in the driver's place by LD_LIBRARY_PATH and by a
mount. test_door.py --build DIR"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))
from card import OPTIONS, PATIENCE, Card, main  # noqa: E402  (tests/runtime)
from other_user import AS_OTHER_USER, is_reachable  # noqa: E402  (tests)

NAMESPACE = "no mount namespace of its own"

# what programs do with the driver's library, told as JSON
ASKS = """
import ctypes, json, os, sys
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]
def place(function):
    info = Info()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    return info.file.decode(), info.name.decode() if info.name else None
def driver(name="libcuda.so.1", mode=os.RTLD_NOW):
    return ctypes.CDLL(name, mode)
"""


def built(*path):
    return os.path.join(OPTIONS.build, *path)


def names_of(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[2] for line in out.splitlines() if line.split()[2].startswith("cu")}


class Door(unittest.TestCase):
    def setUp(self):
        self.card = Card(OPTIONS.build, memory="256MiB", SIMCUDA_CONTEXT_MEMORY="64KiB")
        self.addCleanup(self.card.__exit__)
        self.plain = dict(self.card.environment)
        self.stats = os.path.join(self.card.folder, "stats")
        self.stage = os.path.join(self.card.folder, "stage")

    def door(self, *words, **more):
        return self.card.run([built("wrap", "gpushare-door"), *words], **more)

    def staged(self, **more):
        """An environment in which the loader finds the door."""
        code, out, err = self.door("--stage", self.stage, **more)
        self.assertEqual((code, out, err), (0, "", ""))
        return {"LD_LIBRARY_PATH": self.stage}

    def mounted(self, command, **more):
        """The command with the door mounted over the simulated driver's library."""
        code, out, err = self.door("-d", os.path.join(self.card.folder, "mount"), "--", *command, **more)
        if NAMESPACE in err:
            self.skipTest(err.strip())
        return code, out, err

    def ask(self, program, run=None, **more):
        run = run or self.card.run
        code, out, err = run([sys.executable, "-c", ASKS + textwrap.dedent(program)], **more)
        self.assertEqual((code, err), (0, ""), program)
        return json.loads(out)

    def counted(self, calls=1):
        with open(self.stats, encoding="utf-8") as file:
            stats = json.load(file)
        os.remove(self.stats)
        self.assertGreaterEqual(stats["gated_calls"], calls, stats)
        self.assertEqual(stats["escaped"], 0, stats)
        return stats

    def sample(self, name):
        more = {"SIMCUDA_KERNELS": built("samples", name + "_standin.so")} if name not in ("driver_api", "dlopen_driver", "vmm") \
            else {"SIMCUDA_KERNELS": built("samples", "driver_standin.so")}
        return [built("samples", name)], dict(more, GPUSHARE_STATS=self.stats)

    # --- names

    def test_every_name_of_the_driver_leads_to_the_door(self):
        names = sorted(names_of(built("tests", "simcuda", "libcuda.so.1")))
        self.assertGreaterEqual(len(names), 637)
        self.assertEqual(set(names) - names_of(built("runtime", "door", "libcuda.so.1")), set())
        found = self.ask(f"library = driver()\nprint(json.dumps([place(getattr(library, name)) for name in {names!r}]))",
                         **self.staged())
        self.assertEqual({file for file, _ in found}, {os.path.join(self.stage, "libcuda.so.1")})

    def test_names_that_the_table_does_not_have_are_the_drivers(self):
        more = self.staged(LD_LIBRARY_PATH=built("tests", "runtime", "door", "driver"))
        answers = self.ask("""
            library = driver()
            session = ctypes.c_int.in_dll(library, "cudbgSessionId")
            print(json.dumps([library.cuInit(0), library.cudbgGetAPI(1, 2, 3, ctypes.byref(session)), session.value,
                              library.cuOfALaterRelease(), hasattr(library, "cuNoSuchThing"), library.cuDriverGetVersion(None)]))
            """, **more)
        self.assertEqual(answers, [0, 6, 7, 77, False, 801])  # 801: not supported, since this driver does not have it

    def test_path_and_version_are_the_drivers(self):
        program = """
            library, version = driver(), ctypes.c_int()
            table = ctypes.c_void_p()
            print(json.dumps([library.cuInit(0), library.cuDriverGetVersion(ctypes.byref(version)), version.value,
                              library.cuGetExportTable(ctypes.byref(table), bytes(16)), place(library.cuInit)[1],
                              place(library.cuInit)[0], place(library.cuDriverGetVersion)[0]]))
            """
        plain, through = self.ask(program), self.ask(program, run=self.mounted)
        self.assertEqual(through, plain)  # the path as well: it is mounted there

    def test_absolute_path_is_the_same_library(self):
        path = built("tests", "simcuda", "libcuda.so.1")
        same = self.ask(f"print(json.dumps(driver()._handle == driver({path!r})._handle))", run=self.mounted)
        self.assertTrue(same)

    def test_every_way_to_name_it_is_the_same_library(self):
        names = ["libcuda.so", os.path.join(self.stage, "libcuda.so.1")]
        same = self.ask(f"print(json.dumps([driver(name)._handle == driver()._handle for name in {names!r}]))", **self.staged())
        self.assertEqual(same, [True, True])

    def test_deepbind_reaches_the_door(self):
        code, out, err = self.card.run([built("tests", "runtime", "escape"), "deepbind", built("tests", "runtime", "libdeepbind.so")],
                                       GPUSHARE_STATS=self.stats, **self.staged())
        self.assertEqual((code, out, err), (0, "", ""))
        self.counted(0)

    # --- programs

    def test_samples_in_a_staged_folder(self):
        more = self.staged()
        for name in ("vectoradd", "hog", "alloc_churn", "graph", "driver_api", "dlopen_driver", "vmm"):
            with self.subTest(name):
                command, environment = self.sample(name)
                code, out, err = self.card.run(command + ["--rounds", "2"], **environment, **more)
                self.assertEqual((code, err), (0, ""), out)
                self.counted()

    def test_samples_under_a_mount(self):
        for name in ("vectoradd", "driver_api", "dlopen_driver"):
            with self.subTest(name):
                command, environment = self.sample(name)
                code, out, err = self.mounted(command + ["--rounds", "2"], **environment)
                self.assertEqual((code, err), (0, ""), out)
                self.counted()

    def test_two_programs_share(self):
        more = self.staged()
        command, environment = self.sample("hog")
        del environment["GPUSHARE_STATS"]
        children = [self.card.start(command + ["--share", "0.7", "--rounds", "6"], **environment, **more) for _ in range(2)]
        for child in children:
            out, err = child.communicate(timeout=PATIENCE)
            self.assertEqual((child.returncode, err), (0, ""), out)

    def test_patched_program_has_one_library_that_works(self):
        command, environment = self.sample("hog")
        patched = os.path.join(self.card.folder, "hog-patched")
        subprocess.run([built("rewriter", "gpushare-patch"), "-q", "-o", patched, *command], check=True)
        code, out, err = self.card.run([patched, "--rounds", "2"], **environment)
        self.assertEqual((code, err), (0, ""), out)
        alone = self.counted()
        code, out, err = self.card.run([patched, "--rounds", "2"], **environment, **self.staged())
        self.assertEqual((code, err), (0, ""), out)
        both = self.counted()
        self.assertEqual([both[key] for key in ("lookups", "names")], [alone[key] for key in ("lookups", "names")])
        self.assertLess(both["gated_calls"], 1.5 * alone["gated_calls"])  # a call that waits counts twice

    def test_patched_library_in_an_unpatched_program(self):
        guest = os.path.join(self.card.folder, "guest.so")
        subprocess.run([built("rewriter", "gpushare-patch"), "-q", "--any", "-o", guest, built("tests", "runtime", "libguest.so")],
                       check=True)
        code, out, err = self.card.run([built("tests", "runtime", "host_program"), "guests", guest], GPUSHARE_STATS=self.stats,
                                       **self.staged())
        self.assertEqual((code, out, err), (0, "", ""))
        self.assertIn(self.counted()["gated_calls"], range(12, 18))  # a call that waits counts twice; if both gated, each would
        self.assertEqual(self.card.status().get("notes", []), [])

    def test_disabled(self):
        command, environment = self.sample("driver_api")
        code, out, err = self.card.run(command + ["--rounds", "1"], GPUSHARE_DISABLE="1", **environment, **self.staged())
        self.assertEqual((code, err), (0, ""), out)
        self.assertFalse(os.path.exists(self.stats))

    # --- the tool

    def test_ldconfig_keeps_the_door(self):
        """As a container's runtime does after its mounts: the link follows the file's SONAME, which is the door's too."""
        folder = os.path.join(self.card.folder, "lib")
        os.mkdir(folder)
        shutil.copy(built("tests", "simcuda", "libcuda.so.1"), os.path.join(folder, "libcuda.so.580.1"))
        os.symlink("libcuda.so.580.1", os.path.join(folder, "libcuda.so.1"))
        with open(os.path.join(self.card.folder, "ld.conf"), "w", encoding="ascii") as file:
            file.write(folder + "\n")
        # ldconfig is in no ordinary user's PATH
        script = f'PATH=$PATH:/sbin:/usr/sbin; cd {self.card.folder} && rm lib/libcuda.so.1 && ldconfig -C cache -f ld.conf && ' \
                 'ldconfig -C cache -p | grep libcuda && readlink lib/libcuda.so.1 && grep -c gpushare_door_driver lib/libcuda.so.1'
        code, out, err = self.mounted(["sh", "-c", script], LD_LIBRARY_PATH=folder)
        self.assertEqual((code, err), (0, ""), out)
        lines = out.splitlines()
        self.assertIn(f"=> {folder}/libcuda.so.1", lines[0])
        self.assertEqual((len(lines), lines[1]), (3, "libcuda.so.580.1"), out)

    def test_nothing_outside_changes(self):
        library = built("tests", "simcuda", "libcuda.so.1")
        with open(library, "rb") as file:
            before = file.read()
        self.mounted(["true"])
        with open(library, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_bind_wants_a_namespace_of_its_own(self):
        """By hand: `unshare -m`; never where others would get the door."""
        folder = os.path.join(self.card.folder, "mount")
        command, environment = self.sample("driver_api")
        tool = built("wrap", "gpushare-door")
        words = [tool, "-d", folder, "--bind"]
        inside = " ".join(words + ["&&", tool, "-d", folder, "--bind", "&&", tool, "--find", "&&", *command, "--rounds", "1"])
        code, out, err = self.card.run(["unshare", "-m", "sh", "-c", inside], **environment)
        if "unshare failed" in err:
            self.skipTest(err.strip())
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("libcuda.so.1 (a door)", out)
        self.counted()
        code, out, err = self.card.run(["unshare", "-m", "--propagation", "shared", *words])
        self.assertEqual((code, out), (1, ""))
        self.assertIn("begin with `unshare -m`", err)

    def test_mounts_that_fail_leave_the_driver(self):
        """A folder on a file system without programs, which only root may change: no door, and the driver's library as it was."""
        folder = os.path.join(self.card.folder, "noexec")
        os.mkdir(folder)
        tool = built("wrap", "gpushare-door")
        inside = f"{tool} -d {folder} --bind; echo $?; {tool} --find; grep -c libcuda /proc/self/mountinfo"
        outside = f"mount -t tmpfs -o noexec none {folder} || exit 77; exec unshare -Urm sh -c '{inside}'"
        code, out, err = self.card.run(["unshare", "-m", "sh", "-c", outside])
        if "unshare failed" in err or code == 77:
            self.skipTest(err.strip())
        self.assertIn("its file system allows no programs (noexec)", err)
        status, found, *_, mounts = out.splitlines()
        self.assertEqual((status, mounts), ("1", "0"), out)
        self.assertNotIn("(a door)", found)

    def test_compat_package_and_32_bits(self):
        """A second driver in /usr/local/cuda/compat gets the door as well; one of 32 bits is left alone."""
        folder = os.path.join(self.card.folder, "mount")
        script = f"""
            set -e
            mount -t tmpfs none /usr/local
            mkdir -p /usr/local/cuda-13.0/compat /usr/local/nvidia/lib
            cp {built("tests", "simcuda", "libcuda.so.1")} /usr/local/cuda-13.0/compat/libcuda.so.1
            printf '\\177ELF\\001\\001\\001' | dd of=/usr/local/nvidia/lib/libcuda.so.1 bs=64 conv=sync 2>/dev/null
            {built("wrap", "gpushare-door")} --find
            {built("wrap", "gpushare-door")} -d {folder} --bind
            LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/cuda-13.0/compat {built("samples", "driver_api")} --rounds 1
            """
        _, environment = self.sample("driver_api")
        code, out, err = self.card.run(["unshare", "-m", "sh", "-c", script], **environment)
        if "unshare failed" in err or "mount:" in err:
            self.skipTest(err.strip())
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("/usr/local/cuda-13.0/compat/libcuda.so.1", out)
        self.assertNotIn("/usr/local/nvidia/lib", out)
        self.counted()

    def test_ordinary_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user; everything else here runs as this one")
        if not is_reachable(built("wrap", "gpushare-door")):
            self.skipTest("other users cannot reach the build folder")
        folder = tempfile.mkdtemp(prefix="gs-door-")
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, AS_OTHER_USER["user"], AS_OTHER_USER["group"])
        environment = dict(self.plain, TMPDIR=folder, XDG_RUNTIME_DIR="", GPUSHARE_STATS=os.path.join(folder, "stats"),
                           SIMCUDA_CARD=folder, SIMCUDA_KERNELS=built("samples", "driver_standin.so"),
                           GPUSHARE_SOCKET=os.path.join(folder, "none.sock"), GPUSHARE_QUIET="1", GPUSHARE_LOCKD="/nonexistent")
        done = subprocess.run([built("wrap", "gpushare-door"), "-d", os.path.join(folder, "mount"), "--",
                               built("samples", "driver_api"), "--rounds", "1"],
                              env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE, **AS_OTHER_USER)
        if NAMESPACE in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.stats = os.path.join(folder, "stats")
        self.counted()

    def test_a_chroot_without_mount_point_is_named(self):
        root = os.path.join(self.card.folder, "root")
        folders = ["/usr", "/proc", "/dev", os.path.realpath(OPTIONS.build), os.path.realpath(self.card.folder)]
        links = [name for name in ("bin", "lib", "lib64") if os.path.islink("/" + name)]
        script = f"""
            set -e
            mount -t tmpfs none {root}
            mkdir {root}/new
            cd {root}/new
            for folder in {" ".join(folders)}; do mkdir -p .$folder; mount --rbind $folder .$folder; done
            for name in {" ".join(links)}; do ln -s usr/$name $name; done
            exec /usr/sbin/chroot . {os.path.realpath(built("wrap", "gpushare-door"))} -d {root}/stage -- true
            """
        os.mkdir(root)
        code, _, err = self.card.run(["unshare", "-m", "sh", "-c", script])
        if "unshare failed" in err or "mount:" in err or len(links) != 3:
            self.skipTest(err.strip() or "/lib is no link here")
        self.assertEqual(code, 1, err)
        self.assertIn("the root folder of this chroot is no mount point (--stage", err)

    def test_words_that_are_wrong(self):
        for words in ([], ["--bind", "--find"], ["--find", "--", "true"], ["--no-such-option"],
                      ["--stage", self.stage, "-d", self.stage + "-2"], ["-d", self.stage, "--find"], ["-d", self.stage]):
            with self.subTest(words):
                code, out, err = self.door(*words)
                self.assertEqual((code, out), (2, ""))
                self.assertIn("usage: gpushare-door", err)
        code, _, err = self.door("--find", LD_LIBRARY_PATH="/nonexistent")
        if code != 0:  # else this machine has a driver
            self.assertIn("the driver is not installed here", err)
        code, _, err = self.mounted(["/nonexistent/program"])
        self.assertEqual(code, 127, err)


main()
