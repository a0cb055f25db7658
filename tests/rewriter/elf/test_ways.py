#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that come to CUDA in every way, on the simulated card: each is patched and its calls are routed, or it is named.

A work function reaches the driver by one of KINDS. It lies in one of PLACES, as the loader or dlopen finds it. Each pair is
linked with RUNPATH, and with RPATH, which a library inherits from its program, at a fixed address. A work function that leaves CUDA alone stands
in all the same places: nothing of it may be patched.
"""
import itertools
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tool  # noqa: E402  (in the folder above)
from tool import OPTIONS, Case, run  # noqa: E402

HEAD = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int answer(void *f)
{
    Dl_info info;
    puts(f == NULL ? "failed" : dladdr(f, &info) && strstr(info.dli_fname, "libgpushare") ? "routed" : "direct");
    return f == NULL;
}
"""
OPEN = HEAD + 'int work(void) { %s; void *h = dlopen(n, RTLD_NOW); return answer(h ? dlsym(h, "cuMemAlloc_v2") : NULL); }'
RUNTIME = HEAD + ("extern int cudaMalloc(void **, size_t);\n"
                  'int work(void) { void *p; int e = cudaMalloc(&p, 1 << 16); puts(e ? "failed" : "runtime"); return e; }')
KINDS = {
    "import": HEAD + "extern int cuMemAlloc_v2(void **, size_t);\nint work(void) { return answer((void *)cuMemAlloc_v2); }",
    "text": OPEN % 'const char *n = "libcuda.so.1"',
    "data": OPEN % 'static char n[] = "libcuda.so.1"',
    "made": OPEN % 'char n[32]; sprintf(n, "lib%s.so.%d", "cuda", 1)',
    "static": RUNTIME,   # a cudart inside
    "inside": RUNTIME,   # libcudart.so.13 in the tree
    "outside": RUNTIME,  # libcudart.so.13 elsewhere
}
NO_CUDA = HEAD + 'int work(void) { return dlsym(RTLD_DEFAULT, "puts") == NULL; }'
CALL = "int work(void);\nint %s(void) { return work(); }"
# Loads a file beside the one that it is in, whose name no text shows.
LOAD = HEAD + """int %(name)s(void)
{
    char path[PATH_MAX + 64]; Dl_info me; int (*f)(void); void *h;
    dladdr((void *)%(name)s, &me);
    if (realpath(me.dli_fname, path) == NULL) return 3;
    sprintf(strrchr(path, '/'), "/%%s/lib%%s.%%s", "%(folder)s", "%(file)s", "so");
    h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (h == NULL) { puts(dlerror()); return 2; }
    f = (int (*)(void))dlsym(h, "%(call)s");
    return f();
}"""


# Loads a library by its name alone: the environment's LD_LIBRARY_PATH, RUNPATH or the cache leads to it.
LOAD_NAME = HEAD + """int %(name)s(void)
{
    void *h = dlopen("lib%(file)s.so", RTLD_NOW | RTLD_LOCAL);
    if (h == NULL) { puts(dlerror()); return 2; }
    return ((int (*)(void))dlsym(h, "work"))();
}"""


def load(name, folder, file, call="work"):
    return LOAD % {"name": name, "folder": folder, "file": file, "call": call}


def load_name(name, file):
    return LOAD_NAME % {"name": name, "file": file}


