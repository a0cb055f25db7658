/* SPDX-License-Identifier: Apache-2.0
 *
 * track.c: the tracks of one program, one for each of its devices. trace.c stores the last report
 * and target in them, quota.c the state under max-memory. No other state.
 */
#include "lockd/programs/track.h"
#include "lockd/sched/scheduler.h"

#include <stdlib.h>
#include <string.h>

/* Chooses the entry of a full table that is replaced. No state. */

struct table {
    const char *slots;
    size_t count, size;
};

static const struct lockd_stamp *stamp_of(const struct table *table, size_t index)
{
    return (const void *)(table->slots + index * table->size);
}

size_t lockd_slots_choose(const void *slots, size_t count, size_t size, uint32_t owner)
{
    const struct table table = {slots, count, size};
    size_t found = 0, most = 0;

    for (size_t i = 0; i < count; i++) {
        const struct lockd_stamp *stamp = stamp_of(&table, i);
        size_t entries = stamp->owner == owner;

        if (stamp->at == 0)
            return i;
        for (size_t k = 0; k < count; k++)
            entries += stamp_of(&table, k)->owner == stamp->owner;
        if (entries > most || (entries == most && stamp->at < stamp_of(&table, found)->at)) {
            found = i;
            most = entries;
        }
    }
    return found;
}

const struct lockd_seen *lockd_sees_take(struct lockd_sees *sees,
                                         const struct gs_wire_sees *message)
{
    struct lockd_seen *one;

    if (message->count != sees->count) {
        free(sees->device);
        sees->device = calloc(message->count, sizeof *sees->device);
        sees->count = sees->device != NULL ? message->count : 0;
    }
    if (sees->device == NULL)
        return NULL;
    one = &sees->device[message->index];
    memcpy(one->uuid, message->uuid, sizeof one->uuid);
    memcpy(one->name, message->name, sizeof one->name);
    one->total = message->total;
    return one;
}

const struct lockd_seen *lockd_sees_find(const struct lockd_sees *sees, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < sees->count; i++)
        if (memcmp(sees->device[i].uuid, uuid, sizeof sees->device[i].uuid) == 0)
            return &sees->device[i];
    return NULL;
}

void lockd_sees_deinit(struct lockd_sees *sees)
{
    free(sees->device);
    sees->device = NULL;
    sees->count = 0;
}

struct lockd_track *lockd_track_find(const struct lockd_tracks *tracks, const uint8_t *uuid)
{
    for (size_t i = 0; i < tracks->count; i++) {
        if (memcmp(tracks->track[i].uuid, uuid, sizeof tracks->track[i].uuid) == 0)
            return &tracks->track[i];
    }
    return NULL;
}

struct lockd_track *lockd_track_get(struct lockd_tracks *tracks, const uint8_t *uuid)
{
    struct lockd_track *const found = lockd_track_find(tracks, uuid);
    struct lockd_track *grown;

    if (found != NULL || tracks->count >= LOCKD_DEVICES_PER_CLIENT)
        return found;
    grown = realloc(tracks->track, (tracks->count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    tracks->track = grown;
    grown += tracks->count++;
    memset(grown, 0, sizeof *grown);
    memcpy(grown->uuid, uuid, sizeof grown->uuid);
    return grown;
}

void lockd_track_drop(struct lockd_tracks *tracks, const uint8_t *uuid)
{
    struct lockd_track *track = lockd_track_find(tracks, uuid);

    if (track != NULL)
        *track = tracks->track[--tracks->count];
}

void lockd_track_deinit(struct lockd_tracks *tracks)
{
    free(tracks->track);
    *tracks = (struct lockd_tracks){.track = NULL};
}

/* --- accounts of groups: when the table is full, a new account replaces an account that has not
 * changed for long (lockd_slots_choose()) --- */

void lockd_account_count(struct gs_wire_account *sum, const struct gs_wire_client *client)
{
    sum->moved_out += client->moved_out;
    sum->moved_in += client->moved_in;
    sum->gpu_ns += client->gpu_ns;
    sum->wait_ns += client->wait_ns;
    if (client->wait_longest_ns > sum->wait_longest_ns)
        sum->wait_longest_ns = client->wait_longest_ns;
}

const struct lockd_account *lockd_account_find(const struct lockd_accounts *accounts, uid_t uid,
                                               const char *group)
{
    for (int i = 0; i < LOCKD_ACCOUNTS; i++) {
        const struct lockd_account *slot = &accounts->slot[i];

        if (slot->stamp.at != 0 && slot->stamp.owner == uid &&
            strcmp(slot->sum.group, group) == 0)
            return slot;
    }
    return NULL;
}

struct gs_wire_account *lockd_account_open(struct lockd_accounts *accounts, uid_t uid,
                                           const char *group, uint64_t now)
{
    const struct lockd_account *known = lockd_account_find(accounts, uid, group);
    const size_t index = known != NULL ? (size_t)(known - accounts->slot)
                                       : lockd_slots_choose(accounts->slot, LOCKD_ACCOUNTS,
                                                            sizeof accounts->slot[0], uid);
    struct lockd_account *account = &accounts->slot[index];

    if (known == NULL) {
        *account = (struct lockd_account){.stamp.owner = uid};
        strncpy(account->sum.group, group, sizeof account->sum.group - 1);
    }
    account->stamp.at = now;
    return &account->sum;
}
