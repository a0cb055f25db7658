/* SPDX-License-Identifier: Apache-2.0
 *
 * libc_symbols.c: finds libc's own dlsym and dlvsym by reading the hash table of the object
 * that defines them.
 *
 * We export dlsym ourselves and are first in the search order, so asking the loader would give
 * us back to ourselves. glibc 2.34 and later define it in libc.so.6, earlier versions
 * in libdl.so.2. The objects are found in the loader's own list (_r_debug, for debuggers), not by
 * dl_iterate_phdr(), which sanitizers replace by a function that asks our dlsym for libc's. Format:
 * gABI, "Hash Table"; DT_GNU_HASH as in glibc elf/dl-lookup.c. Runs once, before the program's
 * own code; afterwards everything here is constant.
 */
#include "runtime/base/libc_symbols.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

gs_dlsym_fn *gs_libc_dlsym;
gs_dlvsym_fn *gs_libc_dlvsym;

struct dynamic_tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
};

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static const void *rebase_address(const struct link_map *object, ElfW(Addr) address)
{
    /* glibc relocates the pointers in the dynamic sections of most objects in place, but not
     * those of the vDSO */
    return (const void *)(address >= object->l_addr ? address : object->l_addr + address);
}

static bool read_dynamic(const struct link_map *object, struct dynamic_tables *tables)
{
    const ElfW(Dyn) *entry = object->l_ld;

    *tables = (struct dynamic_tables){0};
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            tables->symbols = rebase_address(object, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            tables->strings = rebase_address(object, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            tables->gnu_hash = rebase_address(object, entry->d_un.d_ptr);
    }
    return tables->symbols != NULL && tables->strings != NULL && tables->gnu_hash != NULL;
}

/* Not strcmp() and its like: a sanitizer's runtime replaces those, and asks our dlsym for
 * libc's own before its replacements work. */
static bool text_begins(const char *text, const char *start)
{
    while (*start != '\0' && *text == *start) {
        text++;
        start++;
    }
    return *start == '\0';
}

static bool text_is(const char *text, const char *name)
{
    while (*name != '\0' && *text == *name) {
        text++;
        name++;
    }
    return *text == *name;
}

static const char *base_name(const char *path)
{
    const char *base = path;

    for (; *path != '\0'; path++)
        if (*path == '/')
            base = path + 1;
    return base;
}

static const ElfW(Sym) * find_symbol(const struct dynamic_tables *tables, const char *name)
{
    const uint32_t bucket_count = tables->gnu_hash[0], first = tables->gnu_hash[1];
    const size_t bloom_words = tables->gnu_hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *buckets = tables->gnu_hash + 4 + bloom_words,
                   *chain = buckets + bucket_count;
    const uint32_t hash = gnu_hash(name);
    uint32_t index;

    if (bucket_count == 0)
        return NULL;
    for (index = buckets[hash % bucket_count]; index >= first && index != 0; index++) {
        const ElfW(Sym) *symbol = &tables->symbols[index];

        if ((chain[index - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            text_is(tables->strings + symbol->st_name, name))
            return symbol;
        if ((chain[index - first] & 1) != 0)
            break;
    }
    return NULL;
}

void *gs_object_function(const struct link_map *object, const char *name)
{
    struct dynamic_tables tables;
    const ElfW(Sym) *symbol = read_dynamic(object, &tables) ? find_symbol(&tables, name) : NULL;

    return symbol != NULL && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC
               ? (void *)(object->l_addr + symbol->st_value)
               : NULL;
}

/* True when both are found. */
static bool look_in(const struct link_map *object)
{
    const char *base = base_name(object->l_name);
    void *found;

    if (!text_begins(base, "libc.so") && !text_begins(base, "libdl.so"))
        return false;
    found = gs_object_function(object, "dlsym");
    if (found != NULL)
        gs_libc_dlsym = (gs_dlsym_fn *)found;
    found = gs_object_function(object, "dlvsym");
    if (found != NULL)
        gs_libc_dlvsym = (gs_dlvsym_fn *)found;
    return gs_libc_dlsym != NULL && gs_libc_dlvsym != NULL;
}

static void *find_nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

static void *nothing_versioned(void *handle, const char *name, const char *version)
{
    (void)handle;
    (void)name;
    (void)version;
    return NULL;
}

void gs_libc_symbols_init(void)
{
    if (gs_libc_dlsym != NULL && gs_libc_dlvsym != NULL)
        return;
    for (const struct link_map *object = _r_debug.r_map; object != NULL && !look_in(object);)
        object = object->l_next;
    if (gs_libc_dlsym == NULL) /* not glibc: every look-up fails, nothing crashes */
        gs_libc_dlsym = find_nothing;
    if (gs_libc_dlvsym == NULL)
        gs_libc_dlvsym = nothing_versioned;
}
