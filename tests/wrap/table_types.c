/* SPDX-License-Identifier: Apache-2.0
 *
 * table_types.c: compiled, never run. Every row's columns name a type of cudaTypedefs.h, and
 * every prototype written out in a row is that type; where it is not, this file does not
 * compile. Types of functions that are newer than the headers are those of newer_types.h.
 */
#include <cuda.h>
#include <cudaProfiler.h>

#include "wrap/newer_types.h"

#define TYPE(base, since, variant) PFN_##base##_v##since##variant

#define NAMED(symbol, base, since, variant)                                                    \
    _Static_assert(sizeof(TYPE(base, since, variant)) == sizeof(void (*)(void)), #symbol);

#define SAME(symbol, base, since, variant, params)                                             \
    _Static_assert(                                                                            \
        __builtin_types_compatible_p(TYPE(base, since, variant), CUresult(CUDAAPI *) params),  \
        #symbol ": its parameters are not those of cudaTypedefs.h");

#define GS_PASS(symbol, base, since, variant, family) NAMED(symbol, base, since, variant)
#define GS_HOOK(symbol, base, since, variant, family) NAMED(symbol, base, since, variant)
#define GS_GATE(symbol, base, since, variant, family, stream, params, args)                    \
    SAME(symbol, base, since, variant, params)
#define GS_SYNC(symbol, base, since, variant, family, params, args)                            \
    SAME(symbol, base, since, variant, params)
#define GS_ROOM(symbol, base, since, variant, family, params, args)                            \
    SAME(symbol, base, since, variant, params)
#include "wrap/driver_api.def"
