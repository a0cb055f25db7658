#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-cc with the compilers of this machine: what it links is wrapped, what it only compiles is left alone."""
import argparse, os, re, shutil, subprocess, sys, tempfile, unittest
from pathlib import Path

OPTIONS = None
C_PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) { void *h = dlopen(0, RTLD_NOW); printf("%d\\n", dlsym(h, "nothing") == 0); return 7; }
"""
DRIVER_PROGRAM = """
typedef int CUresult;
CUresult cuMemAlloc_v2(unsigned long long *, unsigned long); CUresult cuCtxGetId(void *, void *);
int main(void) { unsigned long long p; return cuMemAlloc_v2(&p, 1) + cuCtxGetId(0, 0); }
"""
# Answers for libgpushare in these tests: only what the linker and the loader ask for.
RUNTIME = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static void *seen(void *handle, const char *name) {
    if (getenv("WRAP_TEST_SHOW")) fprintf(stderr, "routed %s\\n", name);
    return dlvsym(handle, name, "none");
}
void *__wrap_dlsym(void *handle, const char *name) { return seen(handle, name); }
void *__wrap_dlvsym(void *h, const char *name, const char *v) { (void)v; return seen(h, name); }
int __wrap_cuMemAlloc_v2(unsigned long long *p, unsigned long n) { *p = n; return 0; }
"""
CUDA_PROGRAM = """
__global__ void add(int *p) { *p += 1; }
int main() { int *p; if (cudaMalloc(&p, 4)) return 3; add<<<1, 1>>>(p); return cudaDeviceSynchronize() != 0; }
"""


def run(*command, check=True, env=None, cwd=None):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd,
                            env={**os.environ, **(env or {})})
    if check and result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def dynamic(path):
    """(needed libraries in order, run path, names that relocations refer to) of an ELF file."""
    text = run("readelf", "-dW", path).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    runpath = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
    # names that something refers to; lld also leaves the replaced ones in the symbol table, for nobody
    names = set(re.findall(r"^[0-9a-f]{16}  ?[0-9a-f]{16} R_\S+ +[0-9a-f]+ (\w+)", run("readelf", "-rW", path).stdout, re.M))
    return needed, runpath[0] if runpath else "", names


class Base(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gs wrap "))  # a blank in every path on purpose
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "prog.c").write_text(C_PROGRAM)
        (self.folder / "driver.c").write_text(DRIVER_PROGRAM)
        (self.folder / "prog.cu").write_text(CUDA_PROGRAM)
        (self.folder / "runtime.c").write_text(RUNTIME)
        library = self.folder / "lib dir" / "libgpushare.so.1"
        library.parent.mkdir()
        run("gcc", "-shared", "-fPIC", "-Wl,-soname,libgpushare.so.1", self.folder / "runtime.c", "-o", library)
        self.library = library
        self.out = self.folder / "out"

    def tool(self, name, *words, **more):
        return run(OPTIONS.wrap_dir / name, f"--gpushare-runtime={self.library}", *words, **more)

    def assert_wrapped(self, path, name="__wrap_dlsym", bare="dlsym"):
        needed, runpath, names = dynamic(path)
        self.assertEqual(needed[0], "libgpushare.so.1")
        self.assertIn(str(self.library.parent), runpath)
        self.assertIn(name, names)
        self.assertNotIn(bare, names)


