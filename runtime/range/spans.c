/* SPDX-License-Identifier: Apache-2.0
 *
 * spans.c: sets, finds and compares parts of an address range that have a value. Invariants: the
 * list is ascending, no span is empty, and adjacent spans have different values. The caller has
 * the lock.
 */
#include "runtime/range/spans.h"

/* Appends a span, or lengthens the last. */
static void append_span(struct gs_spans *spans, uint64_t from, uint64_t to, int32_t value)
{
    struct gs_span *last = spans->count != 0 ? &spans->list[spans->count - 1] : NULL;

    if (from >= to)
        return;
    if (last != NULL && last->to == from && last->value == value)
        last->to = to;
    else
        spans->list[spans->count++] = (struct gs_span){from, to, value};
}

bool gs_spans_set(struct gs_spans *spans, uint64_t from, uint64_t to, const int32_t *value)
{
    struct gs_spans made = {.list = malloc((spans->count + 2) * sizeof made.list[0])};
    bool put = value == NULL;

    if (made.list == NULL)
        return false;
    for (unsigned i = 0; i < spans->count; i++) {
        const struct gs_span *old = &spans->list[i];

        append_span(&made, old->from, old->to < from ? old->to : from, old->value);
        if (!put && old->to > from) {
            append_span(&made, from, to, *value);
            put = true;
        }
        append_span(&made, old->from > to ? old->from : to, old->to, old->value);
    }
    if (!put)
        append_span(&made, from, to, *value);
    free(spans->list);
    *spans = made;
    return true;
}

bool gs_spans_first(const struct gs_spans *spans, uint64_t from, uint64_t to,
                    struct gs_span *found)
{
    for (unsigned i = 0; from < to && i < spans->count && spans->list[i].from < to; i++) {
        const struct gs_span *span = &spans->list[i];

        if (span->to <= from)
            continue;
        *found = (struct gs_span){span->from > from ? span->from : from,
                                  span->to < to ? span->to : to, span->value};
        return true;
    }
    return false;
}

bool gs_spans_agree(const struct gs_spans *spans, uint64_t from, uint64_t to, int32_t *value)
{
    struct gs_span found;

    if (!gs_spans_first(spans, from, to, &found) || found.from != from || found.to != to)
        return false;
    *value = found.value;
    return true;
}

void gs_spans_clear(struct gs_spans *spans)
{
    free(spans->list);
    *spans = (struct gs_spans){0};
}
