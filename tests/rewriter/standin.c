/* SPDX-License-Identifier: Apache-2.0
 *
 * standin.c: a stand-in for libgpushare.so.1, so that patched programs start and routing can be
 * seen.
 *
 * dlsym and dlvsym (standin.S) count and hand on; every driver function of the table counts and
 * returns a number of its own. With STANDIN_REPORT=1 in the environment the counts go to stderr
 * when the process ends.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN unsigned long standin_calls;
HIDDEN void *standin_real_dlsym, *standin_real_dlvsym;
static unsigned long driver_calls;

/* every routed driver function, by both names; as a call takes any arguments, none are declared
 */
#define WRAP(symbol, ...)                                                                      \
    EXPORT int __wrap_##symbol(void);                                                          \
    EXPORT int __wrap_##symbol(void)                                                           \
    {                                                                                          \
        driver_calls++;                                                                        \
        return 4242;                                                                           \
    }                                                                                          \
    EXPORT extern __typeof(__wrap_##symbol) symbol __attribute__((alias("__wrap_" #symbol)));
#define GS_GATE WRAP
#define GS_SYNC WRAP
#define GS_ROOM WRAP
#define GS_HOOK WRAP
#include "wrap/driver_api.def"

/* Not strcmp: a sanitizer's, in the program, would ask dlsym for libc's before we know where
 * ours goes. */
static int is_same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b)
        a++, b++;
    return *a == *b;
}

static const char *base_name(const char *path)
{
    const char *base = path;

    for (; *path != '\0'; path++)
        if (*path == '/')
            base = path + 1;
    return base;
}

/* libc's own function: looked up in libc's symbol table, because asking dlsym would ask
 * ourselves. */
static void *find_in(struct link_map *map, const char *name)
{
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const unsigned *hash = NULL;

    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            symbols = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_STRTAB)
            strings = (const void *)d->d_un.d_ptr;
        else if (d->d_tag == DT_GNU_HASH)
            hash = (const void *)d->d_un.d_ptr;
    }
    if (symbols == NULL || strings == NULL || hash == NULL)
        return NULL;
    const unsigned *buckets = hash + 4 + (size_t)hash[2] * 2, *chains = buckets + hash[0];
    for (unsigned b = 0; b < hash[0]; b++)
        for (unsigned i = buckets[b]; i >= hash[1]; i++) {
            if (is_same(strings + symbols[i].st_name, name) && symbols[i].st_shndx != SHN_UNDEF)
                return (void *)(map->l_addr + symbols[i].st_value);
            if (chains[i - hash[1]] & 1)
                break;
        }
    return NULL;
}

__attribute__((constructor)) static void start(void)
{
    for (struct link_map *map = _r_debug.r_map; map != NULL; map = map->l_next) {
        if (!is_same(base_name(map->l_name), "libc.so.6"))
            continue;
        standin_real_dlsym = find_in(map, "dlsym");
        standin_real_dlvsym = find_in(map, "dlvsym");
    }
    if (standin_real_dlsym == NULL || standin_real_dlvsym == NULL) {
        fputs("standin: libc's dlsym was not found\n", stderr);
        abort();
    }
}

__attribute__((destructor)) static void stop(void)
{
    if (getenv("STANDIN_REPORT") != NULL)
        fprintf(stderr, "standin: dlsym %lu driver %lu\n", standin_calls, driver_calls);
}
