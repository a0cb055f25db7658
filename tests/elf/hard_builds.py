# SPDX-License-Identifier: Apache-2.0
"""The files of the hard set (hard.py): how each is built and what must come of it. docs/elf.md says which fact each covers."""
import os
import shutil
import struct
import subprocess

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

    def headers(self, path, kind):
        """Offsets of the program headers of one type."""
        data = open(path, "rb").read()
        phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
        return [phoff + 56 * i for i in range(phnum) if struct.unpack_from("<I", data, phoff + 56 * i)[0] == kind]

    def emptied(self, path):
        """A section (the last but three, .comment) without bytes and nowhere in the file, as llvm-strip (22) leaves some."""
        data = open(path, "rb").read()
        header = struct.unpack_from("<Q", data, 40)[0] + 64 * (struct.unpack_from("<H", data, 60)[0] - 4)
        return self.edit(path, header + 24, struct.pack("<QQ", len(data) + 1000, 0))

    def spare_header(self, path):
        """Makes PT_GNU_PROPERTY a PT_NULL: nothing needs it."""
        return self.edit(path, self.headers(path, 0x6474e553)[0], b"\0" * 4)

    def swapped(self, path):
        """The second loadable segment before the first."""
        first, second = self.headers(path, 1)[:2]
        data = open(path, "rb").read()
        self.edit(path, first, data[second:second + 56])
        return self.edit(path, second, data[first:first + 56])

    def crowded(self, path):
        """Puts the second loadable segment into the page where the first one ends."""
        first, second = self.headers(path, 1)[:2]
        data = open(path, "rb").read()
        end = struct.unpack_from("<Q", data, first + 16)[0] + struct.unpack_from("<Q", data, first + 40)[0]
        self.edit(path, second + 16, struct.pack("<Q", end + 8))  # p_vaddr
        return self.edit(path, second + 48, struct.pack("<Q", 1))  # p_align

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
    shared = ["-shared", "-fPIC", "-DLIBRARY"]
    library = lambda *flags: b.cc(*shared, *flags, suffix=".so")
    driver = ["-DDRIVER", *ld("--no-as-needed", "-rpath," + b.libcuda), os.path.join(b.libcuda, "libcuda.so.1")]
    lld, gold = "-fuse-ld=lld", "-fuse-ld=gold"
    yield "pie", lambda: b.cc(), "right", ["plan=spare", "plan=property_note"]
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
    yield "no spare tags", lambda: b.cc(*ld("--spare-dynamic-tags=0")), "right", ["plan=move"]
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
    yield "gold", lambda: b.cc(gold), "right", ["plan=grow"]
    yield "gold, no pie", lambda: b.cc(gold, "-no-pie"), "right"
    yield "gold, no build id", lambda: b.cc(gold, *ld("--build-id=none")), "right"
    yield "lld", lambda: b.cc(lld), "right", ["plan=relacount", "plan=grow"]
    yield "lld, no pie", lambda: b.cc(lld, "-no-pie"), "right", ["plan=move", "plan=grow"]
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
    yield "library", lambda: library(), "right", ["library"]
    yield "library, symbolic", lambda: library(*ld("-Bsymbolic", "-z,defs")), "right", ["library"]
    yield "library, lld", lambda: library(lld), "right", ["library"]
    yield "library, gold", lambda: library(gold), "right", ["library"]
    yield "library, no headers", lambda: b.sstrip(library()), "right", ["library"]
    yield "library, lld, no headers", lambda: b.sstrip(library(lld)), "right", ["library"]
    yield "AddressSanitizer", lambda: b.cc("-fsanitize=address"), "right"
    yield "AddressSanitizer, no spare tags", lambda: b.cc("-fsanitize=address", *ld("--spare-dynamic-tags=0")), "right"
    yield "IFUNC", lambda: b.cc("-DIFUNC"), "right"
    yield "IFUNC, no pie", lambda: b.cc("-DIFUNC", "-no-pie"), "right"
    yield "IFUNC, lld", lambda: b.cc("-DIFUNC", lld), "right"
    yield "TLS descriptors, library", lambda: library("-mtls-dialect=gnu2"), "right", ["library"]
    yield "initial-exec TLS, library", lambda: library("-ftls-model=initial-exec"), "right", ["library"]
    yield "spare program header", lambda: b.spare_header(b.cc()), "right", ["plan=null"]
    yield "constants behind the program headers", lambda: b_constants_first(b), "right", ["library", "plan=end"]
    yield "constants behind the program headers, no spare tags", \
        lambda: b_constants_first(b, *ld("--spare-dynamic-tags=0")), "right", ["library", "plan=end", "plan=move"]
    yield "zeros behind the program headers, no headers", lambda: b_zeros_first(b), "right", ["library", "plan=end"]
    yield "a note that counts from itself", lambda: b.cc(gold, "-DNOTE"), "right"
    yield "a note that counts from itself, lld", lambda: b.cc(lld, "-DNOTE"), "right"
    yield "more than .dynamic in PT_DYNAMIC", lambda: b_sticky(b), "right", ["plan=move", "strip mends"]
    yield "DT_BIND_NOW", lambda: b_bind_now(b), "right", ["plan=bind_now"]
    yield "lld, 64K pages", lambda: b.cc(lld, *ld("-z,max-page-size=0x10000")), "right"
    yield "lld, 2M pages, no pie", lambda: b.cc(lld, "-no-pie", *ld("-z,max-page-size=0x200000")), "right"
    yield "gold, 64K pages", lambda: b.cc(gold, *ld("-z,max-page-size=0x10000")), "right"
    yield "gold, sysv hash", lambda: b.cc(gold, *ld("--hash-style=sysv")), "right"
    yield "mold", lambda: b_mold(b), "right", ["plan=grow"]
    yield "mold, no pie", lambda: b_mold(b, "-no-pie"), "right"
    yield "auditors", lambda: b.cc(*ld("--audit=/nowhere/audit.so", "--depaudit=/nowhere/other.so")), "right"
    yield "auxiliary filter, library", lambda: library(*ld("--auxiliary=libnowhere.so")), "right", ["library"]
    yield "filter, library", lambda: library(*ld("--filter=libm.so.6")), "right", ["library"]
    yield "versioned definitions", lambda: b_versioned(b), "right", ["library", "versioned"]
    yield "versioned definitions, lld", lambda: b_versioned(b, lld), "right", ["library", "versioned"]
    yield "versioned definitions, gold", lambda: b_versioned(b, gold), "right", ["library", "versioned"]
    yield "versioned definitions, no notes", lambda: b_versioned(b, *ld("--build-id=none")), "right", ["library", "versioned"]
    yield "versioned definitions, no headers", lambda: b.sstrip(b_versioned(b)), "right", ["library", "versioned"]
    yield "after patchelf, twice", lambda: b_patchelf(b, b_patchelf(b, library("-DNO_DYNAMIC", *ld("-soname,libhard.so.1")), "--set-rpath", "$ORIGIN"),
                                                     "--set-soname", "lib" + "y" * 99), "right", ["library", "strip clears"]
    yield "library, lld, 5 MB of symbols", lambda: b_symbols(b, lld), "right", ["library", "plan=grow"]
    yield "a section of no bytes behind the end", lambda: b.emptied(b.cc()), "right", ["strip mends"]
    yield "a segment of zeros behind the end", lambda: b_empty(b, b.cc(), 1 << 36, 4096), "right", ["strip mends"]
    yield "an empty segment at an odd place", lambda: b_empty(b, b.cc()), "right", ["plan=null", "strip mends"]
    yield "after eu-strip", lambda: b_after(b, b.cc("-g"), "eu-strip"), "right"
    yield "after llvm-strip", lambda: b_after(b, b.cc("-g", lld), "llvm-strip"), "right"
    yield "go", lambda: b_go(b), "right", ["silent", "strip clears"]
    yield "go, linked by lld", lambda: b_go(b, "-linkmode=external -extldflags=-fuse-ld=lld"), "right", ["silent", "plan=grow"]
    yield "pascal", lambda: b_pascal(b), "right"
    yield "rust", lambda: b_rust(b), "right"
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
    yield "overlay", lambda: b.appended(b.cc()), "right", ["overlay", "plan=padding"]
    yield "overlay that it reads itself", lambda: b.appended(b.cc("-DPAYLOAD")), "right", ["overlay"]
    yield "overlay that it reads itself, no pie", lambda: b.appended(b.cc("-DPAYLOAD", "-no-pie")), "right", ["overlay"]
    yield "overlay that it reads itself, gold", lambda: b.appended(b.cc("-DPAYLOAD", gold)), "are appended behind the program"
    yield "zeros behind it", lambda: b.appended(b.cc(), b"\0" * 5), "right"
    yield "zeros behind it, library", lambda: b.appended(library(), b"\0"), "right", ["library"]
    # what Zig's own linker keeps for its next run
    yield "megabytes of zeros behind it", lambda: b.appended(b.cc(), bytes(3 << 20)), "right"
    yield "megabytes of zeros behind it, library", lambda: b.appended(library(lld), bytes(3 << 20)), "right", ["library"]
    yield "zeros and a payload", lambda: b.appended(b.appended(b.cc(), bytes(3 << 20))), "right", ["overlay", "plan=padding"]
    yield "overlay, no pie, now", lambda: b.appended(b.cc("-no-pie", *ld("-z,now"))), "right", ["overlay"]
    yield "overlay, stripped", lambda: b.appended(b.stripped(b.cc())), "right", ["overlay"]
    yield "overlay, lld", lambda: b.appended(b.cc(lld)), "are appended behind the program"
    yield "overlay, crowded segments", lambda: b.appended(b.crowded(b.cc())), "padding of its string table's segment is too small"
    yield "overlay, library", lambda: b.appended(library()), "are appended behind the program"
    yield "musl", lambda: b.cc(*ld("--dynamic-linker=/lib/ld-musl-x86_64.so.1")), "not glibc's"
    yield "library for musl", lambda: b_foreign(b, "libc.musl-x86_64.so.1"), "not glibc"
    yield "library for Android", lambda: b_foreign(b, "libc.so"), "not glibc"
    yield "segments out of order", lambda: b.swapped(b.cc()), "below or inside the one before it"
    yield "setuid", lambda: b.mode(b.cc(), 0o4755), "setuid"
    yield "object file", lambda: b.cc("-c", suffix=".o"), "an object file"
    yield "core", lambda: b.edit(b.cc(), 16, b"\x04\x00"), "a core dump"
    yield "32-bit", lambda: b.edit(b.cc(), 4, b"\x01"), "32-bit"
    yield "big-endian", lambda: b.edit(b.cc(), 5, b"\x02"), "big-endian"
    yield "risc-v", lambda: b.edit(b.cc(), 18, b"\xf3\x00"), "machine 243"
    yield "packed", lambda: b_upx(b), "UPX"
    yield "packed library", lambda: b.appended(b.sstrip(library()), b"UPX!" + bytes(32)), "UPX"
    yield "relocations packed for Android", lambda: b.cc(lld, *ld("--pack-dyn-relocs=android")), "packed for Android"
    yield "another system's", lambda: b.edit(b.cc(), 7, b"\x09"), "made for another system"
    yield "cubin", lambda: b.edit(b.cc(), 18, b"\xbe\x00"), "code for the GPU"
    yield "more sections than fit", lambda: b.edit(b.edit(b.cc(), 60, bytes(2)), 62, b"\xff\xff"), "more than 65279 sections"
    yield "sections without headers", lambda: b.edit(b.edit(library(), 40, bytes(8)), 60, bytes(4)), "sections without headers"
    yield "libc's name", lambda: library(*ld("-soname,libc.so.6")), "itself, which every program shares"
    yield "linked with gpushare", lambda: b.cc(*ld("--no-as-needed"), b.o.runtime), "linked with gpushare already"


