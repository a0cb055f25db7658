/* SPDX-License-Identifier: Apache-2.0
 *
 * small_library.c: makes it, reads it, and sees it refused. No state.
 */
#include "tests/rewriter/small_library.h"
#include "rewriter/elf/reader.h"

#include <string.h>
#include <unistd.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h wants the four above */
#include <cmocka.h>

struct small small_make(size_t spare)
{
    static const Elf64_Nhdr note = {.n_namesz = 4, .n_descsz = 48, .n_type = 1};
    struct small s = {.strings = "\0libx.so\0dlsym\0cuInit"};
    size_t n = 0;

    memcpy(s.header.e_ident, ELFMAG, SELFMAG);
    s.header.e_ident[EI_CLASS] = ELFCLASS64;
    s.header.e_ident[EI_DATA] = ELFDATA2LSB;
    s.header.e_ident[EI_VERSION] = EV_CURRENT;
    s.header.e_type = ET_DYN;
    s.header.e_machine = EM_X86_64;
    s.header.e_version = EV_CURRENT;
    s.header.e_phoff = offsetof(struct small, segments);
    s.header.e_ehsize = sizeof(Elf64_Ehdr);
    s.header.e_phentsize = sizeof(Elf64_Phdr);
    s.header.e_phnum = 3;
    s.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                                 .p_flags = PF_R | PF_W,
                                 .p_filesz = sizeof s,
                                 .p_memsz = sizeof s,
                                 .p_align = 0x1000};
    memcpy(s.behind, &note, sizeof note);
    memcpy(s.behind + sizeof note, "GNU", 4);
    s.segments[1] = (Elf64_Phdr){.p_type = PT_NOTE,
                                 .p_offset = offsetof(struct small, behind),
                                 .p_vaddr = offsetof(struct small, behind),
                                 .p_filesz = sizeof s.behind,
                                 .p_align = 4};
    s.symbols[1] = (Elf64_Sym){.st_name = 9, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
    s.symbols[2] = (Elf64_Sym){.st_name = 15, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
    s.hash[0] = 1;
    s.hash[1] = 3;
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_SONAME, .d_un.d_val = 1};
    s.dynamic[n++] =
        (Elf64_Dyn){.d_tag = DT_STRTAB, .d_un.d_ptr = offsetof(struct small, strings)};
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_STRSZ, .d_un.d_val = sizeof s.strings};
    s.dynamic[n++] =
        (Elf64_Dyn){.d_tag = DT_SYMTAB, .d_un.d_ptr = offsetof(struct small, symbols)};
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_SYMENT, .d_un.d_val = sizeof(Elf64_Sym)};
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_HASH, .d_un.d_ptr = offsetof(struct small, hash)};
    n += spare;
    s.segments[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                 .p_flags = PF_R | PF_W,
                                 .p_offset = offsetof(struct small, dynamic),
                                 .p_vaddr = offsetof(struct small, dynamic),
                                 .p_filesz = n * sizeof(Elf64_Dyn),
                                 .p_memsz = n * sizeof(Elf64_Dyn),
                                 .p_align = 8};
    return s;
}

int small_read(const struct small *s, struct elf_image *image, struct gs_err *err)
{
    struct elf_source source = {
        .name = "small", .fd = -1, .memory = (const uint8_t *)s, .size = sizeof *s};

    memset(err, 0, sizeof *err);
    return elf_image_read(image, &source, err);
}

void small_refuse(const struct small *s, const char *why)
{
    struct elf_image image;
    struct gs_err err;

    assert_int_equal(small_read(s, &image, &err), -ENOEXEC);
    if (strstr(err.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}
