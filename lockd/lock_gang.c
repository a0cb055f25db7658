/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_gang.c: gangs and their parties. Owns both. A gang runs when all its parties are held,
 * one for each device that its clients use; until then nobody of it does. Places are taken one
 * after the other in the order of the devices' UUIDs, the same for all gangs, so that no two
 * gangs can each hold what the other one waits for; the place of the next party is not even
 * queued for before. A turn that ends on one device ends on all.
 *
 * A client without a group is a gang of its own, and so is a program on several devices: its
 * gate opens only when it may run on all of them.
 */
#include "lockd/lock_state.h"

#include <stdlib.h>
#include <string.h>

#define RETRY                                                                                  \
    2 /* what gave its places up gives way for so many times as long as it had them            \
       */

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

static struct lockd_gang *gang_of(struct lockd_client *client)
{
    struct lockd_lock *lock = NULL;
    struct lockd_gang *gang;

    if (client->gang != NULL)
        return client->gang;
    lock = client->lock;
    if (client->group[0] != '\0') {
        lockd_list_each (at, &lock->gangs) {
            gang = lockd_entry(at, struct lockd_gang, link);
            if (gang->user == client->user && strcmp(gang->name, client->group) == 0)
                goto found;
        }
    }
    gang = calloc(1, sizeof *gang);
    if (gang == NULL)
        return NULL;
    lockd_list_init(&gang->link);
    lockd_list_init(&gang->parties);
    gang->user = client->user;
    memcpy(gang->name, client->group, sizeof gang->name);
    if (client->group[0] != '\0')
        lockd_list_append(&lock->gangs, &gang->link);
found:
    client->gang = gang;
    gang->client_count++;
    gang->paused += client->paused;
    return gang;
}

void lockd_gang_client_gone(struct lockd_client *client)
{
    struct lockd_gang *gang = client->gang;

    if (gang == NULL)
        return;
    gang->paused -= client->paused;
    client->gang = NULL;
    if (client->paused)
        lockd_gang_settle(gang);
    if (--gang->client_count != 0)
        return;
    lockd_list_remove(&gang->link);
    free(gang);
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
    party->burst_usual = LOCKD_NEVER;
    party->weight = gang->weight;
    device->weights += party->weight;
    insert_sorted(gang, party);
    lockd_list_append(&device->parties, &party->of_device);
    gang->party_count++;
    device->party_count++;
    return party;
}

struct lockd_party *lockd_gang_join(struct lockd_client *client, struct lockd_device *device)
{
    struct lockd_gang *gang = gang_of(client);

    if (gang == NULL)
        return NULL;
    if (client->weight > gang->weight)
        set_weight(gang, client->weight);
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (party->device == device)
            return party;
    }
    return party_new(gang, device);
}

static void party_free(struct lockd_party *party)
{
    struct lockd_device *device = party->device;

    lockd_turns_dequeue(party);
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

static void begin(struct lockd_gang *gang, uint64_t now);

void lockd_gang_leave(struct lockd_member *member, uint64_t now)
{
    struct lockd_party *party = member->party;
    struct lockd_gang *gang = party->gang;

    gang->wanting -= (member->flags & GS_STATE_WANT) != 0;
    gang->evicting -= member->evict;
    lockd_list_remove(&member->of_party);
    party->member_count--;
    lockd_books_party(party, now);
    if (party->member_count == 0)
        party_free(party);
    if (gang->party_count != 0 && member->client->weight >= gang->weight &&
        find_weight(gang, gang->weight) != gang->weight)
        lockd_gang_reweigh(gang);
    if (gang->party_count == 0) {
        gang->runs = false;
        gang->weight = 0;
    }
    if (gang->party_count != 0 && gang->held_count == gang->party_count && !gang->runs)
        begin(gang, now);
    lockd_gang_settle(gang);
}

/* --- turns --- */

bool lockd_party_works(const struct lockd_party *party)
{
    lockd_list_each (at, &party->members) {
        if ((lockd_member_of(at, of_party)->flags & GS_STATE_WANT) != 0)
            return true;
    }
    return false;
}

/* The turn lasts as long everywhere as where it is due for longest: what that is too much on
 * the other devices is made up for there. */
static uint64_t turn_length(struct lockd_gang *gang)
{
    uint64_t longest = 0;

    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (party->begun)
            longest = lockd_max(longest, party->turn_length);
        else if (party->device->leases)
            longest = lockd_max(longest, lockd_device_policy(party->device)->length(party));
    }
    return longest;
}