def b_after(b, path, *command):
    """Lets a tool change the file in place."""
    b.need(command[0])
    if sh([*command, path])[0] != 0:
        raise RuntimeError(command[0])
    return path


def b_patchelf(b, path, *change):
    return b_after(b, path, "patchelf", *(change or ("--set-rpath", "/nowhere/" + "x" * 300)))


def b_symbols(b, *flags):
    """TensorFlow's table, the first thing behind the program headers, has 12 MB."""
    source, made = b.new(".s"), b.new(".o")
    open(source, "w").write(".data\n" + "".join(f".globl s{i}\ns{i}:\n" for i in range(220000)) + ".byte 0\n")
    return b.cc("-shared", "-fPIC", "-DLIBRARY", b_after(b, made, "as", source, "-o"), *flags, suffix=".so")


def b_empty(b, path, offset=0x123, size=0):
    """As patchelf (0.19, called twice) and then strip leave them: the kernel maps nothing there, and starts the program."""
    return b.edit(path, b.headers(path, 0x6474e553)[0], struct.pack("<IIQQQQQQ", 1, 6, offset, 1 << 24, 1 << 24, 0, size, 4096))


def b_objcopy(b, path):
    return b_after(b, path, "objcopy", "--add-section", f".extra={HERE}/hard.c")


