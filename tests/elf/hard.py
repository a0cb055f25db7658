#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds files that are hard to rewrite, patches them, and checks that each is right or refused for the right reason.

A file is right when the program (hard.c) still finds everything about itself in order, its dlsym calls arrive in the
stand-in library, the same holds after strip, a second run changes nothing, and --restore gives the same bytes back.
"""
import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE, USER = os.path.join(HERE, "hard.c"), os.path.join(HERE, "hard_user.c")
CUDA_SOURCE = """
#include <cstdio>
__global__ void k(int *p) { *p = 1; }
int main() { int *p = 0; cudaError_t e = cudaMalloc(&p, 4); k<<<1, 1>>>(p); printf("%d\\n", e != cudaSuccess); return 0; }
"""


def sh(command, cwd=None, env=None):
    full = dict(os.environ, LC_ALL="C", **(env or {}))
    done = subprocess.run(command, cwd=cwd, env=full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


class NotHere(Exception):
    """A compiler or linker that a case needs is not installed."""


class Bench:
    def __init__(self, options, folder):
        self.o, self.folder = options, folder
        self.files = 0

    def new(self, suffix=""):
        self.files += 1
        return os.path.join(self.folder, f"f{self.files}{suffix}")

    def need(self, tool):
        path = shutil.which(tool)
        if not path:
            raise NotHere(tool)
        return path

    def cc(self, *flags, compiler="gcc", source=SOURCE, suffix=""):
        out = self.new(suffix)
        status, _, err = sh([self.need(compiler), "-O1", "-w", source, *flags, "-o", out, "-ldl"])
        if status != 0:
            if "unrecognized option" in err or "unknown" in err or "cannot find 'ld'" in err or "invalid" in err:
                raise NotHere(" ".join(flags))
            raise RuntimeError(err)
        return out

    def edit(self, path, offset, data):
        with open(path, "r+b") as f:
            f.seek(offset)
            f.write(data)
        return path

    def sstrip(self, path):
        """Removes the section headers and everything behind the last segment."""
        data = bytearray(open(path, "rb").read())
        phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
        end = 0
        for i in range(phnum):
            _, _, off, _, _, filesz = struct.unpack_from("<IIQQQQ", data, phoff + 56 * i)
            end = max(end, off + filesz)
        struct.pack_into("<Q", data, 40, 0)
        struct.pack_into("<HHH", data, 58, 0, 0, 0)
        open(path, "wb").write(data[:end])
        return path

    def stripped(self, path):
        if sh(["strip", path])[0] != 0:
            raise RuntimeError("strip of the unpatched file")
        return path

    def appended(self, path, what=b"PAYLOAD" * 1000):
        with open(path, "ab") as f:
            f.write(what)
        return path

    def mode(self, path, bits):
        os.chmod(path, bits)
        return path


# name, how to build it, what must come of it: "right", or a part of the reason for refusing; further options
def cases(b):
    ld = lambda *a: ["-Wl," + x for x in a]
    driver = ["-DDRIVER", *ld("--no-as-needed", "-rpath," + b.libcuda), os.path.join(b.libcuda, "libcuda.so.1")]
    lld, gold = "-fuse-ld=lld", "-fuse-ld=gold"
    yield "pie", lambda: b.cc(), "right"
    yield "no pie", lambda: b.cc("-no-pie"), "right"
    yield "no plt, now", lambda: b.cc("-fno-plt", *ld("-z,now")), "right"
    yield "lazy", lambda: b.cc(*ld("-z,lazy")), "right"
    yield "separate code", lambda: b.cc(*ld("-z,separate-code")), "right"
    yield "no separate code", lambda: b.cc(*ld("-z,noseparate-code")), "right"
    yield "2M pages", lambda: b.cc(*ld("-z,max-page-size=0x200000")), "right"
    yield "2M pages, no pie", lambda: b.cc("-no-pie", *ld("-z,max-page-size=0x200000", "-z,noseparate-code")), "right"
    yield "64K pages", lambda: b.cc(*ld("-z,max-page-size=0x10000")), "right"
    yield "sysv hash", lambda: b.cc(*ld("--hash-style=sysv")), "right"
    yield "gnu hash", lambda: b.cc(*ld("--hash-style=gnu")), "right"
    yield "both hashes, exported", lambda: b.cc("-rdynamic", *ld("--hash-style=both")), "right"
    yield "no spare tags", lambda: b.cc(*ld("--spare-dynamic-tags=0")), "right"
    yield "no spare tags, no pie", lambda: b.cc("-no-pie", *ld("--spare-dynamic-tags=0")), "right"
    yield "no spare tags, nocombreloc", lambda: b.cc(*ld("--spare-dynamic-tags=0", "-z,nocombreloc", "-z,lazy")), "right"
    yield "RELR", lambda: b.cc(*ld("-z,pack-relative-relocs")), "right"
    yield "no build id, no notes", lambda: b.cc(*ld("--build-id=none"), "-Wa,-mx86-used-note=no", "-fcf-protection=none"), "right"
    yield "no relro", lambda: b.cc(*ld("-z,norelro")), "right"
    yield "high text segment", lambda: b.cc("-no-pie", *ld("-Ttext-segment=0x10000000")), "right"
    yield "1 GiB bss", lambda: b.cc("-DBIG"), "right"
    yield "1 GiB bss, no pie", lambda: b.cc("-DBIG", "-no-pie"), "right"
    yield "debug, compressed", lambda: b.cc("-g", "-gz"), "right"
    yield "emitted relocations", lambda: b.cc(*ld("--emit-relocs")), "right"
    yield "lto", lambda: b.cc("-flto"), "right"
    yield "stripped", lambda: b.stripped(b.cc()), "right"
    yield "no section headers", lambda: b.sstrip(b.cc()), "right"
    yield "no section headers, no pie", lambda: b.sstrip(b.cc("-no-pie")), "right"
    yield "no section headers, sysv", lambda: b.sstrip(b.cc(*ld("--hash-style=sysv"))), "right"
    yield "gold", lambda: b.cc(gold), "right"
    yield "gold, no pie", lambda: b.cc(gold, "-no-pie"), "right"
    yield "gold, no build id", lambda: b.cc(gold, *ld("--build-id=none")), "right"
    yield "lld", lambda: b.cc(lld), "right"
    yield "lld, no pie", lambda: b.cc(lld, "-no-pie"), "right"
    yield "lld, now, no plt", lambda: b.cc(lld, "-fno-plt", *ld("-z,now")), "right"
    # strip clears what lies between the segments, so nobody can prove what was there
    yield "lld, separate loadable", lambda: b.cc(lld, *ld("-z,separate-loadable-segments")), "right", ["strip clears"]
    yield "lld, nocombreloc", lambda: b.cc(lld, *ld("-z,nocombreloc")), "right"
    yield "lld, rosegment off", lambda: b.cc(lld, *ld("--no-rosegment")), "right"
    yield "lld, no build id", lambda: b.cc(lld, *ld("--build-id=none")), "right"
    yield "lld, no section headers", lambda: b.sstrip(b.cc(lld)), "right"
    yield "lld, run path before needed", lambda: b.cc(lld, *ld("-rpath,/nowhere")), "right"
    yield "clang", lambda: b.cc(compiler="clang"), "right"
    yield "driver functions", lambda: b.cc(*driver), "right", ["driver"]
    yield "driver functions, no pie", lambda: b.cc(*driver, "-no-pie"), "right", ["driver"]
    yield "address of a driver function, no pie", lambda: b.cc(*driver, "-DADDRESS", "-no-pie", "-fno-pic"), "right", ["driver"]
    yield "address of a driver function", lambda: b.cc(*driver, "-DADDRESS"), "right", ["driver"]
    yield "after patchelf", lambda: b_patchelf(b, b.cc("-DNO_DYNAMIC")), "right", ["strip clears"]
    yield "after patchelf, lld", lambda: b_patchelf(b, b.cc(lld, "-DNO_DYNAMIC")), "right", ["strip clears"]
    yield "after objcopy", lambda: b_objcopy(b, b.cc()), "right"
    yield "library", lambda: b.cc("-shared", "-fPIC", "-DLIBRARY", suffix=".so"), "right", ["library"]
    yield "library, symbolic", lambda: b.cc("-shared", "-fPIC", "-DLIBRARY", *ld("-Bsymbolic", "-z,defs"), suffix=".so"), "right", ["library"]
    yield "library, lld", lambda: b.cc("-shared", "-fPIC", "-DLIBRARY", lld, suffix=".so"), "right", ["library"]
    yield "library, gold", lambda: b.cc("-shared", "-fPIC", "-DLIBRARY", gold, suffix=".so"), "right", ["library"]
    yield "library, no headers", lambda: b.sstrip(b.cc("-shared", "-fPIC", "-DLIBRARY", suffix=".so")), "right", ["library"]
    yield "library, lld, no headers", lambda: b.sstrip(b.cc("-shared", "-fPIC", "-DLIBRARY", lld, suffix=".so")), "right", ["library"]
    yield "rust", lambda: b_rust(b), "right", ["quiet"]
    yield "nvcc, static cudart, stripped", lambda: b_nvcc(b, "static"), "right", ["cuda"]
    yield "nvcc, shared cudart", lambda: b_nvcc(b, "shared"), "right", ["cuda"]
    yield "aarch64 library", lambda: b_aarch64(b), "right", ["aarch64"]
    yield "aarch64, x86-64 runtime", lambda: b_aarch64(b), "is for aarch64"
    arm = lambda *f, **k: b_qemu(b, *f, **k)
    yield "aarch64 under qemu", lambda: arm(), "right", ["qemu"]
    yield "aarch64 under qemu, no pie", lambda: arm("-no-pie"), "right", ["qemu"]
    yield "aarch64 under qemu, now, no plt", lambda: arm("-fno-plt", *ld("-z,now")), "right", ["qemu"]
    yield "aarch64 under qemu, no spare tags", lambda: arm(*ld("--spare-dynamic-tags=0")), "right", ["qemu"]
    yield "aarch64 under qemu, 4K pages", lambda: arm(*ld("-z,max-page-size=0x1000")), "right", ["qemu"]
    yield "aarch64 under qemu, no section headers", lambda: b.sstrip(arm()), "right", ["qemu"]
    yield "aarch64 under qemu, overlay", lambda: b.appended(arm()), "right", ["qemu", "overlay"]
    yield "static", lambda: b.cc("-static", "-DNO_DYNAMIC"), "statically linked"
    yield "static pie", lambda: b.cc("-static-pie"), "statically linked"
    yield "overlay", lambda: b.appended(b.cc()), "right", ["overlay"]
    yield "zeros behind it", lambda: b.appended(b.cc(), b"\0" * 5), "right"
    yield "zeros behind it, library", lambda: b.appended(b.cc("-shared", "-fPIC", "-DLIBRARY", suffix=".so"), b"\0"), "right", ["library"]
    yield "overlay, no pie, now", lambda: b.appended(b.cc("-no-pie", *ld("-z,now"))), "right", ["overlay"]
    yield "overlay, stripped", lambda: b.appended(b.stripped(b.cc())), "right", ["overlay"]
    yield "overlay, lld", lambda: b.appended(b.cc(lld)), "are appended behind the program"
    yield "overlay, library", lambda: b.appended(b.cc("-shared", "-fPIC", "-DLIBRARY", suffix=".so")), "are appended behind the program"
    yield "musl", lambda: b.cc(*ld("--dynamic-linker=/lib/ld-musl-x86_64.so.1")), "not glibc's"
    yield "setuid", lambda: b.mode(b.cc(), 0o4755), "setuid"
    yield "object file", lambda: b.cc("-c", suffix=".o"), "an object file"
    yield "core", lambda: b.edit(b.cc(), 16, b"\x04\x00"), "a core dump"
    yield "32-bit", lambda: b.edit(b.cc(), 4, b"\x01"), "32-bit"
    yield "big-endian", lambda: b.edit(b.cc(), 5, b"\x02"), "big-endian"
    yield "risc-v", lambda: b.edit(b.cc(), 18, b"\xf3\x00"), "machine 243"
    yield "packed", lambda: b_upx(b), "UPX"
    yield "libc's name", lambda: b.cc("-shared", "-fPIC", "-DLIBRARY", *ld("-soname,libc.so.6"), suffix=".so"), "itself, which every program shares"
    yield "linked with gpushare", lambda: b.cc(*ld("--no-as-needed"), b.o.runtime), "linked with gpushare already"


def b_patchelf(b, path):
    b.need("patchelf")
    if sh(["patchelf", "--set-rpath", "/nowhere/" + "x" * 300, path])[0] != 0:
        raise RuntimeError("patchelf")
    return path


def b_objcopy(b, path):
    if sh(["objcopy", "--add-section", f".extra={HERE}/hard.c", path])[0] != 0:
        raise RuntimeError("objcopy")
    return path


def b_rust(b):
    rustc, out, source = b.need("rustc"), b.new(), b.new(".rs")
    open(source, "w").write('extern "C" { fn dlsym(h: *mut u8, n: *const u8) -> *mut u8; }\n'
                            'fn main() { let p = unsafe { dlsym(std::ptr::null_mut(), b"puts\\0".as_ptr()) };\n'
                            'println!("{}", if p.is_null() { "wrong" } else { "right" }); }\n')
    if sh([rustc, "-O", "-o", out, source])[0] != 0:
        raise NotHere("a rustc that links")
    return out


def b_nvcc(b, cudart):
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        raise NotHere("nvcc")
    out, source = b.new(), b.new(".cu")
    open(source, "w").write(CUDA_SOURCE)
    status, _, err = sh([nvcc, "-cudart", cudart, "-o", out, source])
    if status != 0:
        raise RuntimeError(err)
    return b.stripped(out)


def b_aarch64(b):
    out = b.new(".so")
    status = sh([b.need("clang"), "--target=aarch64-linux-gnu", "-nostdlib", "-nostdinc", "-ffreestanding", "-shared",
                 "-fPIC", "-fuse-ld=lld", "-o", out, "-x", "c", os.path.join(HERE, "hard_aarch64.c")])[0]
    if status != 0:
        raise NotHere("clang and lld for aarch64")
    return out


CROSS, SYSROOT = "aarch64-linux-gnu-", "/usr/aarch64-linux-gnu"


def b_qemu(b, *flags):
    """hard.c for aarch64; and once a stand-in runtime library."""
    gcc = b.need(CROSS + "gcc")
    b.need("qemu-aarch64")
    if not os.path.exists(SYSROOT + "/lib/libc.so.6"):
        raise NotHere("libc6-dev-arm64-cross")
    if not os.path.exists(b.other_runtime):
        os.makedirs(os.path.dirname(b.other_runtime), exist_ok=True)
        status, _, err = sh([gcc, "-w", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I", os.path.join(HERE, "../.."),
                             os.path.join(HERE, "standin.c"), os.path.join(HERE, "standin.S"), "-o", b.other_runtime,
                             "-Wl,-soname,libgpushare.so.1,-z,initfirst,-z,nodelete,-z,now", "-ldl"])
        if status != 0:
            raise RuntimeError(err)
    return b.cc(*flags, compiler=CROSS + "gcc")


def b_upx(b):
    path = b.cc("-static", "-DNO_DYNAMIC")
    return b.edit(path, 0x200, b"UPX!")


def behaviour(b, path, flags):
    env = {"STANDIN_REPORT": "1", "LD_LIBRARY_PATH": b.libcuda + ":/usr/local/cuda/lib64"}
    if "aarch64" in flags:
        return 0, "right\n", "standin: dlsym 1 driver 0"
    if "qemu" in flags:
        return sh(["qemu-aarch64", "-L", SYSROOT, path], b.folder, env)
    return sh([b.user, path] if "library" in flags else [path], b.folder, env)


def counted(err):
    """(dlsym, driver) calls that the stand-in saw."""
    for line in err.splitlines():
        if line.startswith("standin:"):
            words = line.split()
            return int(words[2]), int(words[4])
    return 0, 0


def sections(data):
    """[(name, type, flags, address, size)] of the section headers; [] without headers."""
    off, (n, names) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<HH", data, 60)
    if not n:
        return []
    rows = [struct.unpack_from("<IIQQQQ", data, off + 64 * i) for i in range(n)]
    start = rows[names][4]
    return [(data[start + r[0]:data.index(b"\0", start + r[0])].decode(), *r[1:4], r[5]) for r in rows]


def dynamic_tags(data):
    phoff, n = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for i in range(n):
        kind, _, off, _, _, size = struct.unpack_from("<IIQQQQ", data, phoff + 56 * i)
        if kind == 2:
            tags = [struct.unpack_from("<Q", data, off + at)[0] for at in range(0, size - 15, 16)]
            return tags[:tags.index(0)] if 0 in tags else tags
    return []


def check_tables(old, new):
    """Every section header is still there, in its place, and the one new dynamic entry precedes the first DT_NEEDED."""
    before, after = sections(old), sections(new)
    if len(after) < len(before):
        return f"{len(before)} section headers became {len(after)}"
    for a, b in zip(before, after):
        moved = b[0] == ".gpushare.dynamic" or a[0] in (".dynstr", ".shstrtab")
        if not moved and (a[:3], a[4]) != (b[:3], b[4]):
            return f"section {a} became {b}"
    given_up = [0x6ffffff9, 24]  # DT_RELACOUNT, DT_BIND_NOW
    tags, now = dynamic_tags(old), dynamic_tags(new)
    first = tags.index(1) if 1 in tags else 0
    wanted = tags[:first] + [1] + tags[first:]
    if now != wanted and not any(now == wanted[:i] + wanted[i + 1:] for i, t in enumerate(wanted) if t in given_up):
        return f"dynamic tags {tags} became {now}"
    return None


def check_right(b, path, flags, tool):
    original = open(path, "rb").read()
    before = behaviour(b, path, flags)
    if before[0] != (3 if "driver" in flags else 0):
        raise RuntimeError("the unpatched file does not run: " + before[2])
    status, out, err = sh(tool + [path])
    if status != 0:
        return f"patch: exit {status}: {err.strip()}"
    patched = open(path, "rb").read()
    problem = check_run(b, path, flags) or check_tables(original, patched)
    if problem:
        return problem
    headers = int.from_bytes(patched[60:62], "little")
    if "overlay" in flags and (len(patched) != len(original) or patched[-7000:] != b"PAYLOAD" * 1000):
        return "the payload moved"
    if headers and "note: do not run strip" not in out and "overlay" not in flags:  # strip drops any payload
        copy = path + ".stripped" + (".so" if "library" in flags else "")
        if "aarch64" not in flags:
            if sh([(CROSS if "qemu" in flags else "") + "strip", "-o", copy, path])[0] != 0:
                return "strip fails"
            problem = check_run(b, copy, flags)
            if problem:
                return "after strip: " + problem
            problem = check_unstrip(b, original, copy, (CROSS if "qemu" in flags else "") + "strip", flags)
            if problem:
                return problem
    again = sh(tool + [path])
    if again[0] != 0 or "already patched" not in again[1] or open(path, "rb").read() != patched:
        return f"second run: exit {again[0]} {again[1]} {again[2]}"
    if "aarch64" in flags:
        problem = check_other(path)
        if problem:
            return problem
    if sh([b.o.patch, "--restore", path])[0] != 0 or open(path, "rb").read() != original:
        return "restore"
    return None


def check_unstrip(b, original, patched, strip, flags):
    """--restore of a stripped patched file gives what strip makes of the original."""
    wanted = patched + ".wanted"
    open(wanted, "wb").write(original)
    sh([strip, wanted])
    status, _, err = sh([b.o.patch, "--restore", patched])
    if status == 3 and "strip clears" in flags and "its loaded part is not the original's" in err:
        return None
    if status != 0:
        return "restore after strip: " + err.strip()
    return None if open(patched, "rb").read() == open(wanted, "rb").read() else "restore after strip: not what strip makes"


def check_run(b, path, flags):
    status, out, err = behaviour(b, path, flags)
    dlsym, driver = counted(err)
    if "cuda" in flags:
        return None if dlsym > 0 and status == 0 else f"exit {status}, {dlsym} dlsym routed: {err.strip()[:200]}"
    if status != 0 or "right" not in out:
        return f"exit {status}: {out.strip()} {err.strip()}"
    if dlsym == 0 or ("driver" in flags and driver < 2 + ("address" in flags)):
        return f"not routed: dlsym {dlsym}, driver {driver}"
    return None


def check_other(path):
    """A file that cannot run here is at least read by binutils' tools, with the new names in it."""
    out = sh(["readelf", "-W", "--dyn-syms", "-d", "-l", path])
    if "__wrap_dlsym" not in out[1] or "libgpushare.so.1" not in out[1] or out[2].strip():
        return "readelf: " + out[2].strip()
    if "0x10000\n" not in out[1]:
        return "no 64 KiB alignment"
    return None


