#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-patch --venv: the patched copy of the interpreter in a Python environment, and the link in its place again."""
import glob
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
from tree_case import Case, run  # first: it leads to the folders above
import tool
from tool import OPTIONS


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

    QUESTION = ('import os, sys, sysconfig; print([os.path.realpath(sys._base_executable), sys.executable, sys.base_prefix,'
                ' sys.prefix, sysconfig.get_path("stdlib"), sysconfig.get_config_var("INCLUDEPY")])')

    def answers(self, env):
        """What each interpreter of the environment says of itself, and that of an environment made by it."""
        said = {}
        for name in sorted(f for f in os.listdir(env + "/bin") if f.startswith("python")):
            nested = self.path("nested")
            for python, make in ((env + "/bin/" + name, False), (nested + "/bin/python", True)):
                if make:
                    subprocess.run([env + "/bin/" + name, "-m", "venv", "--without-pip", nested], check=True)
                done = subprocess.run([python, "-c", self.QUESTION], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
                said[name, make] = done.stdout.decode()
            shutil.rmtree(nested)
        return said

    def pythons(self):
        """An interpreter of each version from 3.11 on that is here: from then on the base interpreter is looked for."""
        found = ["/usr/bin/python3", *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")),
                 *glob.glob(os.path.expanduser("~/.local/share/uv/python/*/bin/python3"))]
        for python in found:
            done = subprocess.run([python, "-c", "import sys, venv; assert sys.version_info >= (3, 11)"], stderr=subprocess.DEVNULL)
            if done.returncode == 0:
                yield python

    def test_each_name_finds_the_base_as_before(self):
        for number, python in enumerate(self.pythons()):
            env = self.path(f"env{number}")
            subprocess.run([python, "-m", "venv", "--without-pip", env], check=True)
            before = self.answers(env)
            self.assertEqual(run("--venv", env)[0], 0)
            self.assertEqual(self.answers(env), before, python)
            self.assertEqual(len({os.stat(f"{env}/bin/{n}").st_ino for n, _ in before}), 1)
            self.assertEqual((run("--venv", env)[0], run("--venv", env, "--check")[0]), (0, 0))
            shutil.move(env, self.path("moved"))
            self.assertEqual(run("--venv", self.path("moved"), "--restore")[0], 0)
            self.assertTrue(all(os.path.islink(self.path("moved/bin", n)) for n, _ in before))
            shutil.rmtree(self.path("moved"))

    def test_link_comes_back_after_venv_upgrade(self):
        before = self.snapshot()
        self.assertEqual(run("--venv", self.env)[0], 0)
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", "--upgrade", self.env], check=True, stderr=subprocess.DEVNULL)
        self.assertEqual(run("--venv", self.env, "--restore")[0], 0)
        self.assertEqual([p for p in self.changed(before) if "/bin/python" in p], [])

    def patch_and_replace(self, program):
        """Puts the program in the place of the patched interpreter, whose path it returns."""
        python = os.path.join(self.env, "bin", "python3")
        self.assertEqual(run("--venv", self.env)[0], 0)
        os.unlink(python)
        shutil.copy(program, python)
        return python

    def test_check_sees_another_interpreter(self):
        self.patch_and_replace("/usr/bin/python3")
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
            names = {"odd/bin/" + name for name in os.listdir(env + "/bin") if name.startswith(("python", "pypy"))}
            self.assertEqual(self.changed(before), sorted({"odd/.gpushare-manifest", "odd/" + copy} | names) if copy else [])
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
        python = self.patch_and_replace("/bin/ls")
        status, out, _ = run("--venv", self.env, "--restore")
        self.assertEqual((status, "is no longer a patched copy" in out), (0, True), out)
        self.assertEqual(open(python, "rb").read(), open("/bin/ls", "rb").read())

    def test_not_a_venv(self):
        status, _, err = run("--venv", self.folder)
        self.assertEqual((status, "no pyvenv.cfg" in err), (1, True))


if __name__ == "__main__":
    tool.main()
