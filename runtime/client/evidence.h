/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.h: signs by which the daemon finds the processes that are one job (GS_WIRE_KIN). If
 * GPUSHARE_GROUP is set, none are looked for.
 */
#pragma once

#include "runtime/base/base.h"

/* A thread of the program has used the device, or is about to wait: reads the environment, at
 * most once a second. */
void gs_evidence_collect(void);

/* Memory of the process with that number is open in another process. This process is one of the
 * two, and the other one reports the same. The key ends by itself some seconds after the last
 * memory is closed. Any thread. */
void gs_evidence_share(const uint8_t exporter[16]);

/* Device memory of this process was exported for another process: connections with others count
 * from now on, since NCCL's ranks export their buffers to each other (and have no file in
 * /dev/shm where GPUs reach each other). The first call waits until the daemon has been told of
 * them, for a second at most. Any thread of the program. */
void gs_evidence_exported(void);

/* Host memory was registered with the driver. NCCL registers what its ranks share: the daemon is
 * told of that before this returns, if it listens. Waits of all threads together last a second at
 * most. Memory of the process's own costs a look at one page. Any thread of the program. */
void gs_evidence_registered(const void *address);

/* --- client thread --- */

/* Looks for NCCL's mappings and connections: now and then while programs wait for a device or
 * share it, and soon after memory was registered or exported. Returns ns until it should be called
 * again. */
uint64_t gs_evidence_look(bool waiting, bool beside, uint64_t now);
/* Sends the keys that this connection has not seen, and those that have ended. 0, -EAGAIN:
 * later; another -errno: the connection has ended. */
int gs_evidence_send(int fd, uint64_t now);
/* The connection has ended: the next daemon gets every key again. */
void gs_evidence_lost(void);
