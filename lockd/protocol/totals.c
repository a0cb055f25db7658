/* SPDX-License-Identifier: Apache-2.0
 *
 * totals.c: owns the totals of each device, which remain when its last program ends. Counting is
 * O(1).
 */
#include "lockd/protocol/totals.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_PER_USER 64 /* devices without programs */

static struct lockd_totals *totals_of(const struct lockd_list *at)
{
    return lockd_entry(at, struct lockd_totals, link);
}

struct lockd_totals *lockd_totals_get(struct lockd_list *all, const uint8_t *uuid,
                                      uint32_t user)
{
    struct lockd_totals *totals;

    lockd_list_each (at, all) {
        totals = totals_of(at);
        if (memcmp(totals->sum.uuid, uuid, sizeof totals->sum.uuid) == 0) {
            totals->used = true;
            return totals;
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
    lockd_list_each (at, all) {
        struct lockd_totals *each = totals_of(at);

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
        totals_drop(totals_of(all->next));
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
