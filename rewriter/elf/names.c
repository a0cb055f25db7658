/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c: the wrap list and the driver names, derived from the table by the preprocessor.
 *
 * Owns two constant arrays, both in strcmp order because the table is (tests/rewriter/elf/test_pieces.c
 * checks it). Any thread.
 */
#include "rewriter/elf/names.h"

#include <stdlib.h>
#include <string.h>

struct driver_name {
    const char *name;
    int since;
};

static const struct driver_name driver_names[] = {
#define GS_API(symbol, base, version, variant, family, kind) {#symbol, version},
#include "wrap/driver_api.def"
#undef GS_API
};

static const char *const wrapped[] = {
#define GS_GATE(symbol, ...) #symbol,
#define GS_SYNC(symbol, ...) #symbol,
#define GS_ROOM(symbol, ...) #symbol,
#define GS_HOOK(symbol, ...) #symbol,
#include "wrap/driver_api.def"
    "dlsym",
    "dlvsym",
};

static int compare_wrapped(const void *key, const void *row)
{
    return strcmp(key, *(const char *const *)row);
}

static int compare_driver(const void *key, const void *row)
{
    return strcmp(key, ((const struct driver_name *)row)->name);
}

static const struct driver_name *find_driver(const char *name)
{
    return bsearch(name, driver_names, sizeof driver_names / sizeof driver_names[0],
                   sizeof driver_names[0], compare_driver);
}

int elf_name_is_wrapped(const char *name)
{
    return bsearch(name, wrapped, sizeof wrapped / sizeof wrapped[0], sizeof wrapped[0],
                   compare_wrapped) != NULL;
}

int elf_name_driver_since(const char *name)
{
    const struct driver_name *row = find_driver(name);

    return row != NULL ? row->since : 0;
}

const char *elf_name_driver_start(const char *text, size_t length)
{
    char name[128];

    if (length >= sizeof name)
        length = sizeof name - 1;
    memcpy(name, text, length);
    for (; length > 2; length--) {
        const struct driver_name *row;

        name[length] = '\0';
        row = find_driver(name);
        if (row != NULL)
            return row->name;
    }
    return NULL;
}

int elf_name_is_runtime_api(const char *name)
{
    if (strncmp(name, "__cuda", 6) == 0)
        return 1;
    return strncmp(name, "cuda", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

uint32_t elf_names_fingerprint(void)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < sizeof wrapped / sizeof wrapped[0]; i++)
        for (const char *p = wrapped[i];; p++) {
            hash = (hash ^ (uint8_t)*p) * 16777619u;
            if (*p == '\0')
                break;
        }
    return hash;
}
