#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a folder of its own and uses it as a stranger would: gpushare-cc, find_package(gpushare),
pkg-config. Without a CUDA driver: what is looked at is the program that comes out, and that it starts."""
import argparse, os, re, shutil, subprocess, sys, tempfile, unittest
from pathlib import Path

OPTIONS = None
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) { puts(dlsym(RTLD_DEFAULT, "no_such_name") == NULL ? "not found" : "found"); return 0; }
"""
PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(gpushare REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE gpushare::wrap)
"""
PART = """
cmake_minimum_required(VERSION 3.25)
project(whole LANGUAGES C)
enable_testing()
add_subdirectory("{}" part)
"""


def run(*command, **more):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="gs installed "))
        cls.prefix = cls.folder / "prefix"
        run(OPTIONS.cmake, "--install", OPTIONS.build, "--prefix", cls.prefix)
        cls.library = next(cls.prefix.glob("lib*/**/libgpushare.so.1"))
        (cls.folder / "program.c").write_text(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def assert_uses_library(self, program, prefix=None):
        text = run("readelf", "-dW", program)
        self.assertEqual(re.findall(r"\(NEEDED\).*\[(.*)\]", text)[0], "libgpushare.so.1")
        self.assertIn(str(prefix or self.library.parent), text)
        self.assertIn("__wrap_dlsym", run("nm", "-D", "--undefined-only", program))
        environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        environment["GPUSHARE_SOCKET"] = str(self.folder / "none.sock")
        self.assertEqual(run(program, env=environment), "not found\n")

    def test_every_listed_name_is_exported(self):
        listed = set(re.findall(r"--wrap=(\w+)", (self.library.parent / "gpushare/wrap.rsp").read_text()))
        exported = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", self.library).splitlines()}
        self.assertGreater(len(listed), 300)
        self.assertEqual(sorted(n for n in listed if "__wrap_" + n not in exported), [])
        self.assertEqual(sorted(n for n in listed if n not in exported), [])  # for interposition

    def test_library_needs_libc_only(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", self.library))
        self.assertLessEqual(set(needed), {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2",
                                           "ld-linux-aarch64.so.1"})

    def test_gpushare_cc_links(self):
        out = self.folder / "by-cc"
        run(self.prefix / "bin/gpushare-cc", self.folder / "program.c", "-o", out)
        self.assert_uses_library(out)

    def test_cmake_package_links(self):
        source = self.folder / "project"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT)
        shutil.copy(self.folder / "program.c", source)
        run(OPTIONS.cmake, "-G", "Ninja", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(OPTIONS.cmake, "--build", source / "build")
        self.assert_uses_library(source / "build/program")

    def test_part_of_another_project_has_no_tests(self):
        source = self.folder / "part"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PART.format(Path(__file__).resolve().parents[2]))
        run(OPTIONS.cmake, "-G", "Ninja", "-S", source, "-B", source / "build")
        self.assertIn("Total Tests: 0", run("ctest", "--test-dir", source / "build", "-N"))
        targets = run("ninja", "-C", source / "build", "-t", "targets", "all")
        self.assertIn("libgpushare.so.1", targets)
        self.assertNotIn("simcuda", targets)

    def test_pkg_config_links(self):
        plain = Path(tempfile.mkdtemp(prefix="gs-pc-"))  # pkg-config cannot quote a blank
        self.addCleanup(shutil.rmtree, plain)
        shutil.copytree(self.prefix, plain / "prefix", symlinks=True)
        file = next(plain.glob("prefix/lib*/**/pkgconfig/gpushare.pc"))
        out = self.folder / "by-pkg-config"
        flags = run("pkg-config", "--libs", "gpushare", env={**os.environ, "PKG_CONFIG_PATH": str(file.parent)})
        run("sh", "-c", f"gcc {flags.strip()} program.c -o by-pkg-config", cwd=self.folder)
        self.assert_uses_library(out, plain / "prefix")

    def test_moved_prefix_still_works(self):
        moved = self.folder / "moved here"
        shutil.copytree(self.prefix, moved, symlinks=True)
        shown = run(moved / "bin/gpushare-cc", "--showme:link")
        self.assertIn(f"{moved}/", shown)
        self.assertNotIn(f"{self.prefix}/", shown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--nvcc", default="")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=1)
