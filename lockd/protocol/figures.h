/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h: the table of figures (figures.def) for gpusharectl.
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stddef.h>
#include <stdint.h>

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
