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

/* Device memory is shared with another process, which says the same token (any number that no
 * others share). Any thread. */
void gs_evidence_share(uint64_t token);

/* --- client thread --- */

/* Programs wait for a device, or others use it, too: looks at the process's mappings for NCCL's, now
 * and then. */
void gs_evidence_look(bool waiting, bool beside, uint64_t now);
/* Says what has not been said on this connection. 0, -EAGAIN: later; -errno: the connection is
 * gone. */
int gs_evidence_send(int fd);
/* The next daemon gets everything anew. */
void gs_evidence_lost(void);

void gs_evidence_after_fork(void);

#endif
