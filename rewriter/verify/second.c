/* SPDX-License-Identifier: Apache-2.0
 *
 * second.c: the second reader's sessions of libelf, and its view of the dynamic linker's tables:
 * dynamic entries, strings, hash tables, symbols, versions, relocations.
 *
 * Finds each table by libelf's own reading of the dynamic entries and program headers. A table
 * is read in windows, each in a session of libelf of its own, since libelf keeps what it has
 * read until the session ends. An Elf handle belongs to the thread that opened it. No state but
 * libelf's own, which is set once.
 */
#include "rewriter/verify/second.h"
#include "rewriter/elf/names.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const struct elf_kind elf_kind_header = {"ELF header", sizeof(Elf64_Ehdr)};
const struct elf_kind elf_kind_segment = {"program header", sizeof(Elf64_Phdr)};
const struct elf_kind elf_kind_section = {"section", sizeof(Elf64_Shdr)};
static const struct elf_kind kind_dynamic = {"dynamic entry", sizeof(Elf64_Dyn)};
static const struct elf_kind kind_symbol = {"symbol", sizeof(Elf64_Sym)};
static const struct elf_kind kind_relocation = {"relocation", sizeof(Elf64_Rela)};
static const struct elf_kind kind_number = {"version of symbol", sizeof(Elf64_Half)};
static const struct elf_kind kind_word = {"word of DT_RELR", sizeof(Elf64_Xword)};
static const struct elf_kind kind_byte = {"data at offset", 1};
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
    return elf_distrust(second->plan->image->source.name, err,
                        "byte %zu of %s %llu of the new file is 0x%02x according to libelf, "
                        "but 0x%02x according to %s",
                        i, kind->name, (unsigned long long)index, a[i], b[i], by);
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
        elf_distrust(second->plan->image->source.name, err,
                     "libelf does not accept the new file as a 64-bit ELF file, but "
                     "gpushare-patch does");
        elf_end(elf);
        return NULL;
    }
    return elf;
}

int elf_second_fail(const struct elf_second *second, const char *what, struct gs_err *err)
{
    const char *why = elf_errmsg(-1);

    return elf_distrust(second->plan->image->source.name, err,
                        "libelf cannot read %s of the new file (%s), but gpushare-patch can",
                        what, why != NULL ? why : "it gives no reason");
}

