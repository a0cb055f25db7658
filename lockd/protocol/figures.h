/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h: the table of figures (figures.def) for gpusharectl.
 */
#pragma once

#include "lockd/protocol/wire.h"
#include "lockd/base/list.h"

enum lockd_figure_unit {
    LOCKD_FIGURE_BYTES,
    LOCKD_FIGURE_NS,
    LOCKD_FIGURE_COUNT,
    LOCKD_FIGURE_FLAG,
};

struct lockd_figure {
    enum lockd_figure_unit unit;
    const char *json, *metric, *heading, *help; /* "": not shown there */
    size_t offset;                              /* of a uint64_t in the message */
};

/* Of struct gs_wire_device, gs_wire_client, gs_wire_daemon, gs_wire_totals; each ends with a row whose help is NULL. */
extern const struct lockd_figure lockd_device_figures[], lockd_program_figures[],
    lockd_daemon_figures[], lockd_total_figures[];
/* The histograms of struct gs_wire_totals (unit and heading are not used), and the bounds of
 * their buckets in seconds. */
extern const struct lockd_figure lockd_histograms[];
extern const char *const lockd_histogram_bounds[GS_HISTOGRAM_BOUNDS];

uint64_t lockd_figure_value(const struct lockd_figure *figure, const void *message);
const struct gs_wire_histogram *lockd_figure_histogram(const struct lockd_figure *figure,
                                                       const struct gs_wire_totals *totals);

/* Sums over all programs of a device since the daemon started, including ended programs:
 * counters that only grow, and histograms of waits and hand-offs. */

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
