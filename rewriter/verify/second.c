/* SPDX-License-Identifier: Apache-2.0
 *
 * second.c: libelf reads the new file, and its answers must agree with our own reader and with the
 * plan: ELF header, program headers, sections, dynamic entries, and the tables that they lead to.
 *
 * Shares no line with the first reader. libelf reads only the parts that it is asked for
 * (ELF_C_READ, no mapping). A table is read in windows, each in a session of libelf of its own,
 * since libelf keeps what it has read until the session ends; so the size of the file does not
 * matter. An Elf handle belongs to the thread that opened it. No state but libelf's own, which is
 * set once.
 */
#include "rewriter/verify/second.h"

#include <errno.h>
#include <gelf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW ((uint64_t)192 * 1024) /* bytes; a whole number of entries of every kind */

static const char own[] = "gpushare-patch", planned[] = "the plan";

/* One new file, as libelf reads it. */
struct second {
    const struct elf_plan *plan;
    const struct elf_image *new; /* the same file, as our own reader reads it */
    int fd;
};

/* A kind of entry. On a 64-bit machine libelf's GElf types are those of <elf.h>. */
struct kind {
    const char *name;
    size_t size; /* bytes */
    Elf_Type type;
};

static const struct kind header_kind = {"ELF header", sizeof(Elf64_Ehdr), ELF_T_EHDR},
                         segment_kind = {"program header", sizeof(Elf64_Phdr), ELF_T_PHDR},
                         section_kind = {"section", sizeof(Elf64_Shdr), ELF_T_SHDR},
                         dynamic_kind = {"dynamic entry", sizeof(Elf64_Dyn), ELF_T_DYN},
                         symbol_kind = {"symbol", sizeof(Elf64_Sym), ELF_T_SYM},
                         number_kind = {"version of symbol", sizeof(Elf64_Half), ELF_T_HALF},
                         relocation_kind = {"relocation", sizeof(Elf64_Rela), ELF_T_RELA},
                         word_kind = {"word of DT_RELR", sizeof(Elf64_Xword), ELF_T_XWORD},
                         byte_kind = {"data at offset", 1, ELF_T_BYTE};

