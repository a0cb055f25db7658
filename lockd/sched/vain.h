/* SPDX-License-Identifier: Apache-2.0
 *
 * vain.h: time in which a turn has not come to run, and who pays for it.
 */
#pragma once

#include "lockd/sched/state.h"

/* A user's programs had the device for so long while others waited, run or not. */
void sched_vain_had(struct sched_device *device, struct sched_user *user, uint64_t ns);
/* Counts the time in which the first holder that has not come to run has not. To be called before
 * anything changes. */
void sched_vain_count(struct sched_device *device, uint64_t now);
/* A turn ends: what ran in it is paid for as well, up to as much as was in vain. */
void sched_vain_ended(struct sched_party *party, uint64_t now);
/* Nothing came of its turn: others have as much time before its next turn, then twice as much, and so
 * on. */
void sched_vain_note(struct sched_party *party, uint64_t now);
/* Beside other users' programs nothing ran in a large part of its turn. */
bool sched_vain_was_late(const struct sched_party *party);
/* The party (own), or only its user, waits until others have had so much more, ns. */
uint64_t sched_vain_owed(const struct sched_party *party, bool *own);
