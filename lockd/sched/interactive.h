/* SPDX-License-Identifier: Apache-2.0
 *
 * interactive.h: which parties are interactive, or were said to be.
 */
#ifndef GS_LOCKD_SCHED_INTERACTIVE_H
#define GS_LOCKD_SCHED_INTERACTIVE_H

#include "lockd/sched/state.h"

/* The part of the time that is kept for parties that are not interactive. */
double sched_device_keeps(const struct sched_device *device);
bool sched_party_is_steady(const struct sched_party *party); /* its bursts are about as long */
uint64_t sched_party_idle(const struct sched_party *party);  /* what it may idle */

/* It has or has not had something to do since its last report. runs: it had the device. */
void sched_burst_begun(struct sched_party *party, uint64_t now);
void sched_burst_ended(struct sched_party *party, bool runs, uint64_t now);
/* Does its history say that it is interactive, whatever its present burst does? */
bool sched_party_is_known(const struct sched_party *party);
/* Does it work in short bursts with rests between, or was it said to? */
bool sched_party_is_interactive(const struct sched_party *party, uint64_t now);
/* ... and is it known to be, so that it comes before all others? */
bool sched_party_goes_first(const struct sched_party *party, uint64_t now);

/* What was said of it, or what was found out. */
enum gs_wire_class sched_party_class(const struct sched_party *party, uint64_t now);
/* When the present burst of a holder has been so long that a new program may end its turn. */
uint64_t sched_party_long_at(const struct sched_party *party, uint64_t now);
/* It has shown nothing yet: it goes in turn, but its first turn comes soon. */
bool sched_party_is_new(const struct sched_party *party);
/* When one that is interactive is none any more if its present burst goes on; LOCKD_NEVER: it was said to be one. */
uint64_t sched_party_shows_at(const struct sched_party *party, uint64_t now);
/* When one that waits, and is known to be interactive but for its present burst, is so again; LOCKD_NEVER: not before it runs. */
uint64_t sched_party_again_at(const struct sched_party *party, uint64_t now);
/* When one that has the device as an interactive party is none any more if it goes on like that;
 * LOCKD_NEVER: it was said to be one. */
uint64_t sched_party_lasts_until(const struct sched_party *party, uint64_t now);
/* Does its present burst last for so long, perhaps, since it has to wait for turns? */
bool sched_party_piles_up(const struct sched_party *party, uint64_t now);
/* Its turn is ended. If it had it only to be measured, and has not run, it goes on in turn. */
void sched_party_trial_ends(struct sched_party *party);
/* Until then one that was interrupted may come back for its place, which nobody gets meanwhile;
 * LOCKD_NEVER: there is none. */
uint64_t sched_device_back_at(const struct sched_device *device);

#endif
