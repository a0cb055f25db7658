/* SPDX-License-Identifier: Apache-2.0
 *
 * tables.c: the second reader's view of the dynamic linker's tables: dynamic entries, strings,
 * hash tables, symbols, their version numbers, relocations.
 *
 * Finds each table by libelf's own reading of the dynamic entries and program headers. A table
 * is read in windows, each in a session of libelf of its own, since libelf keeps what it has
 * read until the session ends. No state, any thread.
 */
#include "rewriter/elf/names.h"
#include "rewriter/verify/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
        if (elf_second_compare(second, &elf_kind_dynamic, i, &entry, &plan->dynamic.entries[i],
                               "the plan", err))
            return -EIO;
        if (i < second->new->dynamic.room &&
            elf_second_compare(second, &elf_kind_dynamic, i, &entry,
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
    return gs_err_set(err, -EIO,
                      "%s: symbol %llu of the new file is %s according to libelf, but %s%s "
                      "according to the plan; the old file is left unchanged. Please report "
                      "this",
                      second->plan->image->source.name, (unsigned long long)index,
                      now != NULL ? now : "outside of the strings", ELF_WRAP_PREFIX, was);
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
    uint64_t rest;

    if (address == 0 || table.size == 0)
        return 0;
    if (elf_second_offset(second, address, &table.offset, &rest, err) != 0)
        return -EIO;
    if (rest < table.size)
        return gs_err_set(
            err, -EIO,
            "%s: a table of 0x%llx bytes (%s) has only 0x%llx bytes in the new file "
            "according to libelf; the old file is left unchanged. Please report this",
            second->plan->image->source.name, (unsigned long long)table.size, table.kind->name,
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
        {places->rela, places->rela_size, &elf_kind_relocation, ELF_T_RELA},
        {places->jmprel, places->plt_kind == DT_RELA ? places->jmprel_size : 0,
         &elf_kind_relocation, ELF_T_RELA},
        {places->relr, places->relr_size, &elf_kind_word, ELF_T_XWORD},
    };

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct table table = {.kind = tables[i].kind,
                              .type = tables[i].type,
                              .size = tables[i].size,
                              .check = check_same};

        if (tables[i].size == 0)
            continue;
        if (elf_image_offset(second->plan->image, tables[i].address, table.size, &table.old))
            return gs_err_set(
                err, -EIO,
                "%s: libelf finds a relocation table at 0x%llx in the new file, where "
                "gpushare-patch has none; the old file is left unchanged. Please report "
                "this",
                second->plan->image->source.name, (unsigned long long)tables[i].address);
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
        {places->strings,
         {&elf_kind_byte, ELF_T_BYTE, 0, places->strings_size, check_strings, 0}},
        {places->hash,
         {&elf_kind_byte, ELF_T_BYTE, 0, old->hash.size, check_same, old->hash.offset}},
        {places->gnu_hash,
         {&elf_kind_byte, ELF_T_BYTE, 0, old->gnu_hash.size, check_same, old->gnu_hash.offset}},
        {places->symbols,
         {&elf_kind_symbol, ELF_T_SYM, 0, old->symbols.size, check_symbols,
          old->symbols.offset}},
        {places->versions,
         {&elf_kind_number, ELF_T_HALF, 0, old->versions.size, check_numbers,
          old->versions.offset}},
    };
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < sizeof all / sizeof all[0]; i++)
        ret = check_at(second, all[i].address, all[i].table, err);
    ret = ret ?: elf_second_versions(second, places->needed, places->defined, err);
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
