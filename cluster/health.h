/* SPDX-License-Identifier: Apache-2.0
 *
 * health.h: a thread that watches whether the GPUs work: by the driver's answers, by its events
 * (XID errors), and by their device nodes.
 */
#pragma once

#include "cluster/cards.h"
#include "common/err.h"

/* One change, as it is read from the thread's pipe. */
struct health_news {
    unsigned card;
    bool healthy;
    char why[96];
};

/* Starts the thread, which looks every period_s seconds and at each event. library:
 * NVIDIA's; NULL: the loader's libnvidia-ml.so.1. cards must stay; only their names and edits are
 * read. The end of a pipe to read struct health_news from, non-blocking; or -errno. err says why the
 * library cannot be used. It runs as long as the process. */
int health_start(const struct cards *cards, const char *library, unsigned period_s,
                 struct gs_err *err);
