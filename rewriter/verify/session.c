/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c: opens the new file with libelf, finds addresses in it by libelf's own reading of the
 * program headers, and compares entries.
 *
 * An Elf handle belongs to the thread that opened it. No state but libelf's own, which is set
 * once.
 */
#include "rewriter/verify/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const struct elf_kind elf_kind_header = {"ELF header", sizeof(Elf64_Ehdr)};
const struct elf_kind elf_kind_segment = {"program header", sizeof(Elf64_Phdr)};
const struct elf_kind elf_kind_section = {"section", sizeof(Elf64_Shdr)};
const struct elf_kind elf_kind_dynamic = {"dynamic entry", sizeof(Elf64_Dyn)};
const struct elf_kind elf_kind_symbol = {"symbol", sizeof(Elf64_Sym)};
const struct elf_kind elf_kind_relocation = {"relocation", sizeof(Elf64_Rela)};
const struct elf_kind elf_kind_number = {"version of symbol", sizeof(Elf64_Half)};
const struct elf_kind elf_kind_word = {"word of DT_RELR", sizeof(Elf64_Xword)};
const struct elf_kind elf_kind_byte = {"data at offset", 1};
static const struct elf_kind kind_verneed = {"entry of DT_VERNEED at", sizeof(Elf64_Verneed)},
                             kind_vernaux = {"version of DT_VERNEED at", sizeof(Elf64_Vernaux)},
                             kind_verdef = {"entry of DT_VERDEF at", sizeof(Elf64_Verdef)},
                             kind_verdaux = {"version of DT_VERDEF at", sizeof(Elf64_Verdaux)};

int elf_second_compare(const struct elf_second *second, const struct elf_kind *kind,
                       uint64_t index, const void *theirs, const void *ours, const char *by,
                       struct gs_err *err)
{
    const uint8_t *a = theirs, *b = ours;
    size_t i = 0;

    while (i < kind->size && a[i] == b[i])
        i++;
    if (i == kind->size)
        return 0;
    return gs_err_set(
        err, -EIO,
        "%s: byte %zu of %s %llu of the new file is 0x%02x according to libelf, but "
        "0x%02x according to %s; the old file is left unchanged. Please report this",
        second->plan->image->source.name, i, kind->name, (unsigned long long)index, a[i], b[i],
        by);
}

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

/* The second reader's view of DT_VERNEED and DT_VERDEF, which are chains of entries that
 * say how far away the next entry is.
 *
 * Patching may move them, but does not change them: each entry that libelf reads must be
 * the original's at the same distance from the start. */

#define MOST ((uint64_t)2 << 20) /* bytes; both tables number their versions with 15 bits */

/* The same table: as libelf reads it in the new file, and its place in the original. */
struct chain {
    const struct elf_second *second;
    Elf_Data *data;
    uint64_t old; /* offset */
};

/* Compares the entry that libelf has read at `at`, bytes from the start, with the original. */
static int compare_entry(const struct chain *chain, const struct elf_kind *kind, uint64_t at,
                         const void *theirs, struct gs_err *err)
{
    uint64_t old[(sizeof(Elf64_Verdef) + 7) / 8]; /* the largest entry */
    int ret;

    if (theirs == NULL)
        return elf_second_fail(chain->second, kind->name, err);
    ret = elf_source_read(&chain->second->plan->image->source, chain->old + at, old, kind->size,
                          err);
    return ret ?: elf_second_compare(chain->second, kind, at, theirs, old, "the original", err);
}

static int follow_needed(const struct chain *chain, struct gs_err *err)
{
    GElf_Verneed entry;
    GElf_Vernaux hung;
    uint64_t at = 0;

    do {
        uint64_t next;

        if (compare_entry(chain, &kind_verneed, at,
                          gelf_getverneed(chain->data, (int)at, &entry), err))
            return -EIO;
        next = at + entry.vn_aux;
        do {
            if (compare_entry(chain, &kind_vernaux, next,
                              gelf_getvernaux(chain->data, (int)next, &hung), err))
                return -EIO;
            next += hung.vna_next;
        } while (hung.vna_next != 0);
        at += entry.vn_next;
    } while (entry.vn_next != 0);
    return 0;
}

/* A definition may have several names; the loader and our reader read only the first. */
static int follow_defined(const struct chain *chain, struct gs_err *err)
{
    GElf_Verdef entry;
    GElf_Verdaux hung;
    uint64_t at = 0;

    do {
        uint64_t name;

        if (compare_entry(chain, &kind_verdef, at, gelf_getverdef(chain->data, (int)at, &entry),
                          err))
            return -EIO;
        name = at + entry.vd_aux;
        if (compare_entry(chain, &kind_verdaux, name,
                          gelf_getverdaux(chain->data, (int)name, &hung), err))
            return -EIO;
        at += entry.vd_next;
    } while (entry.vd_next != 0);
    return 0;
}

static int follow_chain(const struct elf_second *second, uint64_t address, Elf_Type type,
                        const struct elf_table *old,
                        int (*follow)(const struct chain *, struct gs_err *),
                        struct gs_err *err)
{
    struct chain chain = {.second = second, .old = old->offset};
    uint64_t offset = 0, rest = 0;
    Elf *elf;
    int ret;

    if (address == 0)
        return 0;
    if (elf_second_offset(second, address, &offset, &rest, err) != 0)
        return -EIO;
    elf = elf_second_begin(second, err);
    if (elf == NULL)
        return -EIO;
    chain.data =
        elf_getdata_rawchunk(elf, (int64_t)offset, (size_t)(rest < MOST ? rest : MOST), type);
    ret = chain.data != NULL ? follow(&chain, err)
                             : elf_second_fail(second, "the version tables", err);
    elf_end(elf);
    return ret;
}

int elf_second_versions(const struct elf_second *second, uint64_t needed, uint64_t defined,
                        struct gs_err *err)
{
    const struct elf_image *old = second->plan->image;

    return follow_chain(second, needed, ELF_T_VNEED, &old->tables.verneed, follow_needed, err)
               ?: follow_chain(second, defined, ELF_T_VDEF, &old->tables.verdef, follow_defined,
                               err);
}
