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

/* The fields of the entries that the second reader compares, and the comparison.
 *
 * On a 64-bit machine libelf's GElf types are those of <elf.h>. Constant tables; no state, any
 * thread. */

#define FIELD(type, member)                                                                    \
    {                                                                                          \
#member, offsetof(type, member), sizeof(((type *)0)->member)                           \
    }

const struct elf_kind elf_kind_header = {
    "ELF header",
    sizeof(Elf64_Ehdr),
    {FIELD(Elf64_Ehdr, e_type), FIELD(Elf64_Ehdr, e_machine), FIELD(Elf64_Ehdr, e_version),
     FIELD(Elf64_Ehdr, e_entry), FIELD(Elf64_Ehdr, e_phoff), FIELD(Elf64_Ehdr, e_shoff),
     FIELD(Elf64_Ehdr, e_flags), FIELD(Elf64_Ehdr, e_phnum), FIELD(Elf64_Ehdr, e_shnum),
     FIELD(Elf64_Ehdr, e_shstrndx)}};
const struct elf_kind elf_kind_segment = {
    "program header",
    sizeof(Elf64_Phdr),
    {FIELD(Elf64_Phdr, p_type), FIELD(Elf64_Phdr, p_flags), FIELD(Elf64_Phdr, p_offset),
     FIELD(Elf64_Phdr, p_vaddr), FIELD(Elf64_Phdr, p_paddr), FIELD(Elf64_Phdr, p_filesz),
     FIELD(Elf64_Phdr, p_memsz), FIELD(Elf64_Phdr, p_align)}};
const struct elf_kind elf_kind_section = {
    "section",
    sizeof(Elf64_Shdr),
    {FIELD(Elf64_Shdr, sh_name), FIELD(Elf64_Shdr, sh_type), FIELD(Elf64_Shdr, sh_flags),
     FIELD(Elf64_Shdr, sh_addr), FIELD(Elf64_Shdr, sh_offset), FIELD(Elf64_Shdr, sh_size),
     FIELD(Elf64_Shdr, sh_link), FIELD(Elf64_Shdr, sh_info), FIELD(Elf64_Shdr, sh_addralign),
     FIELD(Elf64_Shdr, sh_entsize)}};
const struct elf_kind elf_kind_dynamic = {
    "dynamic entry",
    sizeof(Elf64_Dyn),
    {FIELD(Elf64_Dyn, d_tag), {"value", offsetof(Elf64_Dyn, d_un), sizeof(uint64_t)}}};
const struct elf_kind elf_kind_symbol = {
    "symbol",
    sizeof(Elf64_Sym),
    {FIELD(Elf64_Sym, st_name), FIELD(Elf64_Sym, st_info), FIELD(Elf64_Sym, st_other),
     FIELD(Elf64_Sym, st_shndx), FIELD(Elf64_Sym, st_value), FIELD(Elf64_Sym, st_size)}};
const struct elf_kind elf_kind_relocation = {
    "relocation",
    sizeof(Elf64_Rela),
    {FIELD(Elf64_Rela, r_offset), FIELD(Elf64_Rela, r_info), FIELD(Elf64_Rela, r_addend)}};
const struct elf_kind elf_kind_number = {
    "version of symbol", sizeof(Elf64_Half), {{"number", 0, sizeof(Elf64_Half)}}};
const struct elf_kind elf_kind_verneed = {
    "entry of DT_VERNEED at",
    sizeof(Elf64_Verneed),
    {FIELD(Elf64_Verneed, vn_version), FIELD(Elf64_Verneed, vn_cnt),
     FIELD(Elf64_Verneed, vn_file), FIELD(Elf64_Verneed, vn_aux),
     FIELD(Elf64_Verneed, vn_next)}};
const struct elf_kind elf_kind_vernaux = {
    "version of DT_VERNEED at",
    sizeof(Elf64_Vernaux),
    {FIELD(Elf64_Vernaux, vna_hash), FIELD(Elf64_Vernaux, vna_flags),
     FIELD(Elf64_Vernaux, vna_other), FIELD(Elf64_Vernaux, vna_name),
     FIELD(Elf64_Vernaux, vna_next)}};
const struct elf_kind elf_kind_verdef = {
    "entry of DT_VERDEF at",
    sizeof(Elf64_Verdef),
    {FIELD(Elf64_Verdef, vd_version), FIELD(Elf64_Verdef, vd_flags),
     FIELD(Elf64_Verdef, vd_ndx), FIELD(Elf64_Verdef, vd_cnt), FIELD(Elf64_Verdef, vd_hash),
     FIELD(Elf64_Verdef, vd_aux), FIELD(Elf64_Verdef, vd_next)}};
const struct elf_kind elf_kind_verdaux = {
    "version of DT_VERDEF at",
    sizeof(Elf64_Verdaux),
    {FIELD(Elf64_Verdaux, vda_name), FIELD(Elf64_Verdaux, vda_next)}};
const struct elf_kind elf_kind_word = {
    "word of DT_RELR", sizeof(Elf64_Xword), {{"value", 0, sizeof(Elf64_Xword)}}};
const struct elf_kind elf_kind_byte = {"byte at offset", 1, {{"value", 0, 1}}};

static uint64_t get_field(const void *entry, size_t at, size_t size)
{
    uint64_t value = 0;

    memcpy(&value, (const char *)entry + at, size); /* little-endian, as our files are */
    return value;
}

int elf_second_compare(const struct elf_second *second, const struct elf_kind *kind,
                       uint64_t index, const void *theirs, const void *ours, const char *by,
                       struct gs_err *err)
{
    for (size_t i = 0; kind->fields[i].name != NULL; i++) {
        size_t at = kind->fields[i].at, size = kind->fields[i].size;
        uint64_t a = get_field(theirs, at, size), b = get_field(ours, at, size);

        if (a != b)
            return gs_err_set(
                err, -EIO,
                "%s: %s %llu of the new file has %s 0x%llx according to libelf, but "
                "0x%llx according to %s; the old file is left unchanged. Please report "
                "this",
                second->plan->image->source.name, kind->name, (unsigned long long)index,
                kind->fields[i].name, (unsigned long long)a, (unsigned long long)b, by);
    }
    return 0;
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
