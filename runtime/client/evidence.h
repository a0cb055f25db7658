/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.h: what tells the daemon which processes are one job (GS_WIRE_KIN). With
 * GPUSHARE_GROUP, none is looked for.
 */
#ifndef GS_RUNTIME_CLIENT_EVIDENCE_H
#define GS_RUNTIME_CLIENT_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

/* A thread of the program has used the device, or is about to wait: looks at the environment, at
 * most once a second. */
void gs_evidence_collect(void);

/* Memory of the process with that number is open in another one: this process is one of the two,
 * and the other one says the same. Ends by itself some seconds after the last of it is closed.
 * Any thread. */
void gs_evidence_share(const uint8_t exporter[16]);

/* Device memory of this process was exported for another one: connections with others count from
 * now on, since NCCL's ranks export their buffers to each other (and have no file in /dev/shm
 * where GPUs reach each other). Any thread. */
void gs_evidence_exported(void);

/* The process's mappings have changed in a way that may show peers: they are looked at soon. Any
 * thread. */
void gs_evidence_expect(void);

/* --- client thread --- */

/* Looks at the process's mappings and connections for NCCL's: now and then while programs wait for a device or
 * others use it, too, and when that is expected to find some. Returns ns until it wants to be
 * called again. */
uint64_t gs_evidence_look(bool waiting, bool beside, uint64_t now);
/* Says what has not been said on this connection, and what has ended. 0, -EAGAIN: later; -errno:
 * the connection is gone. */
int gs_evidence_send(int fd, uint64_t now);
/* The next daemon gets everything anew. */
void gs_evidence_lost(void);

void gs_evidence_after_fork(void);

#endif
