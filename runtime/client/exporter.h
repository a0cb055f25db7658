/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter.h: gives memory of this process to others that open its handles (CUDA IPC). Client
 * thread, unless marked.
 *
 * Such memory is brought in, stays in place as long as another process has it open, and is made
 * anew first if no descriptor can be made of it. A pipe says how long that is: the other one
 * has its only write end.
 */
#ifndef GS_RUNTIME_CLIENT_EXPORTER_H
#define GS_RUNTIME_CLIENT_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include "lockd/protocol/wire.h"

/* The daemon passes an open on. */
void gs_exporter_asked(const struct gs_wire_open *open, uint64_t now);

/* The connection has ended: what was not answered is asked again, of the next daemon. */
void gs_exporter_lost(void);

/* Answers what can be answered, over the daemon's descriptor, and notices what is no longer
 * open. stopped: the gate is closed and everything submitted has finished. Returns ns until it
 * wants to be called again. */
uint64_t gs_exporter_step(uint64_t now, bool stopped, int fd);

/* Somebody opens memory that has to come in. */
bool gs_exporter_waits(void);
/* Another process has memory of this one open. */
bool gs_exporter_shares(void);

/* Memory must be made anew, for which the program has to stop for a moment. */
bool gs_exporter_needs_stop(void);

void gs_exporter_after_fork(void);

#endif
