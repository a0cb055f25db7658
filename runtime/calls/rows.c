/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: the run-time form of wrap/driver_api.def, and look-up in it. Constant.
 */
#include "runtime/calls/rows.h"

#define GS_PASS(symbol, base, since, variant, family)                                          \
    {#symbol, #base, since, GS_VARIANT_##variant, GS_ACTION_PASS},
#define GS_API(symbol, base, since, variant, family, action)                                   \
    {#symbol, #base, since, GS_VARIANT_##variant, GS_ACTION_##action},
const struct gs_row gs_rows[GS_ROW_COUNT] = {
#include "wrap/driver_api.def"
};

const struct gs_row *gs_row_by_symbol(const char *symbol)
{
    size_t low = 0, high = GS_ROW_COUNT;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        const int order = strcmp(symbol, gs_rows[middle].symbol);

        if (order == 0)
            return &gs_rows[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Rows of one base name are neighbours up to names like cuMemAllocAsync between cuMemAlloc and
 * cuMemAlloc_v2: they all begin with the base name, so the search starts at the first symbol
 * not below it and ends behind that prefix. */
static size_t first_with_prefix(const char *prefix)
{
    size_t low = 0, high = GS_ROW_COUNT;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (strcmp(gs_rows[middle].symbol, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct gs_row *gs_row_by_base(const char *base, int version, bool per_thread)
{
    const size_t length = strlen(base);
    const struct gs_row *best = NULL, *best_variant = NULL;

    for (size_t i = first_with_prefix(base); i < GS_ROW_COUNT; i++) {
        const struct gs_row *row = &gs_rows[i];

        if (strncmp(row->symbol, base, length) != 0)
            break;
        if (strcmp(row->base, base) != 0 || row->since > version)
            continue;
        if (row->variant == GS_VARIANT_ && (best == NULL || row->since > best->since))
            best = row;
        if (row->variant != GS_VARIANT_ &&
            (best_variant == NULL || row->since > best_variant->since))
            best_variant = row;
    }
    return per_thread && best_variant != NULL ? best_variant : best;
}