# file below the case's folder -> what is in it: a source, or WORK; and the files that it is linked with
WORK = "the work function"
PLACES = {
    "program": {"tree/bin/prog": (WORK,)},
    "library": {"tree/lib/libwork.so": (WORK,), "tree/bin/prog": (CALL % "main", "tree/lib/libwork.so")},
    "library's library": {"tree/lib/libwork.so": (WORK,), "tree/lib/libmid.so": (CALL % "middle", "tree/lib/libwork.so"),
                          "tree/bin/prog": ("int middle(void);\nint main(void) { return middle(); }", "tree/lib/libmid.so")},
    "library elsewhere": {"elsewhere/libwork.so": (WORK,), "tree/bin/prog": (CALL % "main", "elsewhere/libwork.so")},
    "library's library elsewhere": {
        "elsewhere/libwork.so": (WORK,), "tree/lib/libmid.so": (CALL % "middle", "elsewhere/libwork.so"),
        "tree/bin/prog": ("int middle(void);\nint main(void) { return middle(); }", "tree/lib/libmid.so")},
    "plug-in": {"tree/lib/app/libwork.so": (WORK,), "tree/bin/prog": (load("main", "../lib/app", "work"),)},
    "plug-in beside": {"tree/bin/libwork.so": (WORK,), "tree/bin/prog": (load("main", ".", "work"),)},
    "plug-in's plug-in": {"tree/lib/app/gpu/libwork.so": (WORK,), "tree/lib/app/libplug.so": (load("plug", "gpu", "work"),),
                          "tree/bin/prog": (load("main", "../lib/app", "plug", "plug"),)},
    "plug-in's library": {"tree/lib/libwork.so": (WORK,), "tree/lib/app/libplug.so": (CALL % "plug", "tree/lib/libwork.so"),
                          "tree/bin/prog": (load("main", "../lib/app", "plug", "plug"),)},
    "library's plug-in": {"tree/lib/app/libwork.so": (WORK,), "tree/lib/libload.so": (load("loader", "app", "work"),),
                          "tree/bin/prog": ("int loader(void);\nint main(void) { return loader(); }", "tree/lib/libload.so")},
    "plug-in by LD_LIBRARY_PATH": {"path/libwork.so": (WORK,), "tree/bin/prog": (load_name("main", "work"),)},
    "plug-in's plug-in by LD_LIBRARY_PATH": {
        "path/libwork.so": (WORK,), "path/libplug.so": (load_name("plug", "work"),),
        "tree/bin/prog": (load_name("main", "plug").replace('"work"', '"plug"'),)},
    "library's plug-in by LD_LIBRARY_PATH": {
        "path/libwork.so": (WORK,), "tree/lib/libload.so": (load_name("loader", "work"),),
        "tree/bin/prog": ("int loader(void);\nint main(void) { return loader(); }", "tree/lib/libload.so")},
    # the program is not in the tree: only the library can be patched
    "library alone": {"tree/lib/libwork.so": (WORK,), "bin/prog": (load("main", "../tree/lib", "work"),)},
}
FLAGS = {"runpath": ["-Wl,--enable-new-dtags"], "rpath": ["-Wl,--disable-new-dtags"]}


