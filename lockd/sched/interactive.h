/* SPDX-License-Identifier: Apache-2.0
 *
 * interactive.h: which parties are served first, and for how long the others let them.
 */
#ifndef GS_LOCKD_SCHED_INTERACTIVE_H
#define GS_LOCKD_SCHED_INTERACTIVE_H

#include "lockd/sched/state.h"

/* It has or has not had something to do since its last report. runs: it had the device. */
void sched_burst_begun(struct sched_party *party, uint64_t now);
void sched_burst_ended(struct sched_party *party, bool runs, uint64_t now);
/* Does it work in short bursts with rests between, or was it said to? */
bool sched_party_is_interactive(const struct sched_party *party, uint64_t now);
/* ... and is it known to be, so that it comes before all others? */
bool sched_party_goes_first(const struct sched_party *party, uint64_t now);
/* Does it run only while nobody else wants the device? */
bool sched_party_is_background(const struct sched_party *party);

/* What was said of it or of any program of its gang; background if it was said of all. */
enum gs_wire_class sched_gang_class(const struct sched_gang *gang);
/* ... GS_CLASS_AUTO: what was found out, then. */
enum gs_wire_class sched_party_class(const struct sched_party *party, uint64_t now);

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

#endif
