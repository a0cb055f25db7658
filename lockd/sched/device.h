/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: devices come and go, are found by their UUIDs, and have an agenda: lists that plan.c works
 * off before the event ends.
 */
#pragma once

#include "lockd/sched/state.h"

/* NULL: no program has named it. */
struct sched_device *sched_device_find(const struct sched *sched, const uint8_t *uuid);
/* The device, made if there is none. -ENOMEM, or -EMFILE: that user named too many already that
 * nobody knew. */
int sched_device_get(struct sched *sched, const uint8_t *uuid, uint32_t user, uint64_t now,
                     struct sched_device **found);
/* Frees it if nobody is on it any more. */
void sched_device_free_unused(struct sched_device *device);
/* The client's member on that device; NULL: it has not named it. */
struct sched_member *sched_member_find(const struct sched_client *client, const uint8_t *uuid);

/* To be looked at before the event ends: */
void sched_agenda_plan(struct sched_device *device);    /* the device, as well */
void sched_agenda_touch(struct sched_member *member);   /* its target may have to change */
void sched_agenda_settle(struct sched_party *party);    /* it may have to wait or stop */
void sched_agenda_settle_gang(struct sched_gang *gang); /* ... each of its parties */
/* Something about its size changed. NULL: nothing happens. */
void sched_agenda_mark(struct sched_group *group);

/* The party waits now, or has its place, or neither any more; or its class or weight changed. A
 * background party never wants the device: it runs while no other party does. */
void sched_wanting_note(struct sched_party *party);
/* The account of a user: found, or made. It outlives its programs until nothing is left of it, so
 * that a new program does not begin with a new account. NULL without memory: then the user has
 * none. */
struct sched_user *sched_user_of(struct sched_device *device, uint32_t id, uint64_t now);
/* The mean weight of the user's parties that want the device; 0: none does. */
static inline double sched_user_weight(const struct sched_user *user)
{
    return user->wanting == 0 ? 0 : (double)user->weights / user->wanting;
}

/* The part of the device that is due to a user: by weight, among users with parties that want it. */
static inline double sched_user_share(const struct sched_device *device,
                                      const struct sched_user *user)
{
    const double own = sched_user_weight(user), all = device->wanting.user_weights;

    return own >= all ? 1 : own / all;
}