def check_refused(path, reason, tool):
    before, stat = open(path, "rb").read(), os.stat(path)
    status, out, err = sh(tool + [path])
    if status == 0:
        return "was not refused"
    if reason not in err or len(err.strip().splitlines()) != 1:
        return f"exit {status}: {err.strip()}"
    now = os.stat(path)
    if open(path, "rb").read() != before or (now.st_ino, now.st_mtime_ns) != (stat.st_ino, stat.st_mtime_ns):
        return "the refused file was touched"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--only", help="part of a name")
    options = parser.parse_args()
    options.patch, options.runtime = os.path.abspath(options.patch), os.path.abspath(options.runtime)
    if not shutil.which("gcc"):
        print("skipped: gcc is not installed")
        return 77
    failed = done = skipped = 0
    with tempfile.TemporaryDirectory(prefix="gpushare-hard.") as folder:
        b = Bench(options, folder)
        b.user = b.cc(source=USER)
        b.other_runtime = os.path.join(folder, "aarch64", "libgpushare.so.1")
        b.libcuda = os.path.join(folder, "driver")
        os.mkdir(b.libcuda)
        os.rename(b.cc("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source=os.path.join(HERE, "hard_libcuda.c")),
                  os.path.join(b.libcuda, "libcuda.so.1"))
        for name, build, expect, *flags in cases(b):
            if options.only and options.only not in name:
                continue
            flags = flags[0] if flags else []
            runtime = b.other_runtime if "qemu" in flags else options.runtime
            tool = [options.patch, "--any", "--runtime", runtime] + (["--force"] if "aarch64" in flags else [])
            try:
                path = build()
                problem = check_right(b, path, flags, tool) if expect == "right" else check_refused(path, expect, tool)
            except NotHere as missing:
                skipped += 1
                print(f"{'skipped':<8} {name}: not here: {missing}")
                continue
            except RuntimeError as error:
                problem = "could not be built: " + str(error)[:300]
            done += 1
            failed += problem is not None
            print(f"{'FAILED' if problem else 'ok':<8} {name}{': ' + problem if problem else '' if expect == 'right' else ' (refused)'}",
                  flush=True)
    print(f"{done} hard files, {failed} wrong, {skipped} skipped")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
