/* SPDX-License-Identifier: Apache-2.0
 *
 * chains.c: the second reader's view of DT_VERNEED and DT_VERDEF, which are chains of entries
 * that say how far away the next entry is.
 *
 * Patching may move them, but does not change them: each entry that libelf reads must be the
 * original's at the same distance from the start. No state, any thread.
 */
#include "rewriter/verify/chains.h"
#include "rewriter/verify/kinds.h"
#include "rewriter/verify/session.h"

#include <errno.h>
#include <stdlib.h>

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

        if (compare_entry(chain, &elf_kind_verneed, at,
                          gelf_getverneed(chain->data, (int)at, &entry), err))
            return -EIO;
        next = at + entry.vn_aux;
        do {
            if (compare_entry(chain, &elf_kind_vernaux, next,
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

        if (compare_entry(chain, &elf_kind_verdef, at,
                          gelf_getverdef(chain->data, (int)at, &entry), err))
            return -EIO;
        name = at + entry.vd_aux;
        if (compare_entry(chain, &elf_kind_verdaux, name,
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
    uint64_t offset, rest;
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