def b_first(b, line, *flags):
    """A library with that line of a linker script right behind the program headers."""
    script, text = b.new(".ld"), sh(["ld", "-shared", "--verbose"])[1].split("=" * 50 + "\n")[1]
    text = text.replace(line, "", 1)
    at = text.index("  .note.gnu.build-id")
    open(script, "w").write(text[:at] + line + "\n" + text[at:])
    return b.cc("-shared", "-fPIC", "-DLIBRARY", "-Wl,-T," + script, *flags, suffix=".so")


def b_constants_first(b, *flags):
    """.rodata right behind the program headers: there the table cannot grow."""
    text = sh(["ld", "-shared", "--verbose"])[1]
    return b_first(b, next(line for line in text.splitlines() if line.startswith("  .rodata  ")), *flags)


def b_zeros_first(b):
    """Constants there that are zero, and nothing that tells them from padding."""
    return b.sstrip(b_first(b, "  .zeros : { KEEP(*(.zeros)) }", "-DZEROS"))


def b_sticky(b):
    """A linker script that does not say where PT_DYNAMIC ends: all that follows is in it, and looks like spare entries."""
    script, text = b.new(".ld"), sh(["ld", "--verbose"])[1].split("=" * 50 + "\n")[1]
    for old, new in (("SECTIONS\n{", "PHDRS { headers PT_PHDR PHDRS; interp PT_INTERP; text PT_LOAD FILEHDR PHDRS FLAGS(7);\n"
                                     "dynamic PT_DYNAMIC; }\nSECTIONS\n{"),
                     (".interp)", ".interp) } :text :interp\n .note.gnu.property : { *(.note.gnu.property) } :text\n .behind : {"),
                     ("{ *(.note.gnu.build-id) }", "{ *(.note.gnu.build-id) } :text"),
                     ("{ *(.dynamic) }", "{ *(.dynamic) } :text :dynamic")):
        text = text.replace(old, new, 1)
    open(script, "w").write(text)
    return b.cc("-no-pie", "-Wl,--spare-dynamic-tags=0", "-DNO_DYNAMIC", "-Wl,-T," + script)


