/* SPDX-License-Identifier: Apache-2.0
 *
 * gang.c: membership of gangs. Owns gangs and their parties: one party for each device that
 * the gang's clients use. A client without a group is a gang of its own. So is a program on
 * several devices: its gate opens only when it may run on all of them. Turns of gangs are in
 * lease.c.
 */
#include "lockd/sched/gang.h"

#include "lockd/sched/device.h"
#include "lockd/sched/books.h"
#include "lockd/sched/policy.h"
#include "lockd/sched/lease.h"
#include "lockd/sched/queue.h"
#include "lockd/sched/together.h"

#include <stdlib.h>
#include <string.h>

/* The largest weight of its members, or the first that is enough. */
static uint32_t find_weight(const struct sched_gang *gang, uint32_t enough)
{
    uint32_t weight = 1;

    sched_each_of_gang (member, gang) {
        const struct sched_client *client = member->client;

        weight = client->weight > weight ? client->weight : weight;
        if (weight >= enough)
            return weight;
    }
    return weight;
}

static void set_weight(struct sched_gang *gang, uint32_t weight)
{
    gang->weight = weight;
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        party->device->books.weights += weight - (uint64_t)party->weight;
        party->weight = weight;
    }
}

/* Its weight or its class may have changed. */
static void note_shares(struct sched_gang *gang)
{
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        sched_wanting_note(party);
    }
}

void sched_gang_reweigh(struct sched_gang *gang)
{
    set_weight(gang, find_weight(gang, GS_WEIGHT_MAX));
    note_shares(gang);
}

/* --- its clients and parties --- */

static struct sched_gang *gang_new(struct sched *sched)
{
    struct sched_gang *gang = calloc(1, sizeof *gang);

    if (gang == NULL)
        return NULL;
    gang->sched = sched;
    lockd_list_init(&gang->parties);
    return gang;
}

static void gang_enter(struct sched_gang *gang, struct sched_client *client)
{
    client->gang = gang;
    gang->client_count++;
    gang->paused += client->paused;
}

/* Frees the gang after its last client. Returns whether the gang is still there. */
static bool gang_exit(struct sched_client *client)
{
    struct sched_gang *gang = client->gang;

    client->gang = NULL;
    gang->paused -= client->paused;
    if (--gang->client_count != 0)
        return true;
    if (gang->group != NULL)
        gang->group->gang = NULL;
    sched_lease_give_way(gang, false);
    sched_together_formed(gang);
    free(gang);
    return false;
}

static struct sched_gang *gang_of(struct sched_client *client)
{
    struct sched_group *group = client->in_group;
    struct sched_gang *gang = NULL;

    if (client->gang != NULL)
        return client->gang;
    if (group != NULL && !group->apart)
        gang = group->gang;
    if (gang == NULL)
        gang = gang_new(client->sched);
    if (gang == NULL)
        return NULL;
    if (group != NULL && !group->apart) {
        gang->group = group;
        group->gang = gang;
    }
    gang_enter(gang, client);
    return gang;
}

void sched_gang_client_gone(struct sched_client *client)
{
    if (client->gang != NULL) {
        if (client->paused)
            sched_agenda_settle_gang(client->gang);
        gang_exit(client);
    }
}

static void insert_sorted(struct sched_gang *gang, struct sched_party *party)
{
    struct lockd_list *at = gang->parties.next;

    while (at != &gang->parties &&
           memcmp(sched_party_of(at, of_gang)->device->identity.uuid,
                  party->device->identity.uuid, sizeof party->device->identity.uuid) < 0)
        at = at->next;
    lockd_list_append(at, &party->of_gang); /* before it */
}

static struct sched_party *party_new(struct sched_gang *gang, struct sched_device *device)
{
    struct sched_party *party = calloc(1, sizeof *party);

    if (party == NULL)
        return NULL;
    party->gang = gang;
    party->device = device;
    lockd_list_init(&party->members);
    lockd_list_init(&party->settle);
    lockd_list_init(&party->turn.holder);
    sched_policy_of(device)->joined(party);
    party->weight = gang->weight;
    device->books.weights += party->weight;
    insert_sorted(gang, party);
    lockd_list_append(&device->parties, &party->of_device);
    gang->party_count++;
    device->party_count++;
    return party;
}

static struct sched_party *party_of(struct sched_gang *gang, struct sched_device *device)
{
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (party->device == device)
            return party;
    }
    return party_new(gang, device);
}

struct sched_party *sched_gang_join(struct sched_client *client, struct sched_device *device)
{
    struct sched_gang *gang = gang_of(client);

    if (gang == NULL)
        return NULL;
    if (client->weight > gang->weight)
        set_weight(gang, client->weight);
    return party_of(gang, device);
}

