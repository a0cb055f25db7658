#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of several languages and linkers that come to CUDA in unusual ways, on the simulated card: each is routed, or it is named.

Each program says whether the driver function that it got is gpushare's. It runs unpatched, patched by --tree, and, made anew, with only the
program itself patched. test_ways.py has every pair of a few ways and places; here each way stands once.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tool  # noqa: E402  (in the folder above)
from tool import OPTIONS, Case, run  # noqa: E402

TELL = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int tell(void *f)
{
    Dl_info info;
    puts(f == NULL ? "failed" : dladdr(f, &info) && strstr(info.dli_fname, "libgpushare") ? "routed" : "direct");
    fflush(stdout);
    return f == NULL;
}
"""
HEAD = """#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __cplusplus
#include <filesystem>
#include <string>
extern "C" {
#endif
int tell(void *f);
extern int cuMemAlloc_v2(void **, size_t);
#ifdef __cplusplus
}
#define EXPORT extern "C"
#else
#define EXPORT
#endif
"""
ASK = 'void *h = dlopen(%s, RTLD_NOW); return tell(h ? dlsym(h, "cuMemAlloc_v2") : NULL);'
DATA = 'static char n[] = "libcuda.so.1"; ' + ASK % "n"
LOAD = 'void *h = dlopen(%s, RTLD_NOW); if (h == NULL) { puts(dlerror()); return 9; } return ((int (*)(void))dlsym(h, "go"))();'
MALLOC = ('void *h = dlopen("libcudart.so.13", RTLD_NOW), *p; int (*f)(void **, size_t) = h ? dlsym(h, "cudaMalloc") : NULL; '
          'puts(f == NULL || f(&p, 65536) != 0 ? "failed" : "runtime"); return 0;')
MAIN = "int main(int argc, char **argv) { %s }"
GO = "EXPORT int go(void) { %s }"
RUST = """use std::ffi::{c_char, c_int, c_void, CString};
extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn tell(function: *mut c_void) -> c_int;
}
fn text(s: String) -> CString { CString::new(s).unwrap() }
"""
RUST_ASK = ('unsafe { let h = dlopen(text(format!("lib{}.so.{}", "cuda", std::env::args().count())).as_ptr(), 2); '
            'tell(if h.is_null() { h } else { dlsym(h, text("cuMemAlloc_v2".to_string()).as_ptr()) }) }')
FORTRAN = """program kind
  use iso_c_binding
  interface
    integer(c_int) function alloc(p, n) bind(c, name="%s")
      import
      type(c_ptr) :: p
      integer(c_size_t), value :: n
    end function
    integer(c_int) function tell(f) bind(c)
      import
      type(c_funptr), value :: f
    end function
  end interface
  type(c_ptr) :: p
  %s
end program
"""
FORTRAN_RUNTIME = """if (alloc(p, 65536_c_size_t) == 0) then
    print '(a)', 'runtime'
  else
    print '(a)', 'failed'
  end if"""
PASCAL = """program kind;
{$linklib c}
uses dynlibs;
function tell(f: pointer): longint; cdecl; external;
{$L tell.o}
begin
  halt(tell(GetProcedureAddress(LoadLibrary('lib' + 'cuda' + '.so.1'), 'cuMemAlloc_v2')));