/* Compares an entry as libelf reads it with the expected one; `by` says whose expectation it is. */
static int compare_entry(const struct second *second, const struct kind *kind, uint64_t index,
                         const void *theirs, const void *ours, const char *by,
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

static int compare_both(const struct second *second, const struct kind *kind, size_t index,
                        const void *theirs, const void *ours, const void *plan,
                        struct gs_err *err)
{
    return compare_entry(second, kind, index, theirs, ours, own, err)
               ?: compare_entry(second, kind, index, theirs, plan, planned, err);
}

/* libelf cannot read a part. */
static int fail_reading(const struct second *second, const char *what, struct gs_err *err)
{
    const char *why = elf_errmsg(-1);

    return elf_distrust(second->plan->image->source.name, err,
                        "libelf cannot read %s of the new file (%s), but gpushare-patch can",
                        what, why != NULL ? why : "it gives no reason");
}

static void set_version(void)
{
    (void)elf_version(EV_CURRENT);
}

static Elf *begin_session(const struct second *second, struct gs_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    Elf *elf;

    pthread_once(&once, set_version);
    elf = elf_begin(second->fd, ELF_C_READ, NULL);
    if (elf == NULL) {
        fail_reading(second, "the ELF header", err);
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

static int check_header(const struct second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    Elf64_Ehdr wanted = plan->image->header;
    GElf_Ehdr header;
    size_t segments, sections, names;

    if (gelf_getehdr(elf, &header) == NULL || elf_getphdrnum(elf, &segments) != 0 ||
        elf_getshdrnum(elf, &sections) != 0 || elf_getshdrstrndx(elf, &names) != 0)
        return fail_reading(second, "the ELF header", err);
    wanted.e_phnum = (Elf64_Half)plan->slot.count;
    if (plan->slot.way == ELF_SLOT_END)
        wanted.e_phoff = plan->tail.table.offset;
    if (plan->sections != NULL) {
        wanted.e_shoff = plan->tail.sections_at;
        wanted.e_shnum = (Elf64_Half)plan->section_count;
    }
    if (compare_both(second, &header_kind, 0, &header, &second->new->header, &wanted, err))
        return -EIO;
    header.e_phnum = (Elf64_Half)segments; /* libelf's counts, not the stored counts */
    header.e_shnum = (Elf64_Half)sections;
    header.e_shstrndx = (Elf64_Half)names;
    return compare_both(second, &header_kind, 0, &header, &second->new->header, &wanted, err);
}

/* The program header that the plan wants. */
static Elf64_Phdr planned_segment(const struct elf_plan *plan, size_t index)
{
    Elf64_Phdr p;

    if (plan->slot.segments != NULL)
        return plan->slot.segments[index];
    p = plan->image->segments[index];
    if (index == plan->slot.added) /* ELF_SLOT_PADDING */
        p.p_filesz = p.p_memsz = plan->tail.marker.offset + plan->tail.marker.size - p.p_offset;
    return p;
}

static int check_segments(const struct second *second, Elf *elf, struct gs_err *err)
{
    for (size_t i = 0; i < second->plan->slot.count; i++) {
        Elf64_Phdr wanted = planned_segment(second->plan, i);
        GElf_Phdr p;

        if (gelf_getphdr(elf, (int)i, &p) == NULL)
            return fail_reading(second, "a program header", err);
        if (p.p_type == PT_LOAD && p.p_filesz == 0 && p.p_memsz == 0)
            p.p_type = PT_NULL; /* so does our reader */
        if (compare_both(second, &segment_kind, i, &p, &second->new->segments[i], &wanted, err))
            return -EIO;
    }
    return 0;
}

static int compare_sections(const struct second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_image *old = second->plan->image, *new = second->new;
    const struct elf_plan *plan = second->plan;
    const Elf64_Shdr *wanted = plan->sections != NULL ? plan->sections : old->sections;

    for (size_t i = 0; i < new->section_count; i++) {
        Elf_Scn *section = elf_getscn(elf, i);
        const char *theirs, *ours = elf_image_section_name(new, i);
        GElf_Shdr header;

        if (section == NULL || gelf_getshdr(section, &header) == NULL)
            return fail_reading(second, "a section header", err);
        if (compare_both(second, &section_kind, i, &header, &new->sections[i], &wanted[i], err))
            return -EIO;
        theirs = elf_strptr(elf, new->header.e_shstrndx, header.sh_name);
        if (theirs == NULL)
            return fail_reading(second, "the name of a section", err);
        if (strcmp(theirs, ours) != 0)
            return elf_distrust(
                old->source.name, err,
                "section %zu of the new file is %s according to libelf, but %s according to %s",
                i, theirs, ours, own);
    }
    return 0;
}

/* Both readers agree on the program headers by now. */
static int check_dynamic(const struct second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_image *new = second->new;
    const Elf64_Phdr *p = &new->segments[new->dynamic_segment];
    const struct elf_plan_dynamic *plan = &second->plan->dynamic;
    Elf_Data *data = elf_getdata_rawchunk(elf, (int64_t)p->p_offset, p->p_filesz, ELF_T_DYN);

    if (data == NULL)
        return fail_reading(second, "PT_DYNAMIC", err);
    for (size_t i = 0; i < plan->count; i++) {
        GElf_Dyn entry;

        if (gelf_getdyn(data, (int)i, &entry) == NULL)
            return fail_reading(second, "a dynamic entry", err);
        if (compare_both(second, &dynamic_kind, i, &entry,
                         i < new->dynamic.room ? &new->dynamic.entries[i] : &plan->entries[i],
                         &plan->entries[i], err))
            return -EIO;
    }
    return 0;
}

/* A table of the dynamic linker. Its bytes are those of the original, with the plan's changes. */
struct table {
    const struct kind *kind;
    uint64_t address, size; /* by the dynamic entries; address 0: not there */
    struct elf_table old;   /* in the original */
    uint64_t own;           /* its offset in the new file by our own reader; 0: not known */
    /* Makes the plan's changes to the original's bytes from `at` on. NULL: there are none. */
    int (*change)(const struct second *second, uint64_t at, size_t size, const void *theirs,
                  void *bytes, struct gs_err *err);
    uint64_t offset; /* in the new file */
};

static int check_window(const struct second *second, const struct table *table, uint64_t at,
                        size_t size, Elf *elf, struct gs_err *err)
{
    const size_t entry = table->kind->size;
    const uint64_t first = table->kind == &byte_kind ? table->offset + at : at / entry;
    Elf_Data *data =
        elf_getdata_rawchunk(elf, (int64_t)(table->offset + at), size, table->kind->type);
    const uint64_t rest = table->old.size > at ? table->old.size - at : 0;
    uint8_t *bytes;
    int ret;

    if (data == NULL)
        return fail_reading(second, table->kind->name, err);
    bytes = calloc(1, size);
    if (bytes == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", second->plan->image->source.name);
    ret = elf_source_read(&second->plan->image->source, table->old.offset + at, bytes,
                          rest < size ? rest : size, err);
    if (ret == 0 && table->change != NULL)
        ret = table->change(second, at, size, data->d_buf, bytes, err);
    if (ret == 0 && memcmp(bytes, data->d_buf, size) != 0)
        for (size_t i = 0; ret == 0 && i < size / entry; i++)
            ret = compare_entry(second, table->kind, first + i,
                                (const uint8_t *)data->d_buf + i * entry, bytes + i * entry,
                                planned, err);
    free(bytes);
    return ret;
}

/* The offset of the table in the new file, by its address. */
static int find_offset(const struct second *second, struct table *table, struct gs_err *err)
{
    const struct elf_image *new = second->new;

    gs_each (p, new->segments, new->header.e_phnum) {
        const uint64_t in = table->address - p->p_vaddr;

        if (p->p_type != PT_LOAD || table->address < p->p_vaddr || in >= p->p_filesz ||
            table->size > p->p_filesz - in)
            continue;
        table->offset = p->p_offset + in;
        if (table->own == 0 || table->own == table->offset)
            return 0;
    }
    return elf_distrust(second->plan->image->source.name, err,
                        "according to libelf, a table of 0x%llx bytes at 0x%llx (%s) is in no "
                        "segment of the new file, or elsewhere than gpushare-patch finds it",
                        (unsigned long long)table->size, (unsigned long long)table->address,
                        table->kind->name);
}

static int check_table(const struct second *second, struct table *table, struct gs_err *err)
{
    int ret = 0;

    if (table->address == 0 || table->size == 0)
        return 0;
    if (find_offset(second, table, err) != 0)
        return -EIO;
    table->size -= table->size % table->kind->size; /* the remaining bytes belong to no entry */
    for (uint64_t at = 0; ret == 0 && at < table->size; at += WINDOW) {
        Elf *elf = begin_session(second, err);

        if (elf == NULL)
            return -EIO;
        ret = check_window(second, table, at,
                           table->size - at < WINDOW ? table->size - at : WINDOW, elf, err);
        elf_end(elf);
    }
    return ret;
}

/* The old strings, and the added ones; with ELF_SLOT_PADDING other data lies between them. */
static int change_strings(const struct second *second, uint64_t at, size_t size,
                          const void *theirs, void *bytes, struct gs_err *err)
{
    const struct elf_plan_names *names = &second->plan->names;
    const uint64_t old = second->plan->image->tables.strings.size;

    (void)err;
    for (uint64_t i = 0; i < size; i++) {
        uint64_t added = at + i - names->needed;

        if (at + i >= names->needed && added < names->size)
            ((char *)bytes)[i] = names->bytes[added];
        else if (at + i >= old)
            ((char *)bytes)[i] = ((const char *)theirs)[i];
    }
    return 0;
}

static int compare_index(const void *key, const void *element)
{
    uint64_t index = *(const uint64_t *)key;
    const struct elf_import *import = element;

    return index < import->index ? -1 : index > import->index;
}

/* The import of that symbol whose calls the plan routes by the symbol, or NULL. Imports are in the
 * order of the symbol table. */
static const struct elf_import *find_import(const struct elf_plan *plan, uint64_t index)
{
    const struct elf_facts *facts = plan->facts;

    if (facts->import_count == 0 || plan->slot.way == ELF_SLOT_PADDING)
        return NULL;
    return bsearch(&index, facts->imports, facts->import_count, sizeof *facts->imports,
                   compare_index);
}

static int check_name(const struct second *second, uint64_t index,
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

static int change_symbols(const struct second *second, uint64_t at, size_t size,
                          const void *theirs, void *bytes, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    const Elf64_Sym *now = theirs;
    Elf64_Sym *symbol = bytes;

    for (uint64_t i = 0; i < size / sizeof *symbol; i++) {
        const uint64_t index = at / sizeof *symbol + i;
        const struct elf_import *import = find_import(plan, index);
        const uint16_t section = symbol[i].st_shndx;

        if (import != NULL && !import->keeps_name) {
            if (check_name(second, index, import, now[i].st_name, err) != 0)
                return -EIO;
            symbol[i].st_name = now[i].st_name;
        }
        if (plan->sections != NULL && section != SHN_UNDEF &&
            section < plan->image->section_count && ELF64_ST_TYPE(symbol[i].st_info) != STT_TLS)
            symbol[i].st_value +=
                plan->sections[section].sh_addr - plan->image->sections[section].sh_addr;
    }
    return 0;
}

static int change_numbers(const struct second *second, uint64_t at, size_t size,
                          const void *theirs, void *bytes, struct gs_err *err)
{
    uint16_t *number = bytes;

    (void)theirs;
    (void)err;
    for (uint64_t i = 0; i < size / sizeof *number; i++)
        if (find_import(second->plan, at / sizeof *number + i) != NULL)
            number[i] = VER_NDX_GLOBAL; /* the runtime library's names have no version */
    return 0;
}

static uint64_t tag_value(const struct elf_image *image, int64_t tag)
{
    const Elf64_Dyn *entry = elf_image_dynamic(image, tag);

    return entry != NULL ? entry->d_un.d_val : 0;
}

/* Relocations do not move. */
static int check_relocations(const struct second *second, const struct kind *kind, int64_t tag,
                             int64_t size_tag, struct gs_err *err)
{
    struct table table = {.kind = kind,
                          .address = tag_value(second->new, tag),
                          .size = tag_value(second->new, size_tag)};

    if (table.size == 0)
        return 0;
    if (elf_image_offset(second->plan->image, table.address, table.size, &table.old.offset) !=
        0)
        return elf_distrust(second->plan->image->source.name, err,
                            "libelf finds a relocation table at 0x%llx in the new file, where "
                            "gpushare-patch has none",
                            (unsigned long long)table.address);
    table.old.size = table.size;
    return check_table(second, &table, err);
}

/* Both readers agree on the dynamic entries by now. */
static int check_tables(const struct second *second, struct gs_err *err)
{
    const struct elf_image *image = second->new;
    const struct elf_tables *old = &second->plan->image->tables, *new = &image->tables;
    const struct {
        const struct kind *kind;
        int64_t tag;
        const struct elf_table *old, *new;
        int (*change)(const struct second *second, uint64_t at, size_t size, const void *theirs,
                      void *bytes, struct gs_err *err);
    } all[] = {
        {&byte_kind, DT_STRTAB, &old->strings, &new->strings, change_strings},
        {&byte_kind, DT_HASH, &old->hash, &new->hash, NULL},
        {&byte_kind, DT_GNU_HASH, &old->gnu_hash, &new->gnu_hash, NULL},
        {&symbol_kind, DT_SYMTAB, &old->symbols, &new->symbols, change_symbols},
        {&number_kind, DT_VERSYM, &old->versions, &new->versions, change_numbers},
        {&byte_kind, DT_VERNEED, &old->verneed, &new->verneed, NULL},
        {&byte_kind, DT_VERDEF, &old->verdef, &new->verdef, NULL},
    };
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < sizeof all / sizeof all[0]; i++) {
        struct table table = {.kind = all[i].kind,
                              .address = tag_value(image, all[i].tag),
                              .size = all[i].new->size,
                              .old = *all[i].old,
                              .own = all[i].new->offset,
                              .change = all[i].change};

        ret = check_table(second, &table, err);
    }
    ret = ret ?: check_relocations(second, &relocation_kind, DT_RELA, DT_RELASZ, err);
    if (tag_value(image, DT_PLTREL) == DT_RELA)
        ret = ret ?: check_relocations(second, &relocation_kind, DT_JMPREL, DT_PLTRELSZ, err);
    return ret ?: check_relocations(second, &word_kind, DT_RELR, DT_RELRSZ, err);
}

int elf_verify_second(const struct elf_plan *plan, const struct elf_image *new, int fd,
                      struct gs_err *err)
{
    const struct second second = {.plan = plan, .new = new, .fd = fd};
    Elf *elf = begin_session(&second, err);
    int ret;

    if (elf == NULL)
        return -EIO;
    ret = check_header(&second, elf, err);
    ret = ret ?: check_segments(&second, elf, err);
    ret = ret ?: compare_sections(&second, elf, err);
    ret = ret ?: check_dynamic(&second, elf, err);
    elf_end(elf);
    return ret ?: check_tables(&second, err);
}
