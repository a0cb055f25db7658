/* SPDX-License-Identifier: Apache-2.0
 *
 * agenda.h: what is to be looked at before the event ends: lists that plan.c works off.
 */
#ifndef GS_LOCKD_SCHED_AGENDA_H
#define GS_LOCKD_SCHED_AGENDA_H

#include "lockd/sched/state.h"

void sched_agenda_plan(struct sched_device *device);    /* the device, as well */
void sched_agenda_touch(struct sched_member *member);   /* its target may have to change */
void sched_agenda_settle(struct sched_party *party);    /* it may have to wait or stop */
void sched_agenda_settle_gang(struct sched_gang *gang); /* ... each of its parties */
/* Something about its size changed. NULL: nothing happens. */
void sched_agenda_mark(struct sched_group *group);

#endif
