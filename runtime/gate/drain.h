/* SPDX-License-Identifier: Apache-2.0
 *
 * drain.h: waits until everything submitted has finished, in every context of the process.
 */
#ifndef GS_RUNTIME_GATE_DRAIN_H
#define GS_RUNTIME_GATE_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/* Starts a drain if none is under way, and waits for it at most timeout_ns. True: everything
 * has finished. False: not yet; call again (it goes on meanwhile). Client thread; the gate is
 * closed. */
bool gs_drain(uint64_t timeout_ns);

/* True while the driver is being asked: contexts must not end then. Client thread. */
bool gs_drain_busy(void);

void gs_drain_after_fork(void);

#endif
