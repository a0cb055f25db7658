/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.c: the rows of figures.def as tables. No state.
 */
#include "lockd/protocol/figures.h"

#include <stdlib.h>
#include <string.h>

const struct lockd_figure lockd_device_figures[] = {
#define GS_DEVICE_FIGURE(field, unit, json, metric, help)                                      \
    {LOCKD_FIGURE_##unit, json, metric, "", help, offsetof(struct gs_wire_device, field)},
#include "lockd/protocol/figures.def"
    {.help = NULL},
};

const struct lockd_figure lockd_program_figures[] = {
#define GS_PROGRAM_FIGURE(field, unit, json, metric, heading, help)                            \
    {LOCKD_FIGURE_##unit, json, metric, heading, help, offsetof(struct gs_wire_client, field)},
#include "lockd/protocol/figures.def"
    {.help = NULL},
};

const struct lockd_figure lockd_daemon_figures[] = {
#define GS_DAEMON_FIGURE(field, unit, json, metric, help)                                      \
    {LOCKD_FIGURE_##unit, json, metric, "", help, offsetof(struct gs_wire_daemon, field)},
#include "lockd/protocol/figures.def"
    {.help = NULL},
};

const struct lockd_figure lockd_total_figures[] = {
#define GS_TOTAL_FIGURE(field, unit, json, metric, help)                                       \
    {LOCKD_FIGURE_##unit, json, metric, "", help, offsetof(struct gs_wire_totals, field)},
#include "lockd/protocol/figures.def"
    {.help = NULL},
};

const struct lockd_figure lockd_histograms[] = {
#define GS_HISTOGRAM(field, json, metric, help)                                                \
    {LOCKD_FIGURE_NS, json, metric, "", help, offsetof(struct gs_wire_totals, field)},
#include "lockd/protocol/figures.def"
    {.help = NULL},
};

const char *const lockd_histogram_bounds[GS_HISTOGRAM_BOUNDS] = {
#define GS_HISTOGRAM_BUCKET(ns, seconds) seconds,
#include "lockd/protocol/figures.def"
};

uint64_t lockd_figure_value(const struct lockd_figure *figure, const void *message)
{
    uint64_t value;

    memcpy(&value, (const char *)message + figure->offset, sizeof value);
    return value;
}

const struct gs_wire_histogram *lockd_figure_histogram(const struct lockd_figure *figure,
                                                       const struct gs_wire_totals *totals)
{
    return (const struct gs_wire_histogram *)((const char *)totals + figure->offset);
}

/* Owns the totals of each device, which remain when its last program ends. Counting is
 * O(1). */

#define KEPT_PER_USER 64 /* devices without programs */

struct lockd_totals *lockd_totals_get(struct lockd_list *all, const uint8_t *uuid,
                                      uint32_t user)
{
    struct lockd_totals *totals;

    lockd_each (struct lockd_totals, each, all, link) {
        if (memcmp(each->sum.uuid, uuid, sizeof each->sum.uuid) == 0) {
            each->used = true;
            return each;
        }
    }
    totals = calloc(1, sizeof *totals);
    if (totals == NULL)
        return NULL;
    totals->user = user;
    totals->used = true;
    memcpy(totals->sum.uuid, uuid, sizeof totals->sum.uuid);
    lockd_list_append(all, &totals->link);
    return totals;
}

static void totals_drop(struct lockd_totals *totals)
{
    lockd_list_remove(&totals->link);
    free(totals);
}

void lockd_totals_leave(struct lockd_list *all, struct lockd_totals *totals)
{
    struct lockd_totals *oldest = NULL;
    uint32_t kept = 0;

    totals->used = false;
    lockd_list_remove(
        &totals->link); /* at the end: the list has the order in which devices became unused */
    lockd_list_append(all, &totals->link);
    lockd_each (struct lockd_totals, each, all, link) {
        if (each->used || each->user != totals->user)
            continue;
        oldest = oldest == NULL ? each : oldest;
        kept++;
    }
    if (kept > KEPT_PER_USER)
        totals_drop(oldest);
}

void lockd_totals_free(struct lockd_list *all)
{
    while (!lockd_list_empty(all))
        totals_drop(lockd_entry(all->next, struct lockd_totals, link));
}

void lockd_totals_count(struct gs_wire_histogram *histogram, uint64_t ns)
{
    static const uint64_t bounds[] = {
#define GS_HISTOGRAM_BUCKET(ns, seconds) ns,
#include "lockd/protocol/figures.def"
    };
    size_t at = 0;

    while (at < sizeof bounds / sizeof bounds[0] && ns > bounds[at])
        at++;
    histogram->count[at]++;
    histogram->sum_ns += ns;
}
