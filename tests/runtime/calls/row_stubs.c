/* SPDX-License-Identifier: Apache-2.0
 *
 * row_stubs.c: a stand-in for every wrapper, so that rows.c's table links without the rest of
 * the library. Never called; only their addresses differ. (They have no prototypes on purpose:
 * the linker knows names only.)
 */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define GS_PASS(...)
#define GS_API(symbol, ...)                                                                    \
    void __wrap_##symbol(void);                                                                \
    void __wrap_##symbol(void)                                                                 \
    {                                                                                          \
    }
#include "wrap/driver_api.def"
