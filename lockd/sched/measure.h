/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: how large a device is, and what on it is nobody's movable memory.
 */
#pragma once

#include "lockd/sched/state.h"

void sched_measure_report(struct sched_member *member, const struct gs_wire_state *state,
                          uint64_t now);
/* The driver had not so many bytes for it, when it had what it says. A member that is short
 * moves memory and so does not measure; this report is known before the next measurement. */
void sched_measure_short(struct sched_member *member, uint64_t bytes, uint64_t now);
/* sched_card() */
void sched_measure_card(struct sched_device *device, const struct sched_card *card,
                        uint64_t now);
/* The member's newest question whether the capacity holds, with a report that has been taken in. It is
 * answered by the next target, once nothing says that there may be more. */
void sched_measure_asked(struct sched_member *member, const struct gs_wire_state *state,
                         uint64_t now);
void sched_measure_answer(struct sched_device *device, uint64_t now);
/* Asks members that can tell, when it is time to. Returns whether turns are to be planned anew, since
 * other programs count as late. */
bool sched_measure_ask(struct sched_device *device, uint64_t now);
void sched_measure_forget(struct sched_member *member, uint64_t now);
/* External is known from programs of one other user alone: no reason to refuse it memory. */
bool sched_measure_is_word(const struct sched_member *member);
/* The bytes that a new member says it has, as far as that can be: an earlier daemon allowed
 * them, so they were there before, and while the program was away they were measured as
 * external use, or were expected back. */
uint64_t sched_measure_came_with(const struct sched_device *device,
                                 const struct gs_wire_state *state, uint64_t now);
/* When programs are to be asked; LOCKD_NEVER: there is no reason to. */
uint64_t sched_measure_deadline(const struct sched_device *device);
/* The member came with memory, which may have been measured before it said so. back: from an
 * earlier daemon, so that more of them may follow. */
void sched_measure_came(struct sched_member *member, bool back, uint64_t now);
