/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: devices come and go, and are found by their UUIDs; so is a client's member on a
 * device. Owns the sums of the parties that want a device, in all and for each user. And the
 * agenda: what is to be looked at before an event ends, which is devices to be planned, members
 * whose target may have to change, parties that may have to wait or stop, groups whose size
 * changed. These are lists and nothing else: any file may add to them, and plan.c works them off.
 * Each entry is on its list at most once.
 */
#include "lockd/sched/room.h"

struct sched_device *sched_device_find(const struct sched *sched, const uint8_t *uuid)
{
    lockd_each (struct sched_device, device, &sched->devices, link) {
        if (memcmp(device->uuid, uuid, sizeof device->uuid) == 0)
            return device;
    }
    return NULL;
}

int sched_device_get(struct sched *sched, const uint8_t *uuid, uint32_t user, uint64_t now,
                     struct sched_device **found)
{
    struct sched_device *device = sched_device_find(sched, uuid);
    uint32_t named = 0;

    *found = device;
    if (device != NULL)
        return 0;
    lockd_each (const struct sched_device, each, &sched->devices, link)
        named += each->named_by == user;
    if (named >= 2 * LOCKD_DEVICES_PER_CLIENT)
        return -EMFILE;
    device = calloc(1, sizeof *device);
    if (device != NULL)
        device->totals = lockd_totals_get(&sched->totals, uuid, user);
    if (device == NULL || device->totals == NULL) {
        free(device);
        return -ENOMEM;
    }
    device->sched = sched;
    device->named_by = user;
    memcpy(device->uuid, uuid, sizeof device->uuid);
    device->deadline = device->grace_at = device->stop_at = device->revoke.at = LOCKD_NEVER;
    device->waiting.again_at = device->told.exact_at = device->evict_at = LOCKD_NEVER;
    sched_share_open(device, now);
    lockd_list_append(&sched->devices, &device->link);
    *found = device;
    return 0;
}

void sched_device_free_unused(struct sched_device *device)
{
    if (device->member_count != 0 || device->party_count != 0)
        return;
    lockd_list_remove(&device->agenda.pending);
    lockd_list_remove(&device->link);
    lockd_each (struct sched_user, user, &device->wanting.users, of_device)
        free(user);
    memcpy(device->totals->sum.name, device->name, sizeof device->totals->sum.name);
    lockd_totals_leave(&device->sched->totals, device->totals);
    free(device);
}

struct sched_member *sched_member_find(const struct sched_client *client, const uint8_t *uuid)
{
    lockd_each (struct sched_member, member, &client->members, of_client) {
        if (memcmp(member->device->uuid, uuid, sizeof member->device->uuid) == 0)
            return member;
    }
    return NULL;
}

/* --- the agenda: O(1); for a gang, one entry for each of its parties --- */

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
    lockd_each (struct sched_party, party, &gang->parties, of_gang)
        sched_agenda_settle(party);
}

void sched_agenda_mark(struct sched_group *group)
{
    if (group != NULL && lockd_list_empty(&group->marked))
        lockd_list_append(&group->sched->groups_marked, &group->marked);
}

/* --- the parties that want it --- */

struct sched_user *sched_user_of(struct sched_device *device, uint32_t id, uint64_t now)
{
    struct sched_user *user = NULL;

    lockd_each (struct sched_user, each, &device->wanting.users, of_device) {
        if (each->id == id) {
            user = each;
        } else if (each->wanting == 0 && sched_less(now, each->since) > 20 * HALF_LIFE) {
            lockd_list_remove(&each->of_device);
            free(each);
        }
    }
    if (user != NULL)
        return user;
    user = calloc(1, sizeof *user);
    if (user == NULL)
        return NULL;
    user->id = id;
    user->since = now;
    lockd_list_append(&device->wanting.users, &user->of_device);
    return user;
}

static void count_party(struct sched_party *party, int sign)
{
    struct sched_device_wanting *wanting = &party->device->wanting;
    struct sched_user *user = party->wanting.user;
    const uint64_t weight = (uint64_t)sign * party->wanting.weight;

    wanting->weights += weight;
    if (user == NULL)
        return;
    wanting->user_weights -= sched_user_weight(user);
    user->weights += weight;
    user->wanting += (uint32_t)sign;
    wanting->user_weights += sched_user_weight(user);
    if (wanting->weights == 0)
        wanting->user_weights = 0; /* no error of rounding lasts */
}

void sched_wanting_note(struct sched_party *party)
{
    struct sched_device *device = party->device;
    const uint64_t now = party->time.counted_at;

    if (party->wanting.wants)
        count_party(party, -1);
    if (party->wanting.user != NULL)
        party->wanting.user->since = now;
    party->wanting.user = NULL;
    party->wanting.wants =
        (party->wait.queued.of == &device->waiting.queue || party->turn.held) &&
        party->member_count != 0 && !sched_party_is_background(party);
    if (party->wanting.wants) {
        party->wanting.weight = party->gang->weight;
        party->wanting.user =
            sched_user_of(device, sched_party_first(party)->client->user, now);
        count_party(party, 1);
    }
    sched_share_note(party);
}
