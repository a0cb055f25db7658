/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks.h: prototypes of every wrapper, from the table.
 */
#pragma once

#include "runtime/base/base.h"

#pragma GCC visibility push(default)
#define GS_PASS(...)
#define GS_API(symbol, base, since, variant, family, action)                                   \
    __typeof__(*(GS_PFN(base, since, variant))0) __wrap_##symbol;
#include "wrap/driver_api.def"
#pragma GCC visibility pop
