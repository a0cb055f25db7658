/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: programs of one user that name the same group. Owns groups. As long as a group fits
 * on each of its devices as a whole it is one gang. A larger one could never run, so its
 * programs are *apart*: each is a gang by itself, until the whole has fitted again for a
 * while.
 *
 * Whatever may change that puts the group on the agenda; it is looked at before devices are
 * planned.
 */
#include "lockd/sched/group.h"

#include "lockd/sched/device.h"
#include "lockd/sched/capacity.h"
#include "lockd/sched/gang.h"
#include "lockd/sched/lease.h"

#include <stdlib.h>
#include <string.h>

#define TOGETHER_SPARE 16 /* a group that comes together leaves this part of the device */

#define group_of(at, link) lockd_entry(at, struct sched_group, link)

static bool is_group_of(const struct sched_group *group, const struct sched_client *client)
{
    if (group->kin != client->kin)
        return false;
    return group->kin != 0 ||
           (group->user == client->user && strcmp(group->name, client->group) == 0);
}

/* The group that the client names or was found to be in; made if there is none. NULL without
 * memory. */
static struct sched_group *enter_group(struct sched_client *client)
{
    struct sched *sched = client->sched;
    struct sched_group *group;

    lockd_each (struct sched_group, each, &sched->groups, link) {
        group = each;
        if (is_group_of(group, client))
            goto found;
    }
    group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    group->sched = sched;
    group->user = client->user;
    group->kin = client->kin;
    group->number = ++sched->group_numbers;
    group->fits_since = LOCKD_NEVER;
    memcpy(group->name, client->group, sizeof group->name);
    lockd_list_init(&group->clients);
    lockd_list_init(&group->marked);
    lockd_list_append(&sched->groups, &group->link);
found:
    client->in_group = group;
    lockd_list_append(&group->clients, &client->of_group);
    sched_agenda_mark(group);
    return group;
}

struct sched_party *sched_group_join(struct sched_client *client, struct sched_device *device)
{
    const bool enters = client->gang == NULL && client->in_group == NULL &&
                        (client->group[0] != '\0' || client->kin != 0);

    if (enters && enter_group(client) == NULL)
        return NULL;
    return sched_gang_join(client, device);
}

static void leave_group(struct sched_client *client)
{
    struct sched_group *group = client->in_group;

    if (group == NULL)
        return;
    client->in_group = NULL;
    lockd_list_remove(&client->of_group);
    sched_agenda_mark(group);
    if (!lockd_list_empty(&group->clients))
        return;
    lockd_list_remove(&group->marked);
    lockd_list_remove(&group->link);
    free(group);
}

void sched_group_client_gone(struct sched_client *client)
{
    sched_gang_client_gone(client);
    leave_group(client);
}

/* --- a client is found to be in a group while it runs --- */

/* Makes it a gang of its own. False without memory: it stays where it is. */
static bool leave_gang(struct sched_client *client, uint64_t now)
{
    struct sched_gang *gang = client->gang;

    sched_lease_end(gang, now);
    if (gang->client_count == 1) {
        if (gang->group != NULL)
            gang->group->gang = NULL;
        gang->group = NULL;
        return true;
    }
    sched_gang_move(client, NULL, now);
    return client->gang != gang;
}

static void enter_gang(struct sched_client *client, uint64_t now)
{
    struct sched_group *group = client->in_group;

    if (group->apart)
        return;
    if (group->gang == NULL) {
        group->gang = client->gang;
        client->gang->group = group;
        return;
    }
    sched_lease_end(client->gang, now);
    sched_lease_end(group->gang, now);
    sched_gang_move(client, group->gang, now);
}

void sched_group_kin(struct sched_client *client, uint64_t kin, uint64_t now)
{
    if (client->kin == kin || client->group[0] != '\0')
        return;
    if (client->gang != NULL && client->in_group != NULL && !leave_gang(client, now))
        return;
    leave_group(client);
    client->kin = kin;
    if (client->gang != NULL && kin != 0 && enter_group(client) != NULL)
        enter_gang(client, now);
}

/* --- is it too large? --- */

static void add_client(const struct sched_client *client)
{
    lockd_each (const struct sched_member, member, &client->members, of_client) {
        member->device->group.demand += member->report.demand;
        member->device->group.members += member->report.demand != 0;
    }
}

static void forget_client(const struct sched_client *client)
{
    lockd_each (struct sched_member, member, &client->members, of_client) {
        struct sched_device *device = member->device;

        device->group.demand = device->group.members = 0;
    }
}

/* The first of its devices that has no room for all of its programs; a program that needs too
 * much by itself is no reason to part the others. NULL: there is none. */
static const struct sched_device *find_too_small(const struct sched_group *group, bool spare)
{
    const struct sched_device *small = NULL;

    lockd_each (struct sched_client, client, &group->clients, of_group)
        add_client(client);
    lockd_each (const struct sched_device, device, &group->sched->devices, link) {
        const uint64_t most = sched_device_most(device);

        if (device->group.members > 1 && small == NULL && device->measure.total != 0 &&
            device->group.demand > most - (spare ? most / TOGETHER_SPARE : 0))
            small = device;
    }
    lockd_each (struct sched_client, client, &group->clients, of_group)
        forget_client(client);
    return small;
}

/* --- apart and together --- */

static void part_group(struct sched_group *group, const struct sched_device *device,
                       uint64_t now)
{
    bool first = true;

    group->apart = group->unsaid = true;
    group->sched->groups_unsaid = true;
    group->fits_since = LOCKD_NEVER;
    memcpy(group->too_small, device->identity.name, sizeof group->too_small);
    if (group->gang == NULL)
        return;
    sched_lease_end(group->gang, now);
    group->gang->group = NULL;
    group->gang = NULL;
    lockd_each (struct sched_client, client, &group->clients, of_group) {
        if (!first && client->gang != NULL)
            sched_gang_move(client, NULL, now); /* without memory it stays where it is */
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
            sched_gang_move(client, gang, now);
    }
    group->gang = gang;
    if (gang != NULL)
        gang->group = group;
}

static void decide_group(struct sched_group *group, uint64_t now)
{
    const struct sched_device *small = find_too_small(group, group->apart);

    if (!group->apart && small != NULL) {
        part_group(group, small, now);
    } else if (group->apart && small != NULL) {
        group->fits_since = LOCKD_NEVER;
    } else if (group->apart) {
        group->fits_since = sched_min(group->fits_since, now);
        if (now - group->fits_since >= REPEAT)
            join_group(group, now);
        else
            group->sched->groups_at =
                sched_min(group->sched->groups_at, group->fits_since + REPEAT);
    }
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

        lockd_list_remove(&group->marked);
        decide_group(group, now);
    }
}

bool sched_next_apart(struct sched *sched, struct sched_apart *apart)
{
    if (!sched->groups_unsaid)
        return false;
    lockd_each (struct sched_group, group, &sched->groups, link) {
        if (!group->unsaid)
            continue;
        group->unsaid = false;
        *apart = (struct sched_apart){
            .owner = lockd_entry(group->clients.next, struct sched_client, of_group)->owner,
            .group = group->name,
            .device = group->too_small};
        return true;
    }
    sched->groups_unsaid = false;
    return false;
}