static int find_offset(const struct elf_second *second, uint64_t address, uint64_t *offset,
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
    return elf_distrust(second->plan->image->source.name, err,
                        "according to libelf, address 0x%llx is in no segment of the new file",
                        (unsigned long long)address);
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
    if (find_offset(second, address, &offset, &rest, err) != 0)
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

static int check_versions(const struct elf_second *second, uint64_t needed, uint64_t defined,
                          struct gs_err *err)
{
    const struct elf_image *old = second->plan->image;

    return follow_chain(second, needed, ELF_T_VNEED, &old->tables.verneed, follow_needed, err)
               ?: follow_chain(second, defined, ELF_T_VDEF, &old->tables.verdef, follow_defined,
                               err);
}

#define WINDOW ((uint64_t)192 * 1024) /* bytes; a whole number of entries of every kind */

/* The values of the dynamic entries that lead to tables, as libelf reads them; 0: not there. */
struct places {
    uint64_t strings, strings_size, symbols, versions, needed, defined, hash, gnu_hash, rela,
        rela_size, jmprel, jmprel_size, plt_kind, relr, relr_size;
};

/* One table, and the function that compares its entries. */
struct table {
    const struct elf_kind *kind;
    Elf_Type type;
    uint64_t offset, size; /* in the new file, by libelf; bytes */
    /* Compares the entries of a window; `first` is the number of its first entry. */
    int (*check)(const struct elf_second *second, const struct table *table, Elf_Data *data,
                 uint64_t first, struct gs_err *err);
    uint64_t old; /* where the same bytes are in the original */
};

static int read_window(const struct elf_second *second, const struct table *table, uint64_t at,
                       uint64_t size, struct gs_err *err)
{
    Elf *elf = elf_second_begin(second, err);
    Elf_Data *data;
    int ret;

    if (elf == NULL)
        return -EIO;
    data = elf_getdata_rawchunk(elf, (int64_t)(table->offset + at), (size_t)size, table->type);
    if (data == NULL)
        ret = elf_second_fail(second, table->kind->name, err);
    else
        ret = table->check(second, table, data, at / table->kind->size, err);
    elf_end(elf);
    return ret;
}

static int check_table(const struct elf_second *second, struct table table, struct gs_err *err)
{
    int ret = 0;

    table.size -= table.size % table.kind->size; /* the remaining bytes belong to no entry */
    for (uint64_t at = 0; ret == 0 && at < table.size; at += WINDOW)
        ret = read_window(second, &table, at,
                          table.size - at < WINDOW ? table.size - at : WINDOW, err);
    return ret;
}

static void note_place(struct places *places, const GElf_Dyn *entry)
{
    const struct {
        int64_t tag;
        uint64_t *value;
    } known[] = {{DT_STRTAB, &places->strings},  {DT_STRSZ, &places->strings_size},
                 {DT_SYMTAB, &places->symbols},  {DT_VERSYM, &places->versions},
                 {DT_VERNEED, &places->needed},  {DT_VERDEF, &places->defined},
                 {DT_HASH, &places->hash},       {DT_GNU_HASH, &places->gnu_hash},
                 {DT_RELA, &places->rela},       {DT_RELASZ, &places->rela_size},
                 {DT_JMPREL, &places->jmprel},   {DT_PLTRELSZ, &places->jmprel_size},
                 {DT_PLTREL, &places->plt_kind}, {DT_RELR, &places->relr},
                 {DT_RELRSZ, &places->relr_size}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (entry->d_tag == known[i].tag && *known[i].value == 0)
            *known[i].value = entry->d_un.d_val; /* the first one counts, as in our reader */
}

static int check_dynamic(const struct elf_second *second, Elf *elf, struct places *places,
                         struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    const Elf64_Phdr *dynamic = NULL;
    Elf_Data *data;

    for (size_t i = 0; i < second->segment_count; i++)
        if (second->segments[i].p_type == PT_DYNAMIC)
            dynamic = &second->segments[i];
    data = dynamic == NULL ? NULL
                           : elf_getdata_rawchunk(elf, (int64_t)dynamic->p_offset,
                                                  dynamic->p_filesz, ELF_T_DYN);
    if (data == NULL)
        return elf_second_fail(second, "PT_DYNAMIC", err);
    for (size_t i = 0; i < plan->dynamic.count; i++) {
        GElf_Dyn entry;

        if (gelf_getdyn(data, (int)i, &entry) == NULL)
            return elf_second_fail(second, "a dynamic entry", err);
        if (elf_second_compare(second, &kind_dynamic, i, &entry, &plan->dynamic.entries[i],
                               "the plan", err))
            return -EIO;
        if (i < second->new->dynamic.room &&
            elf_second_compare(second, &kind_dynamic, i, &entry,
                               &second->new->dynamic.entries[i], "gpushare-patch", err))
            return -EIO;
        note_place(places, &entry);
    }
    return 0;
}

/* Strings: the old strings, and behind them the added strings, as our reader has them. */
static int check_strings(const struct elf_second *second, const struct table *table,
                         Elf_Data *data, uint64_t first, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    const struct elf_image *old = plan->image;

    if (memcmp(data->d_buf, second->new->tables.string_bytes + first, data->d_size) == 0 &&
        first + data->d_size <= old->tables.strings.size &&
        memcmp(data->d_buf, old->tables.string_bytes + first, data->d_size) == 0)
        return 0; /* the usual window, in one comparison */
    for (uint64_t i = 0; i < data->d_size; i++) {
        const char *theirs = (const char *)data->d_buf + i;
        uint64_t at = first + i, added = plan->names.needed;

        if (*theirs != second->new->tables.string_bytes[at])
            return elf_second_compare(second, table->kind, table->offset + at, theirs,
                                      second->new->tables.string_bytes + at, "gpushare-patch",
                                      err);
        if (at < old->tables.strings.size && *theirs != old->tables.string_bytes[at])
            return elf_second_compare(second, table->kind, table->offset + at, theirs,
                                      old->tables.string_bytes + at, "the plan", err);
        if (at >= added && at - added < plan->names.size &&
            *theirs != plan->names.bytes[at - added])
            return elf_second_compare(second, table->kind, table->offset + at, theirs,
                                      plan->names.bytes + (at - added), "the plan", err);
    }
    return 0;
}

/* For tables that only move: the bytes must be those of the original. */
static int check_same(const struct elf_second *second, const struct table *table,
                      Elf_Data *data, uint64_t first, struct gs_err *err)
{
    const struct elf_source *source = &second->plan->image->source;
    size_t size = table->kind->size;
    /* bytes are named by their place in the file */
    uint64_t number = first + (table->type == ELF_T_BYTE ? table->offset : 0);
    uint8_t *old = elf_source_load(source, table->old + first * size, data->d_size, err);
    int ret = 0;

    if (old == NULL)
        return -EIO;
    if (table->type == ELF_T_BYTE && memcmp(data->d_buf, old, data->d_size) == 0) {
        free(old); /* in one comparison */
        return 0;
    }
    for (size_t i = 0; ret == 0 && i < data->d_size / size; i++) {
        const void *theirs = (const uint8_t *)data->d_buf + i * size;
        GElf_Rela relocation;

        if (table->type == ELF_T_RELA) {
            if (gelf_getrela(data, (int)i, &relocation) == NULL)
                ret = elf_second_fail(second, "a relocation", err);
            theirs = &relocation;
        }
        ret = ret
                  ?: elf_second_compare(second, table->kind, number + i, theirs, old + i * size,
                                        "the original", err);
    }
    free(old);
    return ret;
}

static int compare_index(const void *key, const void *element)
{
    uint64_t index = *(const uint64_t *)key;
    const struct elf_import *import = element;

    return index < import->index ? -1 : index > import->index;
}

/* The import of that symbol, or NULL. Imports are in the order of the symbol table. */
static const struct elf_import *find_import(const struct elf_facts *facts, uint64_t index)
{
    if (facts->import_count == 0)
        return NULL;
    return bsearch(&index, facts->imports, facts->import_count, sizeof *facts->imports,
                   compare_index);
}

/* Changes a symbol of the original as the plan does, except its name. */
static void plan_symbol(const struct elf_plan *plan, Elf64_Sym *symbol)
{
    uint16_t section = symbol->st_shndx;

    if (plan->sections == NULL || section == SHN_UNDEF ||
        section >= plan->image->section_count || ELF64_ST_TYPE(symbol->st_info) == STT_TLS)
        return;
    symbol->st_value +=
        plan->sections[section].sh_addr - plan->image->sections[section].sh_addr;
}

static int check_name(const struct elf_second *second, uint64_t index,
                      const struct elf_import *import, uint32_t name, struct gs_err *err)
{
    const char *now = elf_image_string(second->new, name);
    const char *was = elf_image_string(second->plan->image, import->name);
    size_t prefix = strlen(ELF_WRAP_PREFIX);

    if (now != NULL && strncmp(now, ELF_WRAP_PREFIX, prefix) == 0 &&
        strcmp(now + prefix, was) == 0)
        return 0;
    return elf_distrust(
        second->plan->image->source.name, err,
        "symbol %llu of the new file is %s according to libelf, but %s%s according to the plan",
        (unsigned long long)index, now != NULL ? now : "outside of the strings",
        ELF_WRAP_PREFIX, was);
}

static int check_symbols(const struct elf_second *second, const struct table *table,
                         Elf_Data *data, uint64_t first, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    size_t count = data->d_size / sizeof(Elf64_Sym);
    Elf64_Sym *old = elf_source_load(&plan->image->source, table->old + first * sizeof *old,
                                     data->d_size, err);
    Elf64_Sym *ours = elf_source_load(&second->new->source,
                                      second->new->tables.symbols.offset + first * sizeof *ours,
                                      data->d_size, err);
    int ret = old != NULL && ours != NULL ? 0 : -EIO;

    for (size_t i = 0; ret == 0 && i < count; i++) {
        const struct elf_import *import = find_import(plan->facts, first + i);
        GElf_Sym symbol;

        if (gelf_getsym(data, (int)i, &symbol) == NULL) {
            ret = elf_second_fail(second, "a symbol", err);
            break;
        }
        ret = elf_second_compare(second, table->kind, first + i, &symbol, &ours[i],
                                 "gpushare-patch", err);
        if (ret == 0 && import != NULL && !import->keeps_name &&
            plan->slot.way != ELF_SLOT_PADDING) {
            ret = check_name(second, first + i, import, symbol.st_name, err);
            old[i].st_name = symbol.st_name;
        }
        plan_symbol(plan, &old[i]);
        ret = ret
                  ?: elf_second_compare(second, table->kind, first + i, &symbol, &old[i],
                                        "the plan", err);
    }
    free(old);
    free(ours);
    return ret;
}

static int check_numbers(const struct elf_second *second, const struct table *table,
                         Elf_Data *data, uint64_t first, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    uint16_t *old = elf_source_load(&plan->image->source, table->old + first * sizeof *old,
                                    data->d_size, err);
    int ret = old != NULL ? 0 : -EIO;

    for (size_t i = 0; ret == 0 && i < data->d_size / sizeof *old; i++) {
        GElf_Versym number;

        if (gelf_getversym(data, (int)i, &number) == NULL)
            ret = elf_second_fail(second, "the version of a symbol", err);
        if (plan->slot.way != ELF_SLOT_PADDING && find_import(plan->facts, first + i) != NULL)
            old[i] = VER_NDX_GLOBAL; /* the runtime library's names have no version */
        ret = ret
                  ?: elf_second_compare(second, table->kind, first + i, &number, &old[i],
                                        "the plan", err);
    }
    free(old);
    return ret;
}

/* Checks a table that libelf finds at `address`, and our reader in the original at `old`. */
static int check_at(const struct elf_second *second, uint64_t address, struct table table,
                    struct gs_err *err)
{
    uint64_t rest = 0;

    if (address == 0 || table.size == 0)
        return 0;
    if (find_offset(second, address, &table.offset, &rest, err) != 0)
        return -EIO;
    if (rest < table.size)
        return elf_distrust(second->plan->image->source.name, err,
                            "a table of 0x%llx bytes (%s) has only 0x%llx bytes in the new "
                            "file according to libelf",
                            (unsigned long long)table.size, table.kind->name,
                            (unsigned long long)rest);
    return check_table(second, table, err);
}

static int check_relocations(const struct elf_second *second, const struct places *places,
                             struct gs_err *err)
{
    const struct {
        uint64_t address, size;
        const struct elf_kind *kind;
        Elf_Type type;
    } tables[] = {
        {places->rela, places->rela_size, &kind_relocation, ELF_T_RELA},
        {places->jmprel, places->plt_kind == DT_RELA ? places->jmprel_size : 0,
         &kind_relocation, ELF_T_RELA},
        {places->relr, places->relr_size, &kind_word, ELF_T_XWORD},
    };

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct table table = {.kind = tables[i].kind,
                              .type = tables[i].type,
                              .size = tables[i].size,
                              .check = check_same};

        if (tables[i].size == 0)
            continue;
        if (elf_image_offset(second->plan->image, tables[i].address, table.size, &table.old))
            return elf_distrust(second->plan->image->source.name, err,
                                "libelf finds a relocation table at 0x%llx in the new file, "
                                "where gpushare-patch has none",
                                (unsigned long long)tables[i].address);
        if (check_at(second, tables[i].address, table, err) != 0)
            return -EIO;
    }
    return 0;
}

/* By now both readers agree on the size of the string table. */
static int check_tables(const struct elf_second *second, const struct places *places,
                        struct gs_err *err)
{
    const struct elf_tables *old = &second->plan->image->tables;
    const struct {
        uint64_t address;
        struct table table;
    } all[] = {
        {places->strings, {&kind_byte, ELF_T_BYTE, 0, places->strings_size, check_strings, 0}},
        {places->hash,
         {&kind_byte, ELF_T_BYTE, 0, old->hash.size, check_same, old->hash.offset}},
        {places->gnu_hash,
         {&kind_byte, ELF_T_BYTE, 0, old->gnu_hash.size, check_same, old->gnu_hash.offset}},
        {places->symbols,
         {&kind_symbol, ELF_T_SYM, 0, old->symbols.size, check_symbols, old->symbols.offset}},
        {places->versions,
         {&kind_number, ELF_T_HALF, 0, old->versions.size, check_numbers,
          old->versions.offset}},
    };
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < sizeof all / sizeof all[0]; i++)
        ret = check_at(second, all[i].address, all[i].table, err);
    ret = ret ?: check_versions(second, places->needed, places->defined, err);
    return ret ?: check_relocations(second, places, err);
}

int elf_second_tables(const struct elf_second *second, struct gs_err *err)
{
    struct places places = {0};
    Elf *elf = elf_second_begin(second, err);
    int ret;

    if (elf == NULL)
        return -EIO;
    ret = check_dynamic(second, elf, &places, err);
    elf_end(elf);
    return ret ?: check_tables(second, &places, err);
}
