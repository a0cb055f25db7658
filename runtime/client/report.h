/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h: tells the daemon the state of a device in this process. Client thread only.
 */
#pragma once

#include "runtime/base/base.h"

/* the values that are the same for all devices of the process */
struct gs_report {
    bool running, want, stuck, partial;
};

/* Sends the state if it differs from the last one sent in a way that matters. *after: ns until
 * it should be tried again (UINT64_MAX: when something changes). 0; -EAGAIN: later; another
 * -errno: the connection has ended. */
int gs_report_send(struct gs_device *device, const struct gs_report *report, uint64_t now,
                   uint64_t *after);
