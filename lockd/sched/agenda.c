/* SPDX-License-Identifier: Apache-2.0
 *
 * agenda.c: what is to be looked at before an event ends: devices to be planned, members whose
 * target may have to change, parties that may have to wait or stop, groups whose size changed.
 * These are lists and nothing else: any file may add to them, and plan.c works them off. Each
 * entry is on its list at most once. O(1); for a gang, one entry for each of its parties.
 */
#include "lockd/sched/agenda.h"

void sched_agenda_plan(struct sched_device *device)
{
    if (lockd_list_empty(&device->agenda.pending))
        lockd_list_append(&device->sched->pending, &device->agenda.pending);
}

void sched_agenda_touch(struct sched_member *member)
{
    if (lockd_list_empty(&member->agenda.touched))
        lockd_list_append(&member->device->agenda.touched, &member->agenda.touched);
    sched_agenda_plan(member->device);
}

void sched_agenda_settle(struct sched_party *party)
{
    if (lockd_list_empty(&party->settle))
        lockd_list_append(&party->device->agenda.settle, &party->settle);
    sched_agenda_plan(party->device);
}

void sched_agenda_settle_gang(struct sched_gang *gang)
{
    lockd_list_each (at, &gang->parties)
        sched_agenda_settle(sched_party_of(at, of_gang));
}

void sched_agenda_mark(struct sched_group *group)
{
    if (group != NULL && lockd_list_empty(&group->marked))
        lockd_list_append(&group->sched->groups_marked, &group->marked);
}
