/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_gang.c: who belongs to which gang. Owns gangs and their parties: one party for each
 * device that the gang's clients use. A client without a group is a gang of its own, and so is
 * a program on several devices: its gate opens only when it may run on all of them. Their turns
 * are in lock_lease.c.
 */
#include "lockd/lock_parts.h"

#include <stdlib.h>
#include <string.h>

/* The largest weight of its members, or the first that is enough. */
static uint32_t find_weight(const struct lockd_gang *gang, uint32_t enough)
{
    uint32_t weight = 1;

    lockd_list_each (at, &gang->parties) {
        lockd_list_each (of, &lockd_party_of(at, of_gang)->members) {
            const struct lockd_client *client = lockd_member_of(of, of_party)->client;

            weight = client->weight > weight ? client->weight : weight;
            if (weight >= enough)
                return weight;
        }
    }
    return weight;
}

int32_t lockd_gang_priority(const struct lockd_gang *gang)
{
    int32_t priority = INT32_MIN;

    lockd_list_each (at, &gang->parties) {
        lockd_list_each (of, &lockd_party_of(at, of_gang)->members) {
            const struct lockd_client *client = lockd_member_of(of, of_party)->client;

            priority = client->priority > priority ? client->priority : priority;
        }
    }
    return priority;
}

static void set_weight(struct lockd_gang *gang, uint32_t weight)
{
    gang->weight = weight;
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        party->device->weights += weight - (uint64_t)party->weight;
        party->weight = weight;
    }
}

void lockd_gang_reweigh(struct lockd_gang *gang)
{
    set_weight(gang, find_weight(gang, GS_WEIGHT_MAX));
}

struct lockd_party *lockd_gang_next(const struct lockd_gang *gang)
{
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (!party->held)
            return party;
    }
    return NULL;
}

void lockd_gang_settle(struct lockd_gang *gang)
{
    lockd_list_each (at, &gang->parties)
        lockd_plan_settle(lockd_party_of(at, of_gang));
}

/* --- who belongs to it --- */

static struct lockd_gang *gang_new(void)
{
    struct lockd_gang *gang = calloc(1, sizeof *gang);

    if (gang != NULL)
        lockd_list_init(&gang->parties);
    return gang;
}

static void gang_enter(struct lockd_gang *gang, struct lockd_client *client)
{
    client->gang = gang;
    gang->client_count++;
    gang->paused += client->paused;
}

/* Frees the gang when it was the last one. */
static void gang_exit(struct lockd_client *client)
{
    struct lockd_gang *gang = client->gang;

    client->gang = NULL;
    gang->paused -= client->paused;
    if (--gang->client_count != 0)
        return;
    if (gang->group != NULL)
        gang->group->gang = NULL;
    lockd_gang_give_way(gang, client->lock, false);
    free(gang);
}

static struct lockd_gang *gang_of(struct lockd_client *client)
{
    struct lockd_group *group = client->in_group;
    struct lockd_gang *gang = NULL;

    if (client->gang != NULL)
        return client->gang;
    if (client->group[0] != '\0' && group == NULL) {
        group = lockd_group_enter(client);
        if (group == NULL)
            return NULL;
    }
    if (group != NULL && !group->apart)
        gang = group->gang;
    if (gang == NULL)
        gang = gang_new();
    if (gang == NULL)
        return NULL;
    if (group != NULL && !group->apart) {
        gang->group = group;
        group->gang = gang;
    }
    gang_enter(gang, client);
    return gang;
}

void lockd_gang_client_gone(struct lockd_client *client)
{
    if (client->gang != NULL) {
        if (client->paused)
            lockd_gang_settle(client->gang);
        gang_exit(client);
    }
    lockd_group_leave(client);
}

static void insert_sorted(struct lockd_gang *gang, struct lockd_party *party)
{
    struct lockd_list *at = gang->parties.next;

    while (at != &gang->parties && memcmp(lockd_party_of(at, of_gang)->device->uuid,
                                          party->device->uuid, sizeof party->device->uuid) < 0)
        at = at->next;
    lockd_list_append(at, &party->of_gang); /* before it */
}

static struct lockd_party *party_new(struct lockd_gang *gang, struct lockd_device *device)
{
    struct lockd_party *party = calloc(1, sizeof *party);

    if (party == NULL)
        return NULL;
    party->gang = gang;
    party->device = device;
    lockd_list_init(&party->members);
    lockd_list_init(&party->settle);
    lockd_list_init(&party->holder);
    party->burst_usual = party->quiet_at = LOCKD_NEVER;
    party->weight = gang->weight;
    device->weights += party->weight;
    insert_sorted(gang, party);
    lockd_list_append(&device->parties, &party->of_device);
    gang->party_count++;
    device->party_count++;
    return party;
}

static struct lockd_party *party_of(struct lockd_gang *gang, struct lockd_device *device)
{
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (party->device == device)
            return party;
    }
    return party_new(gang, device);
}

