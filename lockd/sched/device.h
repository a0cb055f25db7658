/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: devices come and go, and are found by their UUIDs.
 */
#ifndef GS_LOCKD_SCHED_DEVICE_H
#define GS_LOCKD_SCHED_DEVICE_H

#include "lockd/sched/state.h"

/* The device, made if there is none. -ENOMEM, or -EMFILE: that user named too many already that
 * nobody knew. */
int sched_device_get(struct sched *sched, const uint8_t *uuid, uint32_t user,
                     struct sched_device **found);
/* Frees it if nobody is on it any more. */
void sched_device_free_unused(struct sched_device *device);
/* The client's member on that device; NULL: it has not named it. */
struct sched_member *sched_member_find(const struct sched_client *client, const uint8_t *uuid);

#endif
