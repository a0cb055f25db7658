/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h: the table of figures (figures.def) for gpusharectl.
 */
#ifndef GS_LOCKD_PROTOCOL_FIGURES_H
#define GS_LOCKD_PROTOCOL_FIGURES_H

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

/* Of struct gs_wire_device, gs_wire_client, gs_wire_daemon; each ends with a row whose help is NULL. */
extern const struct lockd_figure lockd_device_figures[], lockd_program_figures[],
    lockd_daemon_figures[];

uint64_t lockd_figure_value(const struct lockd_figure *figure, const void *message);

#endif