class Ways(Case):
    def setUp(self):
        super().setUp()
        self.cuda = os.path.join(OPTIONS.build, "tests", "simcuda")
        self.cudart = os.path.join(OPTIONS.build, "tests", "simcudart")
        self.runtime = ["--runtime", os.path.join(OPTIONS.build, "runtime", "libgpushare.so.1")]
        self.objects = {}
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSHARE_", "SIMCUDA_"))}
        self.environment.update(LD_LIBRARY_PATH=self.cuda, SIMCUDA_CARD=self.path("card"), GPUSHARE_SOCKET=self.path("socket"),
                                GPUSHARE_LOCKD="/nonexistent", GPUSHARE_STATE=self.path("state"))

    def compile(self, source):
        """The object file of a source, made once."""
        if source not in self.objects:
            self.objects[source] = self.path(f"{len(self.objects)}.o")
            subprocess.run(["gcc", "-w", "-O1", "-fPIC", "-c", "-x", "c", "-", "-o", self.objects[source]], input=source.encode(),
                           check=True)
        return self.objects[source]

    def make(self, folder, place, kind, style):
        """Links the files of a case; the path of its program. With RPATH only the program has paths, those of all libraries."""
        cudart = os.path.join(folder, "tree/cuda" if kind == "inside" else "cuda", "libcudart.so.13")
        more = {"import": ["-lcuda"], "static": [self.cudart + "/libcudart_static.a", "-lpthread", "-ldl"],
                "inside": [cudart], "outside": [cudart]}.get(kind, [])
        if cudart in more:
            os.makedirs(os.path.dirname(cudart))
            shutil.copy(self.cudart + "/libcudart.so.13", cudart)
        for file, (source, *linked) in PLACES[place].items():
            path, is_program = os.path.join(folder, file), file.endswith("/prog")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            linked = [os.path.join(folder, f) for f in linked]
            if source.startswith(WORK):
                source = KINDS.get(kind, NO_CUDA).replace("int work(", "int main(" if is_program else "int work(")
                linked += more
            places = {os.path.dirname(f) for f in linked if f.startswith(folder)}
            if style == "rpath":
                places = {os.path.join(folder, f) for f in ("tree/lib", "elsewhere", os.path.dirname(cudart))} if is_program else ()
            paths = ["$ORIGIN/" + os.path.relpath(p, os.path.dirname(path)) for p in sorted(places)]
            subprocess.run(["gcc", "-o", path, self.compile(source), *FLAGS[style], *(["-no-pie"] if is_program and style == "rpath" else []), "-L" + self.cuda, *linked,
                            *(["-Wl,-rpath," + ":".join(paths)] if paths else []), "-Wl,--allow-shlib-undefined",
                            *([] if is_program else ["-shared", "-Wl,-soname," + os.path.basename(path)])], check=True)
        return os.path.join(folder, next(f for f in PLACES[place] if f.endswith("/prog")))

    def start(self, program):
        """What the work function says, the files whose calls were routed."""
        stats = self.path("stats")
        done = subprocess.run([program], env={**self.environment, "GPUSHARE_STATS": stats}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=600)
        objects = []
        if os.path.exists(stats):
            objects = [os.path.basename(o["path"]) for o in json.load(open(stats))["objects"]]
            os.unlink(stats)
        return done.stdout.decode().strip(), objects, done.stderr.decode()

    def cases(self, kinds):
        for number, (kind, place, style) in enumerate(itertools.product(kinds, PLACES, FLAGS)):
            folder = self.path(f"case{number}")
            self.environment["LD_LIBRARY_PATH"] = f"{folder}/path:{self.cuda}"
            yield folder, self.make(folder, place, kind, style), (kind, place, style)
            shutil.rmtree(folder)

    def test_each_is_routed_or_named(self):
        count = {"routed": 0, "named": 0}
        for folder, program, case in self.cases(KINDS):
            kind, place, style = case
            said, objects, err = self.start(program)
            self.assertEqual((said in ("direct", "runtime"), objects), (True, []), (case, said, err))  # it works, and past us
            status, out, err = run(*self.runtime, "--tree", folder + "/tree", env=self.environment)
            alone = place == "library alone" and kind == "outside"  # the library calls no driver itself
            self.assertEqual(status, 4 if alone else 0, (case, out, err))
            said, objects, trouble = self.start(program)
            routed = said == "routed" or (said == "runtime" and objects != [])
            named = any(os.path.join(folder, file) in out + err for file in ("cuda/libcudart.so.13", "tree/lib/libwork.so: note"))
            self.assertTrue(routed or (alone and named), (case, said, objects, out, err, trouble))
            count["routed" if routed else "named"] += 1
            self.assertEqual(run("--tree", folder + "/tree", "--check", env=self.environment)[0], status, case)
        self.assertEqual(count, {"routed": len(KINDS) * len(PLACES) * 2 - 2, "named": 2})

    def test_single_program_is_patched_and_what_it_brings_is_named(self):
        for folder, program, case in self.cases(("text", "outside")):
            kind, place, style = case
            if place == "library alone":
                continue  # the plug-in lies where no program's is looked for
            work = next(os.path.join(folder, file) for file, (source, *_) in PLACES[place].items() if source.startswith(WORK))
            status, out, _ = run(*self.runtime, "--check", program, env=self.environment)
            self.assertEqual((status, "not patched" in out), (4, True), (case, out))
            if place != "program":
                first = work if "plug-in's" not in place or "LD_LIBRARY_PATH" in place else os.path.join(folder, "tree/lib")
                self.assertIn(first, out, case)
                report = json.loads(run(*self.runtime, "--print", "--json", program, env=self.environment)[1])
                self.assertEqual((report["cuda"], report["exit"], report["unrouted"] != []), (True, 0, True), (case, report))
            self.assertEqual(run(*self.runtime, program, env=self.environment)[0], 0, case)
            said, objects, err = self.start(program)
            self.assertTrue(said == "routed" or objects, (case, said, objects, err))
            self.assertNotIn("not routed", run(*self.runtime, "--check", program, env=self.environment)[1])

    def tree_of(self, program, source, *flags):
        path = self.path("tree/bin/" + program)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["gcc", "-w", "-O1", "-x", "c", "-", "-o", path, *flags], input=source.encode(), check=True, stderr=subprocess.DEVNULL)
        return path

    def test_static_program_is_named(self):
        for kind in ("text", "data", "made"):
            for flag in ("-static", "-static-pie"):
                source = KINDS[kind].replace("int work(", "int main(")
                path = self.tree_of("prog", source, flag)
                for options in (["--tree", self.path("tree")], ["--tree", self.path("tree"), "--check"], [path], ["--check", path]):
                    status, out, err = run(*self.runtime, *options, env=self.environment)
                    self.assertIn(path + ": is statically linked", out + err, (kind, flag, options))
                    self.assertNotEqual(status, 0, (kind, flag, options))
        self.tree_of("prog", '#include <stdio.h>\nint main(void) { return puts("no driver") < 0; }', "-static")
        status, out, err = run(*self.runtime, "--tree", self.path("tree"), env=self.environment)
        self.assertEqual((status, "static" in out + err), (4, False), (out, err))

    def test_program_that_loads_what_no_file_shows_is_named(self):
        made = HEAD + 'int main(int c, char **v) { void *h = dlopen(v[1], RTLD_NOW); return h == NULL || dlsym(h, "work") == NULL; }'
        path = self.tree_of("prog", made)
        _, out, err = run(*self.runtime, "--tree", self.path("tree"), env=self.environment)
        self.assertIn(path + ": note: loads plug-ins", out + err)
        self.tree_of("second", made)
        _, out, err = run(*self.runtime, "--tree", self.path("tree"), "--check", env=self.environment)
        self.assertIn(path + ": note: it and 1 more load plug-ins", out + err)
        self.assertIn("--any", run(*self.runtime, path, env=self.environment)[2])
        self.assertEqual(run(*self.runtime, "--any", path, env=self.environment)[0], 0)

    def link(self, path, source, *flags):
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        subprocess.run(["gcc", "-o", self.path(path), self.compile(source), *flags], check=True)
        return self.path(path)

    def test_loaders_other_ways_lead_to_cuda(self):
        """Tokens of paths, links, a preloaded library, a library that filters another one."""
        shared = ["-shared"]
        for way in ("$LIB", "${PLATFORM}", "link", "preload", "filter", "relative"):
            shutil.rmtree(self.path("tree"), ignore_errors=True)
            folder = {"$LIB": "tree/lib/x86_64-linux-gnu", "${PLATFORM}": "tree/haswell"}.get(way, "tree/lib")
            if os.uname().machine != "x86_64" and way in ("$LIB", "${PLATFORM}"):
                continue
            call, text = CALL % "main", KINDS["text"]
            real = "elsewhere/libwork.so.1" if way == "link" else folder + "/libwork.so"
            work = self.link(real, text, *shared, "-Wl,-soname,libwork.so")
            environment, more = dict(self.environment), ["-Wl,-rpath,$ORIGIN/../" + os.path.relpath(folder, "tree")]
            if way == "link":
                os.makedirs(self.path("tree/lib"))
                os.symlink(work, self.path("tree/lib/libwork.so"))
                work = self.path("tree/lib/libwork.so")
            elif way == "$LIB":
                more = ["-Wl,-rpath,$ORIGIN/../$LIB"]
                for name in ("lib64", "lib"):  # another distribution's loader
                    os.makedirs(self.path("tree/" + name), exist_ok=True)
            elif way == "${PLATFORM}":
                more = ["-Wl,-rpath,$ORIGIN/../${PLATFORM}"]
            elif way == "filter":
                work = self.link("tree/lib/libthin.so", CALL % "thin", *shared, "-Wl,-soname,libthin.so", "-Wl,--filter=libwork.so",
                                 work, *more)
                call = "int thin(void);\nint main(void) { return thin(); }"
            if way == "preload":
                program = self.link("tree/bin/prog", "int work(void) __attribute__((weak));\nint main(void) { return work(); }")
                environment["LD_PRELOAD"] = work
            elif way == "relative":
                program = self.link("tree/bin/prog", call, work.replace("libwork.so", "../lib/libwork.so"), *more)
            else:
                program = self.link("tree/bin/prog", call, work, *more, "-Wl,--allow-shlib-undefined")
            status, out, err = run(*self.runtime, "--tree", self.path("tree"), env=self.environment)
            self.assertEqual(status, 0, (way, out, err))
            done = subprocess.run([program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, check=False)
            if way == "${PLATFORM}" and b"libwork.so: cannot open" in done.stderr:
                continue  # this processor has another name; the program is patched all the same
            self.assertEqual(done.stdout.decode().strip(), "routed", (way, out, err, done.stderr))

    def test_without_cuda_nothing_is_patched(self):
        for folder, program, case in self.cases(("none",)):
            self.assertEqual(run(*self.runtime, "--tree", folder + "/tree", env=self.environment)[0], 4, case)
            status, _, err = run(*self.runtime, program, env=self.environment)
            self.assertEqual((status, "does not use CUDA" in err), (4, True), (case, err))


if __name__ == "__main__":
    tool.main(build="")
