/* SPDX-License-Identifier: Apache-2.0
 *
 * gang.c: membership of gangs and groups. Owns groups, gangs and their parties: one party for each
 * device that the gang's clients use. A client without a group is a gang of its own. So is a
 * program on several devices: its gate opens only when it may run on all of them. Turns of gangs
 * are in lease.c.
 *
 * Programs of one user that name the same group are one gang, as long as they fit on each of its
 * devices together. A larger group could never run, so its programs are *apart*: each is a gang by
 * itself, until the whole has fitted again for a while. Whatever may change that puts the group on
 * the agenda; it is looked at before devices are planned.
 */
#include "lockd/sched/room.h"

static void set_weight(struct sched_gang *gang, uint32_t weight)
{
    lockd_each (struct sched_party, party, &gang->parties, of_gang)
        party->device->books.weights += weight - (uint64_t)gang->weight;
    gang->weight = weight;
}

void sched_gang_reweigh(struct sched_gang *gang)
{
    uint64_t weight = 1;

    sched_each_of_gang (member, gang)
        weight = sched_max(weight, member->client->set.weight);
    set_weight(gang, (uint32_t)weight);
    lockd_each (struct sched_party, party, &gang->parties, of_gang)
        sched_wanting_note(party);
}

/* --- its clients and parties --- */

static struct sched_gang *gang_new(struct sched *sched)
{
    struct sched_gang *gang = calloc(1, sizeof *gang);

    if (gang != NULL)
        gang->sched = sched;
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

/* The gang's party on that device; made if there is none. NULL without memory. */
static struct sched_party *party_of(struct sched_gang *gang, struct sched_device *device)
{
    struct lockd_list *at = &gang->parties;
    struct sched_party *party;