class Links(Base):
    def compilers(self):
        for name, compilers in (("gpushare-cc", ("gcc", "clang")), ("gpushare-c++", ("g++", "clang++"))):
            for compiler in compilers:
                if shutil.which(compiler):
                    yield name, compiler

    def test_program_of_every_compiler_is_wrapped(self):
        for name, compiler in self.compilers():
            for more in ((), ("-O2", "-flto"), ("-fuse-ld=gold",), ("-fuse-ld=lld",), ("-fno-pie", "-no-pie"),
                         ("-Wl,--as-needed",)):
                linker = more[0][9:] if more and more[0].startswith("-fuse-ld=") else None
                if linker and not shutil.which("ld." + linker):
                    continue
                if compiler.startswith("clang") and "-flto" in more and not shutil.which("ld.lld"):
                    continue
                if compiler.startswith("clang") and "-flto" in more:
                    more += ("-fuse-ld=lld",)
                if compiler == "clang++" or compiler == "g++":
                    more += ("-x", "c++", self.folder / "prog.c", "-x", "none")
                else:
                    more += (self.folder / "prog.c",)
                with self.subTest(compiler=compiler, more=more):
                    self.tool(name, f"--gpushare-compiler={compiler}", *more, "-o", self.out)
                    self.assert_wrapped(self.out)
                    result = run(self.out, check=False, env={"WRAP_TEST_SHOW": "1"})
                    self.assertEqual((result.returncode, result.stdout), (7, "1\n"))
                    self.assertIn("routed nothing", result.stderr)

    def test_driver_calls_are_wrapped_but_passed_ones_are_not(self):
        self.tool("gpushare-cc", self.folder / "driver.c", "-o", self.out, OPTIONS.cuda_stub)
        needed, _, names = dynamic(self.out)
        self.assertEqual(needed[:2], ["libgpushare.so.1", "libcuda.so.1"])
        self.assertIn("__wrap_cuMemAlloc_v2", names)
        self.assertNotIn("cuMemAlloc_v2", names)
        self.assertIn("cuCtxGetId", names)  # a GS_PASS row

    def test_archive_member_is_wrapped(self):
        (self.folder / "main.c").write_text("int inner(void); int main(void) { return inner(); }")
        (self.folder / "inner.c").write_text(C_PROGRAM.replace("main", "inner"))
        inner, archive = self.folder / "inner.o", self.folder / "libinner.a"
        self.tool("gpushare-cc", "-c", self.folder / "inner.c", "-o", inner)
        run("ar", "rcs", archive, inner)
        self.tool("gpushare-cc", self.folder / "main.c", "-L", self.folder, "-linner", "-o", self.out)
        self.assert_wrapped(self.out)

    def test_shared_library_is_wrapped(self):
        self.tool("gpushare-cc", "-shared", "-fPIC", self.folder / "prog.c", "-o", self.out)
        self.assert_wrapped(self.out)

    def test_words_with_blanks_and_quotes_arrive(self):
        (self.folder / "say.c").write_text('#include <stdio.h>\nint main(void) { puts(TEXT); return 0; }')
        self.tool("gpushare-cc", '-DTEXT="it\'s $HOME `x` \\"q\\""', self.folder / "say.c", "-o", self.out)
        self.assertEqual(run(self.out).stdout, "it's $HOME `x` \"q\"\n")

    def test_response_file_links(self):
        (self.folder / "words").write_text(f'"{self.folder}/prog.c" -o "{self.out}"\n')
        self.tool("gpushare-cc", f"@{self.folder}/words")
        self.assert_wrapped(self.out)

    def test_response_file_with_c_only_compiles(self):
        (self.folder / "words").write_text(f'-c "{self.folder}/prog.c" -o "{self.out}"\n')
        self.tool("gpushare-cc", f"@{self.folder}/words")
        names = run("nm", "-u", self.out).stdout
        self.assertIn("dlsym", names)
        self.assertNotIn("__wrap_", names)


