/* SPDX-License-Identifier: Apache-2.0
 *
 * health.h: a thread that watches whether the GPUs work: by the driver's answers, by its events
 * (XID errors), and by their device nodes.
 */
#ifndef GS_CLUSTER_HEALTH_H
#define GS_CLUSTER_HEALTH_H

#include "cluster/cards.h"

/* One change, as it is read from the thread's pipe. */
struct health_news {
    unsigned card;
    bool healthy;
    char why[96];
};

/* Starts the thread, which looks every period_s seconds and at each event. library: as
 * nvml_load(); cards must stay; only their names and edits are read. The end of a pipe to read
 * struct health_news from, non-blocking; or -errno. It runs as long as the process. */
int health_start(const struct cards *cards, const char *library, unsigned period_s,
                 struct gs_err *err);

#endif