def b_bind_now(b):
    """No entry to spare but a DT_BIND_NOW that DT_FLAGS_1 repeats, as old linkers wrote it."""
    path = b.cc("-fuse-ld=lld", "-Wl,-z,now,-z,nocombreloc")
    data = open(path, "rb").read()
    dynamic, = b.headers(path, 2)
    offset, size = struct.unpack_from("<Q", data, dynamic + 8)[0], struct.unpack_from("<Q", data, dynamic + 32)[0]
    at = next(o for o in range(offset, offset + size, 16) if struct.unpack_from("<Q", data, o)[0] == 0x1e)  # DT_FLAGS
    return b.edit(path, at, struct.pack("<QQ", 24, 0))


def b_mold(b, *flags):
    b.need("mold")
    return b.cc("-fuse-ld=mold", *flags)


def b_versioned(b, *flags):
    """A library with two versions, the second of which has the entry; DT_VERDEF."""
    script = b.new(".map")
    open(script, "w").write("HARD_1 { global: hard_none; local: *; };\nHARD_2 { global: hard_look; } HARD_1;\n")
    return b.cc("-shared", "-fPIC", "-DLIBRARY", "-Wl,--version-script=" + script, *flags, suffix=".so")


def b_foreign(b, libc):
    """A library that needs another libc than glibc's."""
    empty = b.new(".c")
    open(empty, "w").write("int no_symbol_at_all;\n")
    other = b.cc("-shared", "-fPIC", "-nostdlib", "-Wl,-soname," + libc, source=empty, suffix=".so")
    return b.cc("-shared", "-fPIC", "-nostdlib", "-DLIBRARY", "-Wl,--no-as-needed", other, suffix=".so")


def b_go(b, link="-linkmode=internal"):
    """Looks a user up through libc. Go's own linker leaves no spare dynamic entry."""
    go, source, out = b.need("go"), b.new(".go"), b.new()
    open(source, "w").write('package main\nimport ("fmt"; "os/user")\nfunc main() { _, e := user.Lookup("root")\n'
                            'if e == nil { fmt.Println("right") } }\n')
    if sh([go, "build", "-ldflags=" + link, "-o", out, source], env={"GO111MODULE": "off", "GOCACHE": b.new()})[0] != 0:
        raise NotHere("a go that links")
    return out


def b_pascal(b):
    """Linked by a script of its own compiler's, without what gcc would add."""
    fpc, source, out = b.need("fpc"), b.new(".pas"), b.new()
    open(source, "w").write("program p; uses dynlibs, cthreads; begin\n"
                            "if GetProcedureAddress(LoadLibrary('libc.so.6'), 'puts') <> nil then writeln('right'); end.\n")
    if sh([fpc, "-v0", source, "-o" + out])[0] != 0:
        raise NotHere("an fpc that links")
    return out


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
        made = b.new(".so")
        os.makedirs(os.path.dirname(b.other_runtime), exist_ok=True)
        status, _, err = sh([gcc, "-w", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I", os.path.join(HERE, "../.."),
                             os.path.join(HERE, "standin.c"), os.path.join(HERE, "standin.S"), "-o", made,
                             "-Wl,-soname,libgpushare.so.1,-z,initfirst,-z,nodelete,-z,now", "-ldl"])
        if status != 0:
            raise RuntimeError(err)
        os.rename(made, b.other_runtime)  # another process may do the same
    return b.cc(*flags, compiler=CROSS + "gcc")


def b_upx(b):
    path = b.cc("-static", "-DNO_DYNAMIC")
    return b.edit(path, 0x200, b"UPX!")