static void begin_on(struct lockd_party *party, uint64_t length, uint64_t now)
{
    party->begun = true;
    party->interrupted = party->keeps_place = false;
    if (!party->measured)
        party->cleared = now;
    party->measured = true;
    party->device->generation++; /* there is a time now when it must stop */
    party->progress = now;
    party->ran = 0;
    party->counted_at = now;
    /* one that only keeps its place for the others of the gang has begun */
    party->started = party->running_members != 0 || !lockd_party_works(party) ? now : 0;
    party->until = LOCKD_NEVER;
    party->turn_length = 0;
    if (party->device->leases) {
        party->turn_length = length;
        party->turns++;
        party->device->switches++;
        party->device->grace_at = lockd_min(party->device->grace_at, now + GRACE_SHORT);
        if (party->started != 0 && length != LOCKD_NEVER)
            party->until = now + length;
    }
}

/* Everybody's place is there: the turn begins; not again where it is under way already, and one
 * of the gang came or left. */
static void begin(struct lockd_gang *gang, uint64_t now)
{
    const uint64_t length = turn_length(gang);

    gang->runs = true;
    gang->out = gang->gives_way = false;
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (!party->begun)
            begin_on(party, length, now);
        lockd_list_each (of, &party->members)
            lockd_plan_touch(lockd_member_of(of, of_party));
        lockd_books_party(party, now);
        lockd_plan_also(party->device);
    }
}

/* Its places are of no use before it has all of them, and are kept for no longer than the turns
 * of all others on the device that it waits for should take. */
static uint64_t patience(const struct lockd_gang *gang)
{
    const struct lockd_device *device = lockd_gang_next(gang)->device;
    const uint64_t turns = device->queue.count + device->holder_count + 1ull;

    return GRACE + turns * lockd_device_quantum(device);
}

static void keep_places(struct lockd_gang *gang, uint64_t now)
{
    const uint64_t until = now + patience(gang);

    lockd_list_each (at, &gang->parties)
        lockd_party_of(at, of_gang)->until = until;
}

/* Something is stuck where it waits, or goes first for ever: for a while it gives way to all
 * others where it has a place. */
static void give_up(struct lockd_gang *gang, uint64_t now)
{
    gang->gives_way = true;
    gang->retry_at = now + RETRY * patience(gang);
}

void lockd_gang_retry(struct lockd_device *device, uint64_t now)
{
    for (struct lockd_node *node = lockd_order_first(&device->hopeless); node != NULL;
         node = lockd_order_next(node)) {
        struct lockd_gang *gang = lockd_party_of(node, queued)->gang;

        if (gang->gives_way && now >= gang->retry_at) {
            gang->gives_way = false;
            lockd_gang_settle(gang);
        } else if (gang->gives_way) {
            device->stop_at = lockd_min(device->stop_at, gang->retry_at);
        }
    }
}

void lockd_gang_admit(struct lockd_party *party, bool backfilled, uint64_t now)
{
    struct lockd_device *device = party->device;

    party->cleared = device->cleared_at;
    party->measured = device->cleared_for == party &&
                      party->gang->held_count + 1 ==
                          party->gang->party_count; /* else it waits for others of its gang */
    if (device->cleared_for == party)
        device->cleared_for = NULL;
    lockd_turns_dequeue(party);
    party->held = true;
    party->backfilled = backfilled;
    lockd_list_append(&device->holders, &party->holder);
    device->holder_count++;
    device->generation++;
    party->gang->held_count++;
    lockd_books_party(party, now);
    if (party->gang->held_count == party->gang->party_count) {
        begin(party->gang, now);
    } else {
        keep_places(party->gang, now);
        lockd_gang_settle(party->gang);
    }
}

static void end(struct lockd_party *party, uint64_t now)
{
    struct lockd_device *device = party->device;
    const struct lockd_policy *policy = lockd_device_policy(device);

    lockd_books_ran(party, now);
    if (device->leases && party->gang->runs && policy->ended != NULL)
        policy->ended(party);
    party->held = party->begun = false;
    party->backfilled = false;
    party->started = 0;
    lockd_list_remove(&party->holder);
    device->holder_count--;
    device->generation++;
    party->gang->held_count--;
    device->stop_at = lockd_min(device->stop_at, now + GRACE);
    lockd_list_each (at, &party->members) {
        struct lockd_member *member = lockd_member_of(at, of_party);

        member->stopped = now;
        member->short_had = 0;
        lockd_plan_touch(member);
    }
}

void lockd_gang_stop(struct lockd_gang *gang, uint64_t now)
{
    const struct lockd_party *next = lockd_gang_next(gang);

    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        if (party->held && next != NULL && now >= party->until && lockd_gang_wants(gang))
            give_up(gang, now);
        if (party->held)
            end(party, now);
        else
            lockd_turns_dequeue(party);
    }
    gang->runs = false;
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        lockd_books_party(party, now);
        lockd_plan_settle(party);
    }
}
