/* SPDX-License-Identifier: Apache-2.0
 *
 * totals.h: sums over all programs of a device since the daemon started, including ended programs:
 * counters that only grow, and histograms of waits and hand-offs.
 */
#pragma once

#include "lockd/base/list.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_totals {
    struct lockd_list link;
    uint32_t user; /* the user of the first program that named the device */
    bool used;     /* programs are on the device */
    struct gs_wire_totals sum;
};

/* The totals of a device that programs use from now on. NULL: no memory. */
struct lockd_totals *lockd_totals_get(struct lockd_list *all, const uint8_t *uuid,
                                      uint32_t user);
/* No program uses the device any more. Its totals are kept, for as many devices of a user as a
 * machine can have, since a user may invent any number of them. */
void lockd_totals_leave(struct lockd_list *all, struct lockd_totals *totals);
void lockd_totals_free(struct lockd_list *all);
/* Counts one duration. */
void lockd_totals_count(struct gs_wire_histogram *histogram, uint64_t ns);
