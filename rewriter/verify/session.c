/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c: opens the new file with libelf, and finds addresses in it by libelf's own reading
 * of the program headers.
 *
 * An Elf handle belongs to the thread that opened it. No state but libelf's own, which is set
 * once.
 */
#include "rewriter/verify/kinds.h"
#include "rewriter/verify/session.h"

#include <errno.h>
#include <pthread.h>

static void set_version(void)
{
    (void)elf_version(EV_CURRENT);
}

Elf *elf_second_begin(const struct elf_second *second, struct gs_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    Elf *elf;

    pthread_once(&once, set_version);
    elf = elf_begin(second->fd, ELF_C_READ, NULL);
    if (elf == NULL) {
        elf_second_fail(second, "the ELF header", err);
        return NULL;
    }
    if (elf_kind(elf) != ELF_K_ELF || gelf_getclass(elf) != ELFCLASS64) {
        gs_err_set(err, -EIO,
                   "%s: libelf does not accept the new file as a 64-bit ELF file, but "
                   "gpushare-patch does; the old "
                   "file is left unchanged. Please report this",
                   second->plan->image->source.name);
        elf_end(elf);
        return NULL;
    }
    return elf;
}

int elf_second_fail(const struct elf_second *second, const char *what, struct gs_err *err)
{
    const char *why = elf_errmsg(-1);

    return gs_err_set(err, -EIO,
                      "%s: libelf cannot read %s of the new file (%s), but gpushare-patch can; "
                      "the old file is left unchanged. Please report this",
                      second->plan->image->source.name, what,
                      why != NULL ? why : "it gives no reason");
}

int elf_second_offset(const struct elf_second *second, uint64_t address, uint64_t *offset,
                      uint64_t *rest, struct gs_err *err)
{
    for (size_t i = 0; i < second->segment_count; i++) {
        const Elf64_Phdr *p = &second->segments[i];

        if (p->p_type == PT_LOAD && address >= p->p_vaddr &&
            address - p->p_vaddr < p->p_filesz) {
            *offset = p->p_offset + (address - p->p_vaddr);
            *rest = p->p_filesz - (address - p->p_vaddr);
            return 0;
        }
    }
    return gs_err_set(err, -EIO,
                      "%s: according to libelf, address 0x%llx is in no segment of the new "
                      "file; the old file is left unchanged. Please report this",
                      second->plan->image->source.name, (unsigned long long)address);
}