static void party_free(struct sched_party *party)
{
    struct sched_device *device = party->device;

    if (party->gang->closing.by == device)
        sched_together_forget(party->gang);
    sched_queue_drop(party);
    if (party->turn.held) {
        lockd_list_remove(&party->turn.holder);
        device->turns.holder_count--;
        party->gang->held_count--;
    }
    sched_wanting_note(party);
    if (device->revoke.head == party)
        device->revoke.head = NULL;
    if (device->cleared.party == party)
        device->cleared.party = NULL;
    if (device->waiting.back == party)
        device->waiting.back = NULL;
    lockd_list_remove(&party->settle);
    lockd_list_remove(&party->of_gang);
    lockd_list_remove(&party->of_device);
    party->gang->party_count--;
    device->party_count--;
    device->books.need_held -= party->books.need_held;
    device->books.need_busy -= party->books.need_busy;
    device->books.lost -= party->books.lost;
    device->books.stuck_parties -= party->books.counted_stuck;
    device->books.stopping_parties -= party->books.counted_stopping;
    device->books.weights -= party->weight;
    device->turns.elsewhere -= party->wait.elsewhere;
    party->gang->computing -= party->books.counted_computing;
    party->gang->idling -= party->books.counted_idling;
    device->turns.generation++;
    free(party);
}

static void party_leave(struct sched_member *member, uint64_t now)
{
    struct sched_party *party = member->party;

    party->gang->wanting -= (member->report.flags & GS_STATE_WANT) != 0;
    party->gang->evicting -= member->eviction.wanted;
    lockd_list_remove(&member->of_party);
    party->member_count--;
    sched_books_party(party, now);
    if (party->member_count == 0)
        party_free(party);
}

void sched_gang_leave(struct sched_member *member, uint64_t now)
{
    struct sched_gang *gang = member->party->gang;

    party_leave(member, now);
    if (gang->party_count != 0 && member->client->weight >= gang->weight &&
        find_weight(gang, gang->weight) != gang->weight)
        sched_gang_reweigh(gang);
    if (gang->party_count == 0) {
        gang->runs = false;
        gang->weight = 0;
    }
    if (gang->party_count != 0 && gang->held_count == gang->party_count && !gang->runs)
        sched_lease_begin(gang, now);
    note_shares(gang);
    sched_lease_requeue_gang(gang, now);
    sched_agenda_settle_gang(gang);
}

/* --- a client moves to another gang --- */

/* Its parties there. Without memory, none is left behind. */
static bool make_parties(const struct sched_client *client, struct sched_gang *to)
{
    bool made = true;

    lockd_each (struct sched_member, member, &client->members, of_client)
        made = made && party_of(to, member->device) != NULL;
    if (made)
        return true;
    lockd_each (struct sched_party, party, &to->parties, of_gang) {
        if (party->member_count == 0)
            party_free(party);
    }
    return false;
}

/* Credit and debt go with it: otherwise a program that is parted and brought together again and
 * again would begin with a turn of credit each time. */
static void copy_history(struct sched_party *to, const struct sched_party *from, uint64_t now)
{
    to->time.counted_at = now;
    sched_policy_of(to->device)->merged(to, from);
    if (to->member_count != 0)
        return;
    to->turn.count = from->turn.count;
    to->time.last_ran = from->time.last_ran;
}

static void move_member(struct sched_member *member, struct sched_gang *to, uint64_t now)
{
    struct sched_party *from = member->party, *party = party_of(to, member->device);

    sched_books_ran(from, now);
    sched_books_ran(party, now);
    copy_history(party, from, now);
    from->books.demand -= member->books.share.demand;
    party_leave(member, now);
    member->party = party;
    member->beyond = false; /* that was for a turn of its old party */
    lockd_list_append(&party->members, &member->of_party);
    party->member_count++;
    party->books.demand += member->books.share.demand;
    to->wanting += (member->report.flags & GS_STATE_WANT) != 0;
    to->evicting += member->eviction.wanted;
    sched_books_party(party, now);
    sched_agenda_touch(member);
}

void sched_gang_move(struct sched_client *client, struct sched_gang *to, uint64_t now)
{
    struct sched_gang *from = client->gang;
    const bool made = to == NULL;
    bool left;

    if (made)
        to = gang_new(client->sched);
    if (to == NULL)
        return;
    if (!make_parties(client, to)) {
        if (made)
            free(to);
        return;
    }
    sched_lease_give_way(from, false);
    sched_lease_give_way(to, false);
    to->out = made ? from->out : to->out && from->out;
    lockd_each (struct sched_member, member, &client->members, of_client)
        move_member(member, to, now);
    left = gang_exit(client);
    gang_enter(to, client);
    sched_gang_reweigh(to);
    if (left)
        sched_gang_reweigh(from);
    sched_together_came(to, now);
    sched_agenda_settle_gang(to);
}
