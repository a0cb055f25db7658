/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h: for how long the others let an interactive party go first.
 */
#ifndef GS_LOCKD_SCHED_SHARES_H
#define GS_LOCKD_SCHED_SHARES_H

#include "lockd/sched/state.h"

/* It waits now, or has its place, or neither any more: shares of the device follow from that. */
void sched_share_note(struct sched_party *party, uint64_t now);
void sched_share_free(struct sched_device *device);
/* It ran for so long, up to now, while others waited. */
void sched_share_ran(struct sched_party *party, uint64_t ns, uint64_t now);

/* Brings the device's account up to now. */
void sched_share_count(struct sched_device *device, uint64_t now);
/* ... and notes in which state it goes on. To be called when a plan is done. */
void sched_share_settle(struct sched_device *device, uint64_t now);
/* From when on `head`, an interactive party, may end the holder's turn: when the account is as full
 * as is asked of it, and the holder is not interactive itself. LOCKD_NEVER: not before that turn is
 * over. */
uint64_t sched_share_ahead_at(const struct sched_party *head, const struct sched_party *holder,
                              uint64_t now);
/* Others come before it although it is the first in the queue: they have not had their floor. */
bool sched_share_waits(const struct sched_party *party);
/* Other interactive parties come before it: it had more than its share. */
bool sched_share_owes(const struct sched_party *party);

#endif