end.
"""
NAMED = "nor does a plug-in that was found beside it"
SHARED = ["-shared", "-fPIC"]


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"no {program} here")


class Kinds(Case):
    def setUp(self):
        super().setUp()
        self.cuda = os.path.join(OPTIONS.build, "tests", "simcuda")
        self.cudart = os.path.join(OPTIONS.build, "tests", "simcudart")
        self.runtime = ["--runtime", os.path.join(OPTIONS.build, "runtime", "libgpushare.so.1")]
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSHARE_", "SIMCUDA_"))}
        self.environment.update(LD_LIBRARY_PATH=self.cuda, SIMCUDA_CARD=self.path("card"), GPUSHARE_SOCKET=self.path("socket"),
                                GPUSHARE_LOCKD="/nonexistent", GPUSHARE_STATE=self.path("state"))
        self.make("tell.o", TELL, "-c", "-fPIC", told=False)

    def make(self, name, source, *flags, compiler="gcc", end="c", told=True):
        """A file of the folder of this case; `told`: it says where its function is."""
        path, text = self.path(name), self.path("source." + end)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(text, "w", encoding="ascii") as file:
            file.write(source if not told or end not in ("c", "cc") else HEAD + source)
        words = {"rustc": ["-A", "warnings", "--crate-name", "kind"]}.get(compiler, ["-O1"] if end == "f90" else ["-w", "-O1", "-D_GNU_SOURCE"])
        tell = ([] if not told else ["-C", "link-arg=" + self.path("tell.o")] if compiler == "rustc" else [self.path("tell.o")])
        done = subprocess.run([compiler, *words, "-o", path, text, *tell, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, (name, done.stdout.decode("utf-8", "replace")))
        return path

    def start(self, command):
        """The words that it said; whether its calls were routed: those of a CUDA runtime by the object that asked for them."""
        stats = self.path("stats")
        done = subprocess.run(command, env={**self.environment, "GPUSHARE_STATS": stats}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=600, check=False)
        objects = []
        if os.path.exists(stats):
            with open(stats, encoding="ascii") as file:
                objects = json.load(file)["objects"]
            os.unlink(stats)
        words = done.stdout.decode().split()
        return words, words != [] and all(w == "routed" or (w == "runtime" and objects) for w in words), done.stderr.decode()

    def expect(self, program, command=None, single=True):
        """`single`: it is enough to patch the program alone; a text: what is said then."""
        command, app = command or [program], self.path("app")
        words, _, err = self.start(command)
        self.assertTrue(words != [] and set(words) <= {"direct", "runtime"}, (words, err))  # it works, and past us
        shutil.copytree(app, self.path("before"), symlinks=True)
        status, out, err = run(*self.runtime, "--tree", app, env=self.environment)
        words, routed, trouble = self.start(command)
        self.assertTrue(status == 0 and routed, ("--tree", out, err, words, trouble))
        shutil.rmtree(app)
        os.rename(self.path("before"), app)
        status, out, err = run(*self.runtime, program, env=self.environment)
        words, routed, trouble = self.start(command)
        if single is True:
            self.assertTrue(status == 0 and routed, ("alone", out, err, words, trouble))
        else:
            self.assertIn(single, out + err)
            self.assertFalse(routed)
        shutil.rmtree(app)

    def test_driver_is_imported(self):
        linked = [f"-L{self.cuda}", "-Wl,--no-as-needed", "-lcuda"]
        weak = "#pragma weak cuMemAlloc_v2\n" + MAIN % "return tell((void *)cuMemAlloc_v2);"
        self.expect(self.make("app/prog", weak, *linked))
        program = self.make("app/prog", weak)
        self.expect(program, ["env", "LD_PRELOAD=libcuda.so.1", program])
        self.expect(self.make("app/prog", MAIN % 'return tell(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));', *linked))
        self.make("app/lib/deep.so", GO % "return tell((void *)cuMemAlloc_v2);", *SHARED, *linked)
        path = self.path("app/lib/deep.so")
        program = self.make("app/bin/prog", MAIN % (LOAD % f'"{path}"').replace("RTLD_NOW", "RTLD_NOW | RTLD_DEEPBIND"))
        self.expect(program, single=f"{path} uses CUDA (imports cuMemAlloc_v2)")  # found by the library when it runs: test_past.py

    def test_driver_is_asked_for(self):
        for source in ('char n[] = {108, 105, 98, 99, 117, 100, 97, 46, 115, 111, 46, 49, 0}; ' + ASK % "n",
                       ASK % f'"{self.cuda}/libcuda.so.1"',
                       (ASK % '"libcuda.so.1"').replace("dlopen(", "dlmopen(LM_ID_BASE, "),
                       'typedef int (*asked)(const char *, void **, int, unsigned long long, void *); void *h = dlopen("libcuda.so.1", RTLD_NOW), '
                       '*f = NULL; asked a = h ? (asked)dlsym(h, "cuGetProcAddress_v2") : NULL; if (a) a("cuMemAlloc", &f, 13000, 0, NULL); return tell(f);'):
            self.expect(self.make("app/prog", MAIN % source))
        self.make("app/lib/libearly.so", "__attribute__((constructor)) static int early(void) { %s } int nothing(void) { return 0; }" % DATA,
                   *SHARED, "-Wl,-soname,libearly.so")
        library = [f"-L{self.path('app/lib')}", "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--no-as-needed"]
        self.expect(self.make("app/bin/prog", "int nothing(void);" + MAIN % "return nothing();", *library, "-learly"))
        self.make("app/lib/libhook.so", 'void *dlsym(void *h, const char *n) { static void *(*r)(void *, const char *); '
                   'if (!r) r = dlvsym(RTLD_NEXT, "dlsym", DLSYM); return r(h, n); }',
                   f'-DDLSYM="GLIBC_2.{"2.5" if os.uname().machine == "x86_64" else "17"}"', *SHARED, "-Wl,-soname,libhook.so")
        self.expect(self.make("app/bin/prog", MAIN % DATA, *library, "-lhook"))

    def test_runtime_is_asked_for(self):
        for where in ("app/lib", "elsewhere"):
            os.makedirs(self.path(where))
            shutil.copy(self.cudart + "/libcudart.so.13", self.path(where))
            program = self.make("app/bin/prog", MAIN % MALLOC, f"-Wl,-rpath,{self.path(where)}")
            self.expect(program)

    def test_plug_in_of_any_name_and_depth(self):
        self.make("app/share/engine/backends/nv.so", GO % DATA, *SHARED, compiler="g++", end="cc")
        scan = ('for (auto &e : std::filesystem::directory_iterator(std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / '
                '"share/engine/backends")) { %s }' % LOAD % "e.path().c_str()")
        self.expect(self.make("app/bin/prog", MAIN % scan, compiler="g++", end="cc"), single=NAMED)
        self.make("app/plugins/gpu.backend", GO % DATA, *SHARED)
        program = self.make("app/prog", MAIN % LOAD % "argv[1]")
        self.expect(program, [program, self.path("app/plugins/gpu.backend")])
        files = ("app/lib/a/one.so", "app/lib/a/b/two.so", "app/lib/a/b/c/three.so")
        for file, following in zip(files, files[1:]):
            self.make(file, GO % LOAD % f'"{self.path(following)}"', *SHARED, compiler="g++", end="cc")
        self.make(files[2], GO % DATA, *SHARED)
        self.expect(self.make("app/bin/prog", MAIN % LOAD % f'"{self.path(files[0])}"'))

    def test_program_that_starts_another(self):
        self.make("app/libexec/worker", MAIN % DATA)
        program = self.make("app/bin/prog", MAIN % f'return execl("{self.path("app/libexec/worker")}", "worker", (char *)0);')
        self.expect(program, single="it does not use CUDA")
        program = self.make("app/bin/prog", MAIN % DATA)
        os.makedirs(self.path("app/other"))
        os.link(program, self.path("app/other/prog2"))
        self.expect(program, ["sh", "-c", f"{program} && {self.path('app/other/prog2')}"], single="")

    def test_linkers(self):
        for linker, *flags in (("lld", "-Wl,--hash-style=gnu"), ("gold",), ("mold",), ("bfd", "-Wl,-z,separate-code", "-no-pie", "-s")):
            if shutil.which("ld." + linker) or shutil.which(linker):
                self.expect(self.make("app/prog", MAIN % DATA, f"-fuse-ld={linker}", *flags))
        program = self.make("app/prog", MAIN % DATA, "-s")
        with open(program, "r+b") as file:  # no section headers: e_shoff, e_shnum, e_shstrndx
            for at, size in ((40, 8), (60, 4)):
                file.seek(at)
                file.write(bytes(size))
        self.expect(program)

    @needs("rustc")
    def test_rust(self):
        rust = {"compiler": "rustc", "end": "rs"}
        self.expect(self.make("app/prog", RUST + "fn main() { %s; }" % RUST_ASK, **rust))
        self.make("app/plug/libp.so", RUST + '#[no_mangle] pub extern "C" fn go() -> c_int { %s }' % RUST_ASK, "--crate-type", "cdylib", **rust)
        load = 'unsafe { let h = dlopen(text(format!("{}", "%s")).as_ptr(), 2); let f: extern "C" fn() -> c_int = std::mem::transmute(dlsym(h, text("go".to_string()).as_ptr())); f(); }'
        self.expect(self.make("app/prog", RUST + "fn main() { %s }" % load % self.path("app/plug/libp.so"), **rust))
        self.expect(self.make("app/prog", RUST + '#[link(name = "cuda")] extern "C" { fn cuMemAlloc_v2(p: *mut *mut c_void, n: usize) -> c_int; }'
                               "fn main() { unsafe { tell(cuMemAlloc_v2 as *mut c_void); } }", "-L", self.cuda, **rust))
        self.expect(self.make("app/prog", '#[link(name = "cudart_static", kind = "static")] extern "C" { fn cudaMalloc(p: *mut *mut u8, n: usize) -> i32; }'
                               'fn main() { let mut p = std::ptr::null_mut(); println!("{}", if unsafe { cudaMalloc(&mut p, 65536) } == 0 { "runtime" } else { "failed" }); }',
                               "-L", self.cudart, "-C", "link-arg=-lrt", told=False, **rust))

    @needs("gfortran")
    def test_fortran(self):
        fortran = {"compiler": "gfortran", "end": "f90"}
        self.expect(self.make("app/prog", FORTRAN % ("cuMemAlloc_v2", "if (tell(c_funloc(alloc)) /= 0) stop 1"), f"-L{self.cuda}", "-lcuda", **fortran))
        os.makedirs(self.path("app/lib"))
        shutil.copy(self.cudart + "/libcudart.so.13", self.path("app/lib"))
        self.expect(self.make("app/bin/prog", FORTRAN % ("cudaMalloc", FORTRAN_RUNTIME), self.path("app/lib/libcudart.so.13"),
                               "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--allow-shlib-undefined", **fortran))

    @needs("fpc")
    def test_pascal(self):
        with open(self.path("kind.pas"), "w", encoding="ascii") as file:
            file.write(PASCAL)
        os.makedirs(self.path("app"))
        subprocess.run(["fpc", "-v0", "-o" + self.path("app/prog"), self.path("kind.pas")], cwd=self.path("."), check=True, stdout=subprocess.DEVNULL)
        self.expect(self.path("app/prog"))


if __name__ == "__main__":
    tool.main(build="")
