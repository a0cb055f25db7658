/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.c: the rows of figures.def as tables. No state.
 */
#include "lockd/protocol/figures.h"

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
