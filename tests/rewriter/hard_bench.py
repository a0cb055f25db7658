# SPDX-License-Identifier: Apache-2.0
"""How the files of the hard set (hard_builds.py) are made: with compilers, linkers and other tools, and by hand."""
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
                          stderr=subprocess.PIPE, timeout=600)
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


def b_notes(b, *flags):
    """40 notes whose alignments differ: the linkers make up to 40 PT_NOTE of them."""
    source = b.new(".c")
    note = '__asm__(".pushsection .note.n{0},\\"a\\",@note\\n.balign {1}\\n.long 4,8,{0}\\n.asciz \\"GNU\\"\\n.long 1,{0}\\n.popsection");\n'
    open(source, "w").write(f'#include "{SOURCE}"\n' + "".join(note.format(i, 4 if i % 2 else 8) for i in range(40)))
    return b.cc(*flags, source=source)


def b_prelinked(b, path):
    """With what prelink writes into two spare dynamic entries: when it ran, and a checksum."""
    data = open(path, "rb").read()
    offset, size = struct.unpack_from("<Q16xQ", data, b.headers(path, 2)[0] + 8)
    at = next(o for o in range(offset, offset + size, 16) if struct.unpack_from("<Q", data, o)[0] == 0)
    return b.edit(path, at, struct.pack("<QQQQ", 0x6ffffdf5, 1234567890, 0x6ffffdf8, 0xdeadbeef))


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


def b_init_first(b, *flags):
    """.init right behind the build id, which is right behind the program headers, as Red Hat's gcc-toolset-15 lays libraries out."""
    script, text = b.new(".ld"), sh(["ld", "-shared", "--verbose"])[1].split("=" * 50 + "\n")[1]
    at = text.index("  .init  ")
    init = text[at:text.index("}", at) + 1]
    line = next(line for line in text.splitlines() if line.startswith("  .note.gnu.build-id"))
    text = text.replace(init, "", 1).replace(line, line + "\n" + init, 1)
    text = text.replace("/DISCARD/ : {", "/DISCARD/ : { *(.note.gnu.property)", 1)
    open(script, "w").write(text)
    return b.cc("-shared", "-fPIC", "-DLIBRARY", "-Wl,-z,noseparate-code", "-Wl,-T," + script, *flags, suffix=".so")


def b_init_endbr64(b):
    """The same with .init as Red Hat's start files have it."""
    start = b.new(".s")
    open(start, "w").write('.section .init,"ax"\n.globl _init\n.hidden _init\n_init: endbr64\nsub $8,%rsp\n.weak __gmon_start__\n'
                           'movq __gmon_start__@GOTPCREL(%rip),%rax\ntest %rax,%rax\nje 1f\ncall *%rax\n1: add $8,%rsp\nret\n'
                           '.section .note.GNU-stack,"",@progbits\n')
    return b_init_first(b, "-DINIT", "-nostartfiles", start)


def b_metadata(b):
    """A note whose owner is not known to be plain data, in one PT_NOTE behind the one of PT_GNU_PROPERTY: Qt's plugins."""
    notes = b.new(".s")  # 0xc0008002: needs an x86-64 (level 1)
    open(notes, "w").write('.section .note.gnu.property,"a",@note\n.balign 8\n.long 4,16,5\n.asciz "GNU"\n.long 0xc0008002,4,1,0\n'
                           '.section .note.qt.metadata,"a",@note\n.balign 8\n.long 12,8,1\n.asciz "qt-project!"\n.quad 7\n'
                           '.section .note.GNU-stack,"",@progbits\n')
    return b.cc("-shared", "-fPIC", "-DLIBRARY", notes, suffix=".so")


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


def b_bare(b, *flags):
    """A library that knows neither libc nor versions."""
    source = b.new(".c")
    open(source, "w").write("int cuInit(unsigned);\nint bare(void) { return cuInit(0) + 1; }\n")
    return b.cc("-shared", "-fPIC", "-nostdlib", *flags, source=source, suffix=".so")


def b_foreign(b, libc):
    """A library that needs another libc than glibc's."""
    other = b_bare(b, "-Wl,-soname," + libc)
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
