/* SPDX-License-Identifier: Apache-2.0
 *
 * denial.h: how far programs are believed that claim to have memory.
 */
#pragma once

#include "lockd/sched/state.h"

#define CARD_ROUNDING 32 /* figures agree up to this part of the device */

static inline bool sched_denial_is_other(const struct sched_member *member,
                                         const struct sched_member *other)
{
    return member->client->user != other->client->user;
}

/* The caller is to be told, once, that the member's reports contradict the card or others. */
void sched_denial_note(struct sched_member *member);
/* So many bytes of the device are in use, says the card, or that program. */
void sched_denial_judge(struct sched_device *device, uint64_t used,
                        const struct sched_member *by, uint64_t now);
/* Nobody is left who could deny, or the card does not answer any more: all are believed. */
void sched_denial_end(struct sched_device *device, uint64_t now);
