# SPDX-License-Identifier: Apache-2.0
"""The files of the hard set (test_hard.py): how each is built and what must come of it. docs/elf.md says which fact each covers."""
import os

from hard_bench import (b_aarch64, b_after, b_bare, b_bind_now, b_constants_first, b_empty, b_foreign, b_go, b_init_endbr64, b_init_first,
                        b_metadata, b_mold, b_notes, b_nvcc, b_objcopy, b_pascal, b_patchelf, b_prelinked, b_qemu, b_rust, b_sticky, b_symbols, b_upx, b_versioned, b_zeros_first)


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
    yield "no spare tags", lambda: b.cc(*ld("--spare-dynamic-tags=0")), "right", ["plan=relacount"]
    yield "no spare tags, no pie", lambda: b.cc("-no-pie", *ld("--spare-dynamic-tags=0")), "right", ["plan=verneednum"]
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
    yield "lld, no pie", lambda: b.cc(lld, "-no-pie"), "right", ["plan=verneednum", "plan=grow"]
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
        lambda: b_constants_first(b, *ld("--spare-dynamic-tags=0")), "right", ["library", "plan=end", "plan=relacount"]
    yield "zeros behind the program headers, no headers", lambda: b_zeros_first(b), "right", ["library", "plan=end"]
    yield ".init behind the build id", lambda: b_init_first(b, "-DINIT"), "right", ["library", "plan=grow"]
    yield ".init behind the build id, endbr64", lambda: b_init_endbr64(b), "right", ["library", "plan=grow"]
    yield ".init behind the build id, which is called", lambda: b_init_first(b, "-DINIT=2"), "right", ["library", "plan=end"]
    yield ".init behind the build id, with more in it", lambda: b_init_first(b, "-DINIT=3"), "right", ["library", "plan=end"]
    yield "metadata of Qt", lambda: b_metadata(b), "right", ["library", "plan=gnu_property"]
    yield "a note that counts from itself", lambda: b.cc(gold, "-DNOTE"), "right"
    yield "a note that counts from itself, lld", lambda: b.cc(lld, "-DNOTE"), "right"
    yield "more than .dynamic in PT_DYNAMIC", lambda: b_sticky(b), "right", ["plan=verneednum", "strip mends"]
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
    yield "40 notes", lambda: b_notes(b), "right"
    yield "40 notes, mold", lambda: b_notes(b, "-fuse-ld=mold"), "right", ["plan=grow"]
    yield "prelinked", lambda: b_prelinked(b, b.cc()), "right"
    yield "lld, read-only .dynamic", lambda: b.cc(lld, *ld("-z,rodynamic")), "right"
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
    yield "overlay that it reads itself, gold", lambda: b.appended(b.cc("-DPAYLOAD", gold, *ld("-z,norelro"))), "are appended to the program"
    yield "zeros behind it", lambda: b.appended(b.cc(), b"\0" * 5), "right"
    yield "zeros behind it, library", lambda: b.appended(library(), b"\0"), "right", ["library"]
    # what Zig's own linker keeps for its next run
    yield "megabytes of zeros behind it", lambda: b.appended(b.cc(), bytes(3 << 20)), "right"
    yield "megabytes of zeros behind it, library", lambda: b.appended(library(lld), bytes(3 << 20)), "right", ["library"]
    yield "zeros and a payload", lambda: b.appended(b.appended(b.cc(), bytes(3 << 20))), "right", ["overlay", "plan=padding"]
    yield "overlay, no pie, now", lambda: b.appended(b.cc("-no-pie", *ld("-z,now"))), "right", ["overlay"]
    yield "overlay, stripped", lambda: b.appended(b.stripped(b.cc())), "right", ["overlay"]
    yield "overlay, lld", lambda: b.appended(b.cc(lld)), "are appended to the program"
    yield "overlay, crowded segments", lambda: b.appended(b.crowded(b.cc())), "padding of its string table's segment is too small"
    yield "overlay, library", lambda: b.appended(library()), "are appended to the program"
    yield "no dynamic entry to give up", lambda: b_bare(b, lld), "no free entry"
    yield "musl", lambda: b.cc(*ld("--dynamic-linker=/lib/ld-musl-x86_64.so.1")), "not glibc's"
    yield "library for musl", lambda: b_foreign(b, "libc.musl-x86_64.so.1"), "not glibc"
    yield "library for Android", lambda: b_foreign(b, "libc.so"), "not glibc"
    yield "segments out of order", lambda: b.swapped(b.cc()), "starts below the end of the one before it"
    yield "setuid", lambda: b.mode(b.cc(), 0o4755), "setuid"
    yield "object file", lambda: b.cc("-c", suffix=".o"), "an object file"
    yield "core", lambda: b.edit(b.cc(), 16, b"\x04\x00"), "a core dump"
    yield "32-bit", lambda: b.edit(b.cc(), 4, b"\x01"), "32-bit"
    yield "big-endian", lambda: b.edit(b.cc(), 5, b"\x02"), "big-endian"
    yield "risc-v", lambda: b.edit(b.cc(), 18, b"\xf3\x00"), "machine 243"
    yield "packed", lambda: b_upx(b), "UPX"
    yield "packed library", lambda: b.appended(b.sstrip(library()), b"UPX!" + bytes(32)), "UPX"
    yield "relocations packed for Android", lambda: b.cc(lld, *ld("--pack-dyn-relocs=android")), "packed for Android"
    yield "another system's", lambda: b.edit(b.cc(), 7, b"\x09"), "built for another system"
    yield "cubin", lambda: b.edit(b.cc(), 18, b"\xbe\x00"), "GPU code"
    yield "more sections than fit", lambda: b.edit(b.edit(b.cc(), 60, bytes(2)), 62, b"\xff\xff"), "more than 65279 sections"
    yield "sections without headers", lambda: b.edit(b.edit(library(), 40, bytes(8)), 60, bytes(4)), "sections without headers"
    yield "libc's name", lambda: library(*ld("-soname,libc.so.6")), "itself, which all programs share"
    yield "linked with gpushare", lambda: b.cc(*ld("--no-as-needed"), b.o.runtime), "already linked with gpushare-cc"
