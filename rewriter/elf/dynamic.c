/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamic.c: reads the dynamic section and measures the tables that it points at.
 *
 * The dynamic section gives addresses but hardly any sizes. The number of symbols comes from
 * the hash tables, from the relocations and from the section headers; the largest wins, and
 * that many must lie inside one segment. No state, any thread; what is allocated belongs to the
 * image.
 */
#include "rewriter/elf/dynamic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DYNAMIC (1 << 16)      /* entries */
#define MAX_STRINGS (256ull << 20) /* bytes; the largest seen has 40 MB */
#define CHUNK       256            /* relocations read at a time; the stack may be small */

/* UPX's mark follows the program headers, and ends the file. */
static int refuse_packed(const struct elf_image *image, struct gs_err *err)
{
    uint8_t bytes[4096];
    uint64_t size = image->source.size;
    size_t head = size < sizeof bytes ? (size_t)size : sizeof bytes,
           tail = head < 64 ? head : 64;

    if (elf_source_read(&image->source, 0, bytes, head, err) != 0)
        return -ENOEXEC;
    if (memmem(bytes, head, "UPX!", 4) == NULL) {
        if (elf_source_read(&image->source, size - tail, bytes, tail, err) != 0)
            return -ENOEXEC;
        if (memmem(bytes, tail, "UPX!", 4) == NULL)
            return 0;
    }
    return elf_refuse(image->source.name, err,
                      "packed with UPX; unpack it (upx -d), patch it, pack it again");
}

int elf_refuse_static(const struct elf_image *image, struct gs_err *err)
{
    return refuse_packed(image, err)
               ?: elf_refuse(image->source.name, err,
                             "is statically linked, so its calls cannot be routed in the "
                             "finished file; relink it with gpushare-cc");
}

static int refuse_damaged(const struct elf_image *image, const char *what, uint64_t value,
                          struct gs_err *err)
{
    return elf_refuse(image->source.name, err, "damaged: %s (0x%llx) does not fit the file",
                      what, (unsigned long long)value);
}

/* Bytes of the dynamic section. A linker script can put other sections behind it into
 * PT_DYNAMIC; bytes there that look like spare entries belong to those. */
static uint64_t dynamic_size(const struct elf_image *image, const Elf64_Phdr *p)
{
    for (size_t i = 1; i < image->section_count; i++) {
        const Elf64_Shdr *s = &image->sections[i];

        if (s->sh_type == SHT_DYNAMIC && s->sh_addr == p->p_vaddr &&
            s->sh_size >= sizeof(Elf64_Dyn) && s->sh_size < p->p_filesz)
            return s->sh_size;
    }
    return p->p_filesz;
}

static int read_entries(struct elf_image *image, struct gs_err *err)
{
    const Elf64_Phdr *p = &image->segments[image->dynamic_segment];
    uint64_t offset;

    if (p->p_filesz < sizeof(Elf64_Dyn) || p->p_filesz / sizeof(Elf64_Dyn) > MAX_DYNAMIC)
        return refuse_damaged(image, "size of PT_DYNAMIC", p->p_filesz, err);
    if (elf_image_offset(image, p->p_vaddr, p->p_filesz, &offset) != 0 || offset != p->p_offset)
        return refuse_damaged(image, "address of PT_DYNAMIC", p->p_vaddr, err);
    image->dynamic.room = dynamic_size(image, p) / sizeof(Elf64_Dyn);
    image->dynamic.entries = elf_source_load(&image->source, p->p_offset,
                                             image->dynamic.room * sizeof(Elf64_Dyn), err);
    if (image->dynamic.entries == NULL)
        return -ENOEXEC;
    while (image->dynamic.count < image->dynamic.room &&
           image->dynamic.entries[image->dynamic.count].d_tag != DT_NULL)
        image->dynamic.count++;
    return 0; /* bfd without spare tags omits the DT_NULL, and the loader reads on into zeros */
}

/* Fills table from a tag that holds an address; its size must be known. If there is no such tag
 * the table stays empty. */
