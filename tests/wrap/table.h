/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h: driver_api.def's rows as data, for the table test.
 */
#pragma once

#include <stddef.h>

struct table_row {
    const char *symbol, *base;
    unsigned since;
    const char *variant, *family, *class;
};

extern const struct table_row table_rows[];
extern const size_t table_row_count;