struct lockd_party *lockd_gang_join(struct lockd_client *client, struct lockd_device *device)
{
    struct lockd_gang *gang = gang_of(client);

    if (gang == NULL)
        return NULL;
    if (client->weight > gang->weight)
        set_weight(gang, client->weight);
    return party_of(gang, device);
}

static void party_free(struct lockd_party *party)
{
    struct lockd_device *device = party->device;

    lockd_queue_drop(party);
    if (party->held) {
        lockd_list_remove(&party->holder);
        device->holder_count--;
        party->gang->held_count--;
    }
    if (device->revoke_head == party)
        device->revoke_head = NULL;
    if (device->cleared_for == party)
        device->cleared_for = NULL;
    lockd_list_remove(&party->settle);
    lockd_list_remove(&party->of_gang);
    lockd_list_remove(&party->of_device);
    party->gang->party_count--;
    device->party_count--;
    device->need_held -= party->need_held;
    device->need_busy -= party->need_busy;
    device->lost -= party->lost;
    device->stuck_parties -= party->counted_stuck;
    device->stopping_parties -= party->counted_stopping;
    device->weights -= party->weight;
    device->elsewhere -= party->elsewhere;
    device->generation++;
    free(party);
}

static void party_leave(struct lockd_member *member, uint64_t now)
{
    struct lockd_party *party = member->party;

    party->gang->wanting -= (member->flags & GS_STATE_WANT) != 0;
    party->gang->evicting -= member->evict;
    lockd_list_remove(&member->of_party);
    party->member_count--;
    lockd_books_party(party, now);
    if (party->member_count == 0)
        party_free(party);
}

void lockd_gang_leave(struct lockd_member *member, uint64_t now)
{
    struct lockd_gang *gang = member->party->gang;

    party_leave(member, now);
    if (gang->party_count != 0 && member->client->weight >= gang->weight &&
        find_weight(gang, gang->weight) != gang->weight)
        lockd_gang_reweigh(gang);
    if (gang->party_count == 0) {
        gang->runs = false;
        gang->weight = 0;
    }
    if (gang->party_count != 0 && gang->held_count == gang->party_count && !gang->runs)
        lockd_gang_begin(gang, now);
    lockd_gang_requeue(gang, now);
    lockd_gang_settle(gang);
}

/* --- a client moves to another gang --- */

/* Its parties there. Without memory, none is left behind. */
static bool make_parties(const struct lockd_client *client, struct lockd_gang *to)
{
    bool made = true;

    lockd_list_each (at, &client->members)
        made = made && party_of(to, lockd_member_of(at, of_client)->device) != NULL;
    if (made)
        return true;
    lockd_list_each (at, &to->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (party->member_count == 0)
            party_free(party);
    }
    return false;
}

/* What it had, or owes, goes with it: else who is parted or brought together again and again
 * would begin with a turn of credit each time. */
static void copy_history(struct lockd_party *to, const struct lockd_party *from, uint64_t now)
{
    to->counted_at = now;
    to->virtual_ns = lockd_max(to->virtual_ns, from->virtual_ns);
    if (to->member_count != 0)
        return;
    to->turns = from->turns;
    to->last_ran = from->last_ran;
    to->level_then = from->level_then;
    to->rested = from->rested;
    to->came_up = from->came_up;
    to->quiet_at = from->quiet_at;
    to->burst = from->burst;
    to->burst_usual = from->burst_usual;
    to->burst_off = from->burst_off;
}

static void move_member(struct lockd_member *member, struct lockd_gang *to, uint64_t now)
{
    struct lockd_party *from = member->party, *party = party_of(to, member->device);

    lockd_books_ran(from, now);
    lockd_books_ran(party, now);
    copy_history(party, from, now);
    from->demand -= member->share.demand;
    party_leave(member, now);
    member->party = party;
    lockd_list_append(&party->members, &member->of_party);
    party->member_count++;
    party->demand += member->share.demand;
    to->wanting += (member->flags & GS_STATE_WANT) != 0;
    to->evicting += member->evict;
    lockd_books_party(party, now);
    lockd_plan_touch(member);
}

void lockd_gang_move(struct lockd_client *client, struct lockd_gang *to, uint64_t now)
{
    struct lockd_gang *from = client->gang;
    const bool made = to == NULL, last = from->client_count == 1;

    if (made)
        to = gang_new();
    if (to == NULL)
        return;
    if (!make_parties(client, to)) {
        if (made)
            free(to);
        return;
    }
    lockd_gang_give_way(from, client->lock, false);
    lockd_gang_give_way(to, client->lock, false);
    to->out = made ? from->out : to->out && from->out;
    lockd_list_each (at, &client->members)
        move_member(lockd_member_of(at, of_client), to, now);
    gang_exit(client);
    gang_enter(to, client);
    lockd_gang_reweigh(to);
    if (!last)
        lockd_gang_reweigh(from);
    lockd_gang_settle(to);
}