static int find_table(struct elf_image *image, int64_t tag, uint64_t size,
                      struct elf_table *table, const char *what, struct gs_err *err)
{
    const Elf64_Dyn *entry = elf_image_dynamic(image, tag);

    if (entry == NULL)
        return 0;
    table->address = entry->d_un.d_ptr;
    table->size = size;
    if (table->address == 0 ||
        elf_image_offset(image, table->address, size, &table->offset) != 0)
        return refuse_damaged(image, what, table->address, err);
    return 0;
}

static uint64_t tag_value(const struct elf_image *image, int64_t tag)
{
    const Elf64_Dyn *entry = elf_image_dynamic(image, tag);

    return entry != NULL ? entry->d_un.d_val : 0;
}

bool elf_dynamic_is_name(int64_t tag)
{
    return tag == DT_NEEDED || tag == DT_SONAME || tag == DT_RPATH || tag == DT_RUNPATH ||
           tag == DT_AUDIT || tag == DT_DEPAUDIT || tag == DT_AUXILIARY || tag == DT_FILTER;
}

bool elf_dynamic_may_go(int64_t tag)
{
    return tag == DT_RELACOUNT || tag == DT_BIND_NOW || tag == DT_VERNEEDNUM;
}

bool elf_dynamic_stays_first(const char *needed)
{
    static const char *const starts[] = {"libasan.so", "libhwasan.so", "libclang_rt.asan",
                                         "libclang_rt.hwasan"};
    const char *base = basename(needed);

    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(base, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

/* Checks that all names lie in the string table, and that none is that of another libc (musl's
 * is libc.so or libc.musl-ARCH.so.1, Android's libc.so): the runtime library would load glibc
 * beside it. */
static int check_names(const struct elf_image *image, struct gs_err *err)
{
    gs_each (entry, image->dynamic.entries, image->dynamic.count) {
        const char *name;

        if (!elf_dynamic_is_name(entry->d_tag))
            continue;
        name = elf_image_string(image, entry->d_un.d_val);
        if (name == NULL)
            return refuse_damaged(image, "a name in PT_DYNAMIC", entry->d_un.d_val, err);
        if (entry->d_tag == DT_NEEDED &&
            (strcmp(name, "libc.so") == 0 || strncmp(name, "libc.musl-", 10) == 0))
            return elf_refuse(image->source.name, err,
                              "needs %s, which is not glibc; CUDA needs glibc, so build the "
                              "program for glibc",
                              name);
    }
    return 0;
}

static int read_strings(struct elf_image *image, struct gs_err *err)
{
    uint64_t size = tag_value(image, DT_STRSZ);
    const Elf64_Dyn *soname = elf_image_dynamic(image, DT_SONAME);

    if (elf_image_dynamic(image, DT_STRTAB) == NULL ||
        elf_image_dynamic(image, DT_SYMTAB) == NULL)
        return elf_refuse(
            image->source.name, err,
            "has no DT_STRTAB or no DT_SYMTAB, so it imports nothing that could be routed");
    if (size == 0 || size > MAX_STRINGS)
        return refuse_damaged(image, "DT_STRSZ", size, err);
    if (find_table(image, DT_STRTAB, size, &image->tables.strings, "DT_STRTAB", err) != 0)
        return -ENOEXEC;
    image->tables.string_bytes =
        elf_source_load(&image->source, image->tables.strings.offset, size, err);
    if (image->tables.string_bytes == NULL)
        return -ENOEXEC;
    if (image->tables.string_bytes[size - 1] != '\0')
        return refuse_damaged(image, "end of DT_STRTAB, which is not a NUL byte", size, err);
    if (check_names(image, err) != 0)
        return -ENOEXEC;
    image->dynamic.soname = soname != NULL ? elf_image_string(image, soname->d_un.d_val) : NULL;
    return 0;
}

/* DT_HASH: nbucket, nchain, buckets, chains (gABI "Hash Table"); nchain is the number of
 * symbols. */
static int measure_hash(struct elf_image *image, struct gs_err *err)
{
    uint32_t head[2];
    uint64_t size;

    if (find_table(image, DT_HASH, sizeof head, &image->tables.hash, "DT_HASH", err) != 0)
        return -ENOEXEC;
    if (image->tables.hash.address == 0)
        return 0;
    if (elf_source_read(&image->source, image->tables.hash.offset, head, sizeof head, err) != 0)
        return -ENOEXEC;
    size = sizeof head + 4 * ((uint64_t)head[0] + head[1]);
    if (find_table(image, DT_HASH, size, &image->tables.hash, "DT_HASH", err) != 0)
        return -ENOEXEC;
    image->tables.symbol_count = head[1];
    return 0;
}

/* Walks chains of a GNU hash table from the highest bucket on until the end mark. */
static int gnu_hash_last(const struct elf_image *image, uint64_t chains, uint32_t first,
                         uint32_t highest, uint64_t *count, struct gs_err *err)
{
    uint32_t words[256];
    uint64_t symbol = highest;

    for (;;) {
        uint64_t offset = chains + 4 * (symbol - first);
        size_t n = sizeof words / sizeof words[0];

        if (offset >= image->source.size)
            return refuse_damaged(image, "DT_GNU_HASH", image->tables.gnu_hash.address, err);
        if (4 * n > image->source.size - offset)
            n = (size_t)(image->source.size - offset) / 4;
        if (n == 0 || elf_source_read(&image->source, offset, words, 4 * n, err) != 0)
            return refuse_damaged(image, "DT_GNU_HASH", image->tables.gnu_hash.address, err);
        for (size_t i = 0; i < n; i++, symbol++)
            if (words[i] & 1) {
                *count = symbol + 1;
                return 0;
            }
    }
}

/* DT_GNU_HASH: nbuckets, symoffset, bloom size, bloom shift; bloom words of 8 bytes; buckets;
 * chains. Only symbols from symoffset on are in it. */
static int measure_gnu_hash(struct elf_image *image, struct gs_err *err)
{
    uint32_t head[4], highest = 0, *buckets;
    uint64_t size, count = 0;

    image->tables.gnu_hash_first = SIZE_MAX;
    if (find_table(image, DT_GNU_HASH, sizeof head, &image->tables.gnu_hash, "DT_GNU_HASH",
                   err) != 0)
        return -ENOEXEC;
    if (image->tables.gnu_hash.address == 0)
        return 0;
    if (elf_source_read(&image->source, image->tables.gnu_hash.offset, head, sizeof head,
                        err) != 0)
        return -ENOEXEC;
    size = sizeof head + 8 * (uint64_t)head[2] + 4 * (uint64_t)head[0];
    if (find_table(image, DT_GNU_HASH, size, &image->tables.gnu_hash, "DT_GNU_HASH", err) != 0)
        return -ENOEXEC;
    buckets = elf_source_load(&image->source,
                              image->tables.gnu_hash.offset + size - 4 * (uint64_t)head[0],
                              4 * (uint64_t)head[0], err);
    if (buckets == NULL)
        return -ENOEXEC;
    for (uint32_t i = 0; i < head[0]; i++)
        if (buckets[i] > highest)
            highest = buckets[i];
    free(buckets);
    if (highest == 0)
        return 0; /* nothing is exported */
    if (highest < head[1])
        return refuse_damaged(image, "a bucket of DT_GNU_HASH", highest, err);
    if (gnu_hash_last(image, image->tables.gnu_hash.offset + size, head[1], highest, &count,
                      err) != 0)
        return -ENOEXEC;
    image->tables.gnu_hash_first = head[1];
    size += 4 * (count - head[1]);
    if (find_table(image, DT_GNU_HASH, size, &image->tables.gnu_hash, "DT_GNU_HASH", err) != 0)
        return -ENOEXEC;
    if (count > image->tables.symbol_count)
        image->tables.symbol_count = (size_t)count;
    return 0;
}

/* The highest symbol index that a relocation table mentions, plus one. */
static int measure_relocations(struct elf_image *image, int64_t table_tag, int64_t size_tag,
                               struct gs_err *err)
{
    struct elf_table table = {0};
    Elf64_Rela chunk[CHUNK];
    uint64_t size = tag_value(image, size_tag);

    if (size == 0)
        return 0;
    if (find_table(image, table_tag, size, &table, "a relocation table", err) != 0)
        return -ENOEXEC;
    for (uint64_t at = 0; at + sizeof chunk[0] <= table.size;) {
        uint64_t rest = (table.size - at) / sizeof chunk[0];
        size_t n = rest < CHUNK ? (size_t)rest : CHUNK;

        if (elf_source_read(&image->source, table.offset + at, chunk, n * sizeof chunk[0],
                            err) != 0)
            return -ENOEXEC;
        for (size_t i = 0; i < n; i++)
            if (ELF64_R_SYM(chunk[i].r_info) >= image->tables.symbol_count)
                image->tables.symbol_count = ELF64_R_SYM(chunk[i].r_info) + 1;
        at += n * sizeof chunk[0];
    }
    return 0;
}

static int measure_symbols(struct elf_image *image, struct gs_err *err)
{
    int ret = measure_hash(image, err);

    ret = ret ?: measure_gnu_hash(image, err);
    if (tag_value(image, DT_SYMENT) != sizeof(Elf64_Sym))
        ret = ret ?: refuse_damaged(image, "DT_SYMENT", tag_value(image, DT_SYMENT), err);
    ret = ret ?: measure_relocations(image, DT_RELA, DT_RELASZ, err);
    if (tag_value(image, DT_PLTREL) == DT_RELA)
        ret = ret ?: measure_relocations(image, DT_JMPREL, DT_PLTRELSZ, err);
    if (ret != 0)
        return ret;
    for (size_t i = 1; i < image->section_count; i++) {
        const Elf64_Shdr *s = &image->sections[i];

        if (s->sh_type == SHT_DYNSYM && s->sh_addr == tag_value(image, DT_SYMTAB) &&
            s->sh_size / sizeof(Elf64_Sym) > image->tables.symbol_count)
            image->tables.symbol_count = (size_t)(s->sh_size / sizeof(Elf64_Sym));
    }
    ret = find_table(image, DT_SYMTAB, image->tables.symbol_count * sizeof(Elf64_Sym),
                     &image->tables.symbols, "DT_SYMTAB", err);
    return ret
               ?: find_table(image, DT_VERSYM, 2 * (uint64_t)image->tables.symbol_count,
                             &image->tables.versions, "DT_VERSYM", err);
}

/* Follows the version tables (LSB "Symbol Versioning") as the loader does.
 *
 * Each entry says how far away the next one is. The loader (glibc, elf/dl-version.c) uses
 * no count, so an entry that leads out of the file makes it read beyond it. */

#define NOTHING SIZE_MAX   /* no such field */
#define MAX     (1u << 16) /* entries; their numbers have 15 bits */

/* The fields' places in an entry and in the part that it points to. */
struct layout {
    const char *tag;
    size_t size, name, hangs, next, /* of an entry: bytes, offsets of fields */
        hung_size, hung_name, hung_next;
};

static const struct layout verneed = {"DT_VERNEED",
                                      sizeof(Elf64_Verneed),
                                      offsetof(Elf64_Verneed, vn_file),
                                      offsetof(Elf64_Verneed, vn_aux),
                                      offsetof(Elf64_Verneed, vn_next),
                                      sizeof(Elf64_Vernaux),
                                      offsetof(Elf64_Vernaux, vna_name),
                                      offsetof(Elf64_Vernaux, vna_next)};
/* of the names of a definition the loader reads only the first */
static const struct layout verdef = {"DT_VERDEF",
                                     sizeof(Elf64_Verdef),
                                     NOTHING,
                                     offsetof(Elf64_Verdef, vd_aux),
                                     offsetof(Elf64_Verdef, vd_next),
                                     sizeof(Elf64_Verdaux),
                                     offsetof(Elf64_Verdaux, vda_name),
                                     NOTHING};

static uint32_t get_field(const uint8_t *entry, size_t field)
{
    uint32_t value = 0;

    if (field != NOTHING)
        memcpy(&value, entry + field, sizeof value);
    return value;
}

/* Reads one entry and looks at its name. */
static int read_entry(const struct elf_image *image, uint64_t address, size_t size, size_t name,
                      uint8_t *entry)
{
    uint64_t offset;

    if (elf_image_offset(image, address, size, &offset) != 0 ||
        elf_source_read(&image->source, offset, entry, size, NULL) != 0 ||
        elf_image_string(image, get_field(entry, name)) == NULL)
        return -ENOEXEC;
    return 0;
}

/* Follows a table from its start to its end mark, and notes its size. */
static int follow_table(const struct elf_image *image, struct elf_table *table,
                        const struct layout *l)
{
    uint8_t entry[sizeof(Elf64_Verdef)], hung[sizeof(Elf64_Vernaux)]; /* the larger ones */
    uint64_t address = table->address, end = 0;
    unsigned count = 0;

    for (;;) {
        uint64_t at;

        if (read_entry(image, address, l->size, l->name, entry) != 0)
            return -ENOEXEC;
        at = address + get_field(entry, l->hangs);
        if (address + l->size > end)
            end = address + l->size;
        for (;;) {
            if (read_entry(image, at, l->hung_size, l->hung_name, hung) != 0 || ++count > MAX)
                return -ENOEXEC;
            if (at + l->hung_size > end)
                end = at + l->hung_size;
            if (get_field(hung, l->hung_next) == 0)
                break;
            at += get_field(hung, l->hung_next);
        }
        if (get_field(entry, l->next) == 0)
            break;
        address += get_field(entry, l->next);
    }
    table->size = end - table->address;
    return elf_image_offset(image, table->address, table->size, &table->offset);
}

static int check_versions(struct elf_image *image, struct gs_err *err)
{
    const struct layout *bad = NULL;

    if (image->tables.verneed.address != 0 &&
        follow_table(image, &image->tables.verneed, &verneed) != 0)
        bad = &verneed;
    else if (image->tables.verdef.address != 0 &&
             follow_table(image, &image->tables.verdef, &verdef) != 0)
        bad = &verdef;
    if (bad == NULL)
        return 0;
    return elf_refuse(image->source.name, err,
                      "damaged: an entry of %s points outside the file", bad->tag);
}

/* A program without interpreter was linked with -static-pie; a library has no interpreter
 * either, but no DF_1_PIE. */
static int refuse_unusual(const struct elf_image *image, struct gs_err *err)
{
    /* DT_ANDROID_REL, DT_ANDROID_RELA, DT_ANDROID_RELR (bionic's elf.h) */
    static const int64_t packed[] = {0x6000000f, 0x60000011, 0x6fffe000};
    const char *base = image->interpreter != NULL ? basename(image->interpreter) : NULL;

    if (refuse_packed(image, err) != 0)
        return -ENOEXEC;
    if (image->interpreter == NULL &&
        (image->header.e_type == ET_EXEC || (image->dynamic.flags_1 & DF_1_PIE)))
        return elf_refuse_static(image, err);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (elf_image_dynamic(image, packed[i]) != NULL)
            return elf_refuse(image->source.name, err,
                              "its relocations are packed for Android's loader, which glibc's "
                              "loader cannot read; link it without --pack-dyn-relocs=android");
    if (base != NULL && strncmp(base, "ld-linux", 8) != 0)
        return elf_refuse(image->source.name, err,
                          "its loader is %s, not glibc's ld-linux; CUDA needs glibc, so build "
                          "the program for glibc",
                          image->interpreter);
    return 0;
}

int elf_dynamic_read(struct elf_image *image, struct gs_err *err)
{
    int ret = read_entries(image, err);

    if (ret != 0)
        return ret;
    image->dynamic.flags_1 = tag_value(image, DT_FLAGS_1);
    ret = refuse_unusual(image, err);
    ret = ret ?: read_strings(image, err);
    ret = ret ?: measure_symbols(image, err);
    ret = ret ?: find_table(image, DT_VERNEED, 1, &image->tables.verneed, "DT_VERNEED", err);
    ret = ret ?: find_table(image, DT_VERDEF, 1, &image->tables.verdef, "DT_VERDEF", err);
    return ret ?: check_versions(image, err);
}
