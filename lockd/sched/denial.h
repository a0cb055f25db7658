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
/* Only programs can tell whether what should have left has left. */
bool sched_denial_by_word(const struct sched_device *device);
/* The bytes that programs which should have left some time ago say they have, where only programs
 * can tell: they may have less. */
uint64_t sched_denial_overdue_bytes(const struct sched_device *device, uint64_t now);
/* The program measured that so much is free. */
void sched_denial_found(struct sched_member *by, uint64_t device_free, uint64_t now);
/* Bytes of programs that should have left, for which a party does not wait. */
struct sched_passed sched_denial_passed(const struct sched_party *party);
/* Where only programs can tell: what other programs of its user may have that should have left. */
uint64_t sched_denial_kin_bytes(const struct sched_party *party);
/* So many bytes of the device are in use, says the card. */
void sched_denial_judge(struct sched_device *device, uint64_t used, uint64_t now);
/* Nobody is left who could deny, or the card does not answer any more: all are believed. */
void sched_denial_end(struct sched_device *device, uint64_t now);