class Nvcc(Base):
    def setUp(self):
        super().setUp()
        if not OPTIONS.nvcc:
            self.skipTest("no nvcc")
        self.nvcc = ("gpushare-nvcc", f"--gpushare-compiler={OPTIONS.nvcc}")

    def test_program_with_static_cudart_is_wrapped(self):
        self.tool(*self.nvcc, self.folder / "prog.cu", "-o", self.out)
        self.assert_wrapped(self.out)
        result = run(self.out, check=False, env={"WRAP_TEST_SHOW": "1", "LD_LIBRARY_PATH": ""})
        self.assertEqual(result.returncode, 3)  # no driver here, but the program starts and asks

    def test_objects_then_link_is_wrapped(self):
        self.tool(*self.nvcc, "-c", self.folder / "prog.cu", "-o", self.folder / "prog.o")
        self.assertIn(" U dlsym", run("nm", "-u", self.folder / "prog.o").stdout + " U dlsym")
        self.tool(*self.nvcc, self.folder / "prog.o", "-o", self.out)
        self.assert_wrapped(self.out)

    def test_shared_cudart_program_carries_the_library_first(self):
        self.tool(*self.nvcc, "-cudart", "shared", self.folder / "prog.cu", "-o", self.out)
        self.assertEqual(dynamic(self.out)[0][0], "libgpushare.so.1")

    def test_clang_host_is_wrapped_without_a_warning(self):
        if not shutil.which("clang++"):
            self.skipTest("no clang++")
        result = self.tool(*self.nvcc, "-ccbin", "clang++", self.folder / "prog.cu", "-o", self.out)
        self.assert_wrapped(self.out)
        self.assertNotIn("unused", result.stderr)

    def test_ptx_and_dryrun_get_nothing(self):
        self.tool(*self.nvcc, "-ptx", self.folder / "prog.cu", "-o", self.folder / "prog.ptx")
        self.assertIn(".entry", (self.folder / "prog.ptx").read_text())
        result = self.tool(*self.nvcc, "--dryrun", self.folder / "prog.cu")
        self.assertNotIn("libgpushare", result.stdout + result.stderr)


class Show(Base):
    def test_showme_prints_a_command_that_runs(self):
        shown = self.tool("gpushare-cc", "--showme", self.folder / "prog.c", "-o", self.out).stdout
        self.assertFalse(self.out.exists())
        self.assertLess(shown.index("libgpushare.so.1"), shown.index("prog.c"))
        run("sh", "-c", shown)
        self.assert_wrapped(self.out)

    def test_showme_link_alone_links_by_hand(self):
        shown = self.tool("gpushare-cc", "--showme:link").stdout
        run("sh", "-c", f"gcc {shown.strip()} '{self.folder}/prog.c' -o '{self.out}'")
        self.assert_wrapped(self.out)

    def test_showme_compile_adds_nothing(self):
        self.assertEqual(self.tool("gpushare-cc", "--showme:compile").stdout, "\n")

    def test_showme_of_a_compilation_has_no_link_part(self):
        self.assertNotIn("libgpushare", self.tool("gpushare-cc", "--showme", "-c", "x.c").stdout.replace(
            "--gpushare", ""))

    def test_list_is_the_table(self):
        table = (Path(__file__).resolve().parents[2] / "wrap/driver_api.def").read_text()
        rows = re.findall(r"^GS_(?:GATE|SYNC|ROOM|HOOK)\((\w+)", table, re.M)
        self.assertGreater(len(rows), 200)
        listed = (OPTIONS.wrap_dir / "wrap.rsp").read_text().split()
        self.assertEqual(listed, ["--wrap=dlsym", "--wrap=dlvsym"] + [f"--wrap={r}" for r in rows])