    lockd_each (struct sched_party, each, &gang->parties, of_gang) {
        if (each->device == device)
            return each;
        if (at == &gang->parties &&
            memcmp(each->device->uuid, device->uuid, sizeof device->uuid) > 0)
            at = &each->of_gang;
    }
    party = calloc(1, sizeof *party);
    if (party == NULL)
        return NULL;
    party->gang = gang;
    party->device = device;
    sched_share_join(party);
    device->books.weights += gang->weight;
    lockd_list_append(at, &party->of_gang); /* before the first with a higher UUID */
    lockd_list_append(&device->parties, &party->of_device);
    gang->party_count++;
    device->party_count++;
    return party;
}

/* It has no members, so it is in no sums any more. */
static void party_free(struct sched_party *party)
{
    struct sched_device *device = party->device;

    if (party->gang->closing.by == device)
        sched_together_forget(party->gang);
    sched_queue_drop(party);
    sched_wanting_note(party);
    if (device->revoke.head == party)
        device->revoke.head = NULL;
    if (device->waiting.back == party)
        device->waiting.back = NULL;
    lockd_list_remove(&party->settle);
    lockd_list_remove(&party->of_gang);
    lockd_list_remove(&party->of_device);
    party->gang->party_count--;
    device->party_count--;
    device->books.weights -= party->gang->weight;
    device->turns.elsewhere -= party->wait.elsewhere;
    device->turns.generation++;
    free(party);
}

static void party_leave(struct sched_member *member, uint64_t now)
{
    struct sched_party *party = member->party;

    party->gang->wanting -= (member->report.flags & GS_STATE_WANT) != 0;
    party->gang->evicting -= member->eviction.wanted;
    lockd_list_remove(&member->of_party);
    if (--party->member_count == 0 && party->turn.held) {
        party->turn.held = false;
        lockd_list_remove(&party->turn.holder);
        party->device->turns.holder_count--;
        party->gang->held_count--;
    }
    sched_books_party(party, now);
    if (party->member_count == 0)
        party_free(party);
}

void sched_gang_leave(struct sched_member *member, uint64_t now)
{
    struct sched_gang *gang = member->party->gang;

    party_leave(member, now);
    sched_gang_reweigh(gang);
    if (gang->party_count == 0)
        gang->runs = false;
    else if (gang->held_count == gang->party_count && !gang->runs)
        sched_lease_begin(gang, now);
    sched_lease_requeue_gang(gang, now);
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

static void move_member(struct sched_member *member, struct sched_gang *to, uint64_t now)
{
    struct sched_party *from = member->party, *party = party_of(to, member->device);

    sched_books_ran(from, now);
    sched_books_ran(party, now);
    party->time.counted_at = now;
    /* credit and debt go with it: otherwise a program that is parted and brought together again and
     * again would begin with a turn of credit each time */
    sched_share_merge(party, from);
    if (party->member_count == 0) {
        party->turn.count = from->turn.count;
        party->time.last_ran = from->time.last_ran;
    }
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

/* The client leaves its gang for that gang (NULL: a gang of its own), with its members. Neither gang
 * may have a place or wait for a place. Without memory nothing happens. */
static void move_client(struct sched_client *client, struct sched_gang *to, uint64_t now)
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

/* --- groups --- */

#define TOGETHER_SPARE 16 /* a group that comes together leaves this part of the device */

#define group_of(at, link) lockd_entry(at, struct sched_group, link)

/* The group that the client names or was found to be in; made if there is none. NULL without
 * memory. */
static struct sched_group *enter_group(struct sched_client *client)
{
    struct sched *sched = client->sched;
    struct sched_group *group = NULL;

    lockd_each (struct sched_group, each, &sched->groups, link) {
        if (each->kin == client->kin &&
            (each->kin != 0 ||
             (each->user == client->user && strcmp(each->name, client->group) == 0)))
            group = each;
    }
    if (group == NULL) {
        group = calloc(1, sizeof *group);
        if (group == NULL)
            return NULL;
        group->sched = sched;
        group->user = client->user;
        group->kin = client->kin;
        group->number = ++sched->group_numbers;
        group->fits_since = LOCKD_NEVER;
        memcpy(group->name, client->group, sizeof group->name);
        lockd_list_append(&sched->groups, &group->link);
    }
    client->in_group = group;
    lockd_list_append(&group->clients, &client->of_group);
    group->client_count++;
    sched_agenda_mark(group);
    return group;
}

struct sched_party *sched_gang_join(struct sched_client *client, struct sched_device *device)
{
    struct sched_gang *gang = client->gang;

    if (gang == NULL) {
        struct sched_group *group = client->in_group;

        if (group == NULL && (client->group[0] != '\0' || client->kin != 0)) {
            group = enter_group(client);
            if (group == NULL)
                return NULL;
        }
        if (group != NULL && group->apart)
            group = NULL;
        gang = group != NULL && group->gang != NULL ? group->gang : gang_new(client->sched);
        if (gang == NULL)
            return NULL;
        if (group != NULL) {
            gang->group = group;
            group->gang = gang;
        }
        gang_enter(gang, client);
    }
    if (client->set.weight > gang->weight)
        set_weight(gang, client->set.weight);
    return party_of(gang, device);
}

static void leave_group(struct sched_client *client)
{
    struct sched_group *group = client->in_group;

    if (group == NULL)
        return;
    client->in_group = NULL;
    lockd_list_remove(&client->of_group);
    sched_agenda_mark(group);
    if (--group->client_count != 0)
        return;
    lockd_list_remove(&group->marked);
    lockd_list_remove(&group->link);
    free(group);
}

void sched_gang_client_gone(struct sched_client *client)
{
    if (client->gang != NULL && client->paused)
        sched_agenda_settle_gang(client->gang);
    if (client->gang != NULL)
        gang_exit(client);
    leave_group(client);
}

/* --- a client is found to be in a group while it runs --- */

void sched_group_kin(struct sched_client *client, uint64_t kin, uint64_t now)
{
    struct sched_gang *gang = client->gang;
    struct sched_group *group;

    if (client->kin == kin || client->group[0] != '\0')
        return;
    if (gang != NULL && client->in_group != NULL) { /* it becomes a gang of its own */
        sched_lease_end(gang, now);
        if (gang->client_count > 1) {
            move_client(client, NULL, now);
            if (client->gang == gang) /* there was no memory */
                return;
        } else if (gang->group != NULL) {
            gang->group->gang = NULL;
            gang->group = NULL;
        }
    }
    leave_group(client);
    client->kin = kin;
    group = client->gang != NULL && kin != 0 ? enter_group(client) : NULL;
    if (group == NULL || group->apart)
        return;
    if (group->gang == NULL) {
        group->gang = client->gang;
        client->gang->group = group;
        return;
    }
    sched_lease_end(client->gang, now);
    sched_lease_end(group->gang, now);
    move_client(client, group->gang, now);
}

/* --- is it too large? --- */

/* The first of its devices that has no room for all of its programs; a program that needs too
 * much by itself is no reason to part the others. NULL: there is none. */
static const struct sched_device *find_too_small(const struct sched_group *group, bool spare)
{
    lockd_each (const struct sched_device, device, &group->sched->devices, link) {
        const uint64_t most = sched_device_most(device);
        uint64_t demand = 0, members = 0;

        lockd_each (const struct sched_member, member, &device->members, of_device) {
            if (member->client->in_group == group && member->report.demand != 0) {
                demand += member->report.demand;
                members++;
            }
        }
        if (members > 1 && device->measure.total != 0 &&
            demand > most - (spare ? most / TOGETHER_SPARE : 0))
            return device;
    }
    return NULL;
}

/* --- apart and together --- */

static void part_group(struct sched_group *group, const struct sched_device *device,
                       uint64_t now)
{
    bool first = true;

    group->apart = group->unsaid = group->sched->remarkable = true;
    group->fits_since = LOCKD_NEVER;
    memcpy(group->too_small, device->name, sizeof group->too_small);
    if (group->gang == NULL)
        return;
    sched_lease_end(group->gang, now);
    group->gang->group = NULL;
    group->gang = NULL;
    lockd_each (struct sched_client, client, &group->clients, of_group) {
        if (!first && client->gang != NULL)
            move_client(client, NULL, now); /* without memory it stays where it is */
        first = first && client->gang == NULL;
    }
}

static void join_group(struct sched_group *group, uint64_t now)
{
    struct sched_gang *gang = NULL;

    group->apart = group->unsaid = false;
    lockd_each (struct sched_client, client, &group->clients, of_group) {
        if (client->gang == NULL)
            continue;
        sched_lease_end(client->gang, now);
        if (gang == NULL)
            gang = client->gang;
        else if (client->gang != gang)
            move_client(client, gang, now);
    }
    group->gang = gang;
    if (gang != NULL)
        gang->group = group;
}

void sched_group_plan(struct sched *sched, uint64_t now)
{
    if (now >= sched->groups_at) {
        sched->groups_at = LOCKD_NEVER;
        lockd_each (struct sched_group, group, &sched->groups, link) {
            if (group->fits_since != LOCKD_NEVER)
                sched_agenda_mark(group);
        }
    }
    while (!lockd_list_empty(&sched->groups_marked)) {
        struct sched_group *group = group_of(sched->groups_marked.next, marked);
        const struct sched_device *small = find_too_small(group, group->apart);

        lockd_list_remove(&group->marked);
        if (!group->apart && small != NULL) {
            part_group(group, small, now);
        } else if (group->apart && small != NULL) {
            group->fits_since = LOCKD_NEVER;
        } else if (group->apart) {
            sched_sooner(&group->fits_since, now);
            if (now - group->fits_since >= REPEAT)
                join_group(group, now);
            else
                sched_sooner(&sched->groups_at, group->fits_since + REPEAT);
        }
    }
}
