/* SPDX-License-Identifier: Apache-2.0
 *
 * prototypes.h: every function of the table, also those that the toolkit's headers are too old
 * for.
 */
#pragma once

#include "wrap/newer_types.h"

#pragma GCC visibility push(default)
#define GS_API(symbol, base, since, variant, family, class)                                    \
    extern __typeof__(*(PFN_##base##_v##since##variant)0) symbol;
#include "wrap/driver_api.def"
#pragma GCC visibility pop
