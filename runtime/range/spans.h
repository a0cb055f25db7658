/* SPDX-License-Identifier: Apache-2.0
 *
 * spans.h: parts of an address range that have a value, in ascending order and without overlap:
 * the program's advice about parts of its managed memory.
 */
#pragma once

#include "runtime/base/base.h"

struct gs_span {
    uint64_t from, to; /* addresses; `to` is behind the last byte */
    int32_t value;
};

struct gs_spans {
    struct gs_span *list;
    unsigned count;
};

/* From now on [from, to) has the value; NULL: it has none. False: no memory, nothing has changed.
 */
bool gs_spans_set(struct gs_spans *spans, uint64_t from, uint64_t to, const int32_t *value);

/* The first part of [from, to) that has a value, cut to it. False: none has. */
bool gs_spans_first(const struct gs_spans *spans, uint64_t from, uint64_t to,
                    struct gs_span *found);

/* True if all of [from, to) has the same value, which is then in *value. */
bool gs_spans_agree(const struct gs_spans *spans, uint64_t from, uint64_t to, int32_t *value);

void gs_spans_clear(struct gs_spans *spans);
