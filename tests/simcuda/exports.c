/* SPDX-License-Identifier: Apache-2.0
 *
 * exports.c: owns the exported names: every row of wrap/driver_api.def gets a weak body that
 * says "not supported", which the real body, where another file has one, overrides; and
 * cuGetProcAddress over the same rows.
 *
 * cuda.h is not included here on purpose: the weak bodies have one type for all rows. No caller
 * sees that type, and a body that takes no arguments leaves those it is given alone.
 * Invariants: the table is in strcmp order of symbol, as the rows are. Threads: any, nothing is
 * written.
 */
#include <string.h>
#include "tests/simcuda/resolve.h"

int sim_unsupported(const char *name);

#define GS_API(symbol, base, since, variant, family, class)                                    \
    __attribute__((weak, visibility("default"))) int symbol(void);                             \
    int symbol(void)                                                                           \
    {                                                                                          \
        return sim_unsupported(#symbol);                                                       \
    }
#include "wrap/driver_api.def"
#undef GS_PASS
#undef GS_GATE
#undef GS_SYNC
#undef GS_ROOM
#undef GS_HOOK
#undef GS_API

struct row {
    const char *base, *variant;
    int since;
    int (*body)(void);
};

#define GS_API(symbol, base, since, variant, family, class) {#base, #variant, since, symbol},
static const struct row rows[] = {
#include "wrap/driver_api.def"
};

void *sim_resolve(const char *base, int version, int per_thread, int *too_old)
{
    const struct row *plain = NULL, *thread = NULL;

    *too_old = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row **best = rows[i].variant[0] ? &thread : &plain;
        if (strcmp(rows[i].base, base) != 0)
            continue;
        if (rows[i].since > version)
            *too_old = 1;
        else if (!*best || (*best)->since < rows[i].since)
            *best = &rows[i];
    }
    if (per_thread && thread)
        plain = thread;
    return plain ? (void *)plain->body
                 : NULL; /* POSIX: a function pointer fits a void pointer */
}
