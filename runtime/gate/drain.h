/* SPDX-License-Identifier: Apache-2.0
 *
 * drain.h: waits until everything submitted has finished, in every context of the process.
 */
#pragma once

#include "runtime/base/base.h"

enum gs_drained {
    GS_DRAIN_OVER,    /* everything has finished */
    GS_DRAIN_GOES_ON, /* not yet; call again */
    GS_DRAIN_FAILED, /* a capture is under way: work may still run. The next call begins anew */
};

/* Starts a drain if none is under way, and waits for it at most timeout_ns. Client thread; the
 * gate is closed. */
enum gs_drained gs_drain(uint64_t timeout_ns);

/* True while the driver is being asked: contexts must not end then. Client thread. */
bool gs_drain_busy(void);
