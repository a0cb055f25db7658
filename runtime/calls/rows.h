/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: the table of driver functions at run time: the names of each function.
 */
#pragma once

#include "runtime/base/base.h"

enum gs_action {
    GS_ACTION_PASS,
    GS_ACTION_GATE,
    GS_ACTION_SYNC,
    GS_ACTION_ROOM,
    GS_ACTION_HOOK
};
enum gs_variant { GS_VARIANT_, GS_VARIANT__ptsz, GS_VARIANT__ptds };

/* A row of the table. */
struct gs_row {
    const char *symbol, *base;
    int since;
    uint8_t variant; /* enum gs_variant */
    uint8_t action;  /* enum gs_action */
};

extern const struct gs_row gs_rows[GS_ROW_COUNT]; /* sorted by symbol */

/* The row of an exported name; NULL if it is none. */
const struct gs_row *gs_row_by_symbol(const char *symbol);

/* The row for cuGetProcAddress(base, version, flags): the newest ABI at or below version, in its
 * per-thread variant if that is asked for and exists. NULL if there is none. */
const struct gs_row *gs_row_by_base(const char *base, int version, bool per_thread);
