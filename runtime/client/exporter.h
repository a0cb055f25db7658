/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter.h: gives memory of this process to others that open its handles (CUDA IPC). Client
 * thread, unless marked.
 *
 * Such memory is brought in, and stays in place for as long as another process has it open. If no
 * descriptor can be made of it, it is made anew first. range/shares.h keeps it in place.
 */
#pragma once

#include "runtime/base/base.h"
#include "lockd/protocol/wire.h"

/* The daemon passes on a request to open memory. */
void gs_exporter_asked(const struct gs_wire_open *open, uint64_t now);

/* The connection has ended: unanswered requests come again, by way of the next daemon. */
void gs_exporter_lost(void);

/* Answers what can be answered, over the daemon's descriptor, and notices memory that is no
 * longer open. stopped: the gate is closed and everything submitted has finished. Returns ns
 * until it should be called again. */
uint64_t gs_exporter_step(uint64_t now, bool stopped, int fd);

/* True if a process opens memory that has to come in first. */
bool gs_exporter_waits(void);

/* True if memory must be made anew, for which the program has to stop for a moment. */
bool gs_exporter_needs_stop(void);