class Errors(Base):
    def fails(self, status, pattern, *words, tool="gpushare-cc", env=None):
        result = run(OPTIONS.wrap_dir / tool, *words, check=False, env=env)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertRegex(result.stderr, rf"\A{re.escape(tool)}: [^\n]*{pattern}[^\n]*\n\Z")

    def test_compiler_status_is_ours(self):
        (self.folder / "bad.c").write_text("int main(void) { return }")
        want = run("gcc", self.folder / "bad.c", check=False)
        got = self.tool("gpushare-cc", self.folder / "bad.c", check=False, env={"GPUSHARE_CC": "gcc"})
        self.assertEqual((got.returncode, got.stderr), (want.returncode, want.stderr))

    def test_missing_compiler_says_what_to_do(self):
        self.fails(1, "'no-such-cc' on PATH; install", "-c", "x.c", env={"GPUSHARE_CC": "no-such-cc"})
        self.fails(1, "/no/such is not an executable program", "-c", "x.c", env={"GPUSHARE_CXX": "/no/such"}, tool="gpushare-c++")
        self.fails(1, "'nvcc' on PATH", "-c", "x.cu", env={"GPUSHARE_NVCC": "nvcc", "PATH": "/nonexistent"},
                   tool="gpushare-nvcc")

    def test_version_needs_no_compiler(self):
        done = self.tool("gpushare-cc", "--version", env={"PATH": "/nonexistent"})
        self.assertIn("no compiler was found", done.stdout)

    def test_missing_library_says_what_to_do(self):
        self.fails(1, "there is no library /no/lib.so; --gpushare-runtime needs", "--gpushare-runtime=/no/lib.so", "x.c")

    def test_program_alone_elsewhere_says_what_is_missing(self):
        alone = self.folder / "alone" / "bin"  # nothing beside it, nor in the folders above
        alone.mkdir(parents=True)
        shutil.copy(OPTIONS.wrap_dir / "gpushare-cc", alone / "gpushare-cc")
        result = run(alone / "gpushare-cc", "x.c", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("libgpushare.so.1", result.stderr)
        self.assertIn("--gpushare-runtime", result.stderr)
        result = run(alone / "gpushare-cc", f"--gpushare-runtime={self.library}", "x.c", check=False)
        self.assertIn("no wrap.rsp in", result.stderr)

    def test_static_is_refused_with_the_way_out(self):
        self.fails(2, "without -static", "-static", "x.c")

    def test_unknown_option_of_ours_is_refused(self):
        self.fails(2, "--gpushare-nonsense is not an option", "--gpushare-nonsense")

    def test_other_name_is_refused(self):
        (self.folder / "other").symlink_to(OPTIONS.wrap_dir / "gpushare-cc")
        result = run(self.folder / "other", check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("called as 'other'", result.stderr)

    def test_itself_as_cc_on_path_is_passed_over(self):
        (self.folder / "cc").symlink_to(OPTIONS.wrap_dir / "gpushare-cc")
        result = self.tool("gpushare-cc", "-dumpmachine", env={"PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(result.stdout, run("cc", "-dumpmachine").stdout)

    def test_itself_as_compiler_is_refused(self):
        self.fails(1, "is gpushare-cc itself", "-c", "x.c", env={"GPUSHARE_CC": str(OPTIONS.wrap_dir / "gpushare-cc")})

    def test_script_that_calls_back_ends(self):
        script = self.folder / "loop"
        script.write_text(f'#!/bin/sh\nexec "{OPTIONS.wrap_dir}/gpushare-cc" "$@"\n')
        script.chmod(0o755)
        self.fails(1, "levels deep", "-c", "x.c", env={"GPUSHARE_CC": str(script)})

    def test_library_in_folder_with_comma_is_refused(self):
        other = self.folder / "a,b"
        other.mkdir()
        shutil.copy(self.library, other)
        self.fails(2, "comma", f"--gpushare-runtime={other}/libgpushare.so.1", "x.c")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrap-dir", type=Path, required=True)
    parser.add_argument("--nvcc", default="")
    parser.add_argument("--cuda-stub", required=True)
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.wrap_dir = OPTIONS.wrap_dir.resolve()
    if OPTIONS.nvcc.endswith("NOTFOUND"):
        OPTIONS.nvcc = ""
    for variable in ("GPUSHARE_CC", "GPUSHARE_CXX", "GPUSHARE_NVCC", "GPUSHARE_CC_LEVEL"):
        os.environ.pop(variable, None)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=1)
