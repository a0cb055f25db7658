/* SPDX-License-Identifier: Apache-2.0
 *
 * header.c: checks the ELF header, the first 64 bytes of a file, and says what a file is that
 * cannot be patched.
 *
 * Owns nothing. The file is hostile: every field is checked here or where it is used. No state,
 * any thread.
 */
#include "rewriter/elf/header.h"

#include <errno.h>
#include <string.h>

#define MAX_SEGMENTS 512 /* real files have about a dozen */

const char *elf_machine_name(unsigned machine)
{
    return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "aarch64" : "other";
}

static int check_ident(const struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    const char *name = image->source.name;

    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) {
        if (memcmp(h->e_ident, "#!", 2) == 0)
            return gs_err_set(err, -ENOEXEC,
                              "%s: is a script; patch the interpreter named in its first line",
                              name);
        return gs_err_set(err, -ENOEXEC,
                          "%s: is not an ELF file; name a Linux program or library", name);
    }
    if (memcmp(h->e_ident + EI_ABIVERSION, "AI\1", 3) == 0 ||
        memcmp(h->e_ident + EI_ABIVERSION, "AI\2", 3) == 0)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is an AppImage, which keeps its programs in an archive; extract "
                          "them with --appimage-extract, then run gpushare-patch --tree "
                          "squashfs-root",
                          name);
    if (h->e_ident[EI_CLASS] != ELFCLASS64)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is a 32-bit file; only 64-bit files can be patched, as CUDA "
                          "programs are",
                          name);
    if (h->e_ident[EI_DATA] != ELFDATA2LSB)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is a big-endian file; only x86-64 and aarch64 can be patched",
                          name);
    if (h->e_ident[EI_OSABI] != ELFOSABI_NONE && h->e_ident[EI_OSABI] != ELFOSABI_GNU &&
        h->e_machine != EM_CUDA)
        return gs_err_set(
            err, -ENOEXEC,
            "%s: was built for another system (ELF OSABI %u), which glibc's loader "
            "rejects; only Linux programs can be patched",
            name, h->e_ident[EI_OSABI]);
    if (h->e_ident[EI_VERSION] != EV_CURRENT)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: ELF version %u, not 1", name,
                          h->e_ident[EI_VERSION]);
    return 0;
}

static int check_rest(const struct elf_image *image, struct gs_err *err)
{
    const Elf64_Ehdr *h = &image->header;
    const char *name = image->source.name;

    if (h->e_machine == EM_CUDA)
        return gs_err_set(err, -ENOEXEC,
                          "%s: holds GPU code (a cubin); patch the program that loads it",
                          name);
    if (h->e_type == ET_REL)
        return gs_err_set(err, -ENOEXEC,
                          "%s: is an object file; link it with gpushare-cc instead", name);
    if (h->e_type == ET_CORE)
        return gs_err_set(err, -ENOEXEC, "%s: is a core dump; name the program instead", name);
    if (h->e_type != ET_EXEC && h->e_type != ET_DYN)
        return gs_err_set(err, -ENOEXEC,
                          "%s: has ELF type %u, which is neither a program nor a library", name,
                          h->e_type);
    if (h->e_machine != EM_X86_64 && h->e_machine != EM_AARCH64)
        return gs_err_set(
            err, -ENOEXEC,
            "%s: was built for ELF machine %u; only x86-64 and aarch64 can be patched", name,
            h->e_machine);
    if (h->e_ehsize != sizeof *h)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: e_ehsize is %u, not 64", name,
                          h->e_ehsize);
    if (h->e_phnum == 0 || h->e_phentsize != sizeof(Elf64_Phdr))
        return gs_err_set(err, -ENOEXEC, "%s: damaged: e_phnum is %u, e_phentsize %u (not 56)",
                          name, h->e_phnum, h->e_phentsize);
    if (h->e_phnum > MAX_SEGMENTS)
        return gs_err_set(err, -ENOEXEC, "%s: e_phnum is %u; more than %d is not supported",
                          name, h->e_phnum, MAX_SEGMENTS);
    if (h->e_phoff < sizeof *h || h->e_phoff % 8 != 0)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: e_phoff is 0x%llx", name,
                          (unsigned long long)h->e_phoff);
    return 0;
}

int elf_header_check(const struct elf_image *image, struct gs_err *err)
{
    return check_ident(image, err) ?: check_rest(image, err);
}
