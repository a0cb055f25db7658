/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c: what people set, for the daemon and for one client; what is claimed for programs
 * that are about to come; and what the card says of itself. Each change takes effect with the
 * plan that follows it. Owns the claims.
 */
#include "lockd/sched/room.h"

static void set_class(struct sched_client *client, enum gs_wire_class class)
{
    if (client->last == 0)
        client->sched->background += (uint32_t)(class == GS_CLASS_BACKGROUND) -
                                     (uint32_t)(client->set.class == GS_CLASS_BACKGROUND);
    client->set.class = class;
}

void sched_describe(struct sched_client *client, const struct gs_wire_hello *hello,
                    uint32_t user)
{
    client->set.weight = hello->weight != 0 ? hello->weight : GS_WEIGHT_DEFAULT;
    client->set.priority = hello->priority;
    set_class(client,
              hello->class < GS_CLASS_COUNT ? (enum gs_wire_class)hello->class : GS_CLASS_AUTO);
    client->user = user;
    memcpy(client->group, hello->group, sizeof client->group);
    client->group[sizeof client->group - 1] = '\0';
}

void sched_client_set(struct sched_client *client, struct sched_client_settings set,
                      uint64_t now_ns)
{
    const struct sched_client_settings before = client->set;

    set.weight = (uint32_t)sched_clamp(set.weight, 1, GS_WEIGHT_MAX);
    set.priority = set.priority < -GS_PRIORITY_MAX  ? -GS_PRIORITY_MAX
                   : set.priority > GS_PRIORITY_MAX ? GS_PRIORITY_MAX
                                                    : set.priority;
    set_class(client, set.class);
    client->set = set;
    if (client->gang != NULL && set.weight != before.weight)
        sched_gang_reweigh(client->gang);
    /* a place in a queue follows from these; so does whether a turn may go on */
    if (client->gang != NULL && (set.priority != before.priority || set.class != before.class))
        sched_lease_requeue_gang(client->gang, now_ns);
    lockd_each (struct sched_member, member, &client->members, of_client)
        if (set.limit != before.limit)
            sched_agenda_touch(member);
    sched_plan(client->sched, now_ns);
}

void sched_quota(struct sched_client *client, const uint8_t *uuid, uint64_t bytes,
                 uint64_t now_ns)
{
    struct sched_member *member = sched_member_find(client, uuid);

    if (member == NULL) {
        client->quota_next = bytes;
    } else if (member->quota != bytes) {
        member->quota = bytes;
        sched_agenda_touch(member);
        sched_plan(client->sched, now_ns);
    }
}

void sched_evict(struct sched_client *client, uint64_t now_ns)
{
    sched_evict_begin(client, now_ns);
    sched_plan(client->sched, now_ns);
}

bool sched_claim(struct sched *sched, const void *key, const uint8_t *uuid, uint64_t bytes,
                 uint64_t now_ns)
{
    struct sched_device *device = sched_device_find(sched, uuid);
    struct sched_claim *claim = NULL;

    lockd_each (struct sched_claim, each, &sched->claims, link) {
        if (each->key == key && memcmp(each->uuid, uuid, sizeof each->uuid) == 0)
            claim = each;
    }
    if (claim == NULL && bytes != 0) {
        claim = calloc(1, sizeof *claim);
        if (claim == NULL)
            return false;
        claim->key = key;
        memcpy(claim->uuid, uuid, sizeof claim->uuid);
        lockd_list_append(&sched->claims, &claim->link);
    }
    if (claim != NULL) {
        claim->bytes = bytes;
        if (device != NULL)
            sched_agenda_plan(device);
    }
    if (claim != NULL && bytes == 0) {
        lockd_list_remove(&claim->link);
        free(claim);
    }
    sched_plan(sched, now_ns);
    return true;
}

void sched_away(struct sched_client *client, bool away, uint64_t now_ns)
{
    client->away = away;
    lockd_each (struct sched_member, member, &client->members, of_client) {
        sched_books_member(member, now_ns);
        sched_agenda_plan(member->device);
    }
}

uint64_t sched_device_total(const struct sched *sched, const uint8_t *uuid)
{
    const struct sched_device *device = sched_device_find(sched, uuid);

    return device != NULL ? device->measure.total : 0;
}

enum sched_claimed sched_claimed(const struct sched *sched, const uint8_t *uuid)
{
    const struct sched_device *device = sched_device_find(sched, uuid);

    if (device == NULL || device->books.sum.hold == 0)
        return SCHED_CLAIM_NOTHING;
    return device->books.sum.hold > device->space.capacity ? SCHED_CLAIM_PENDING
                                                           : SCHED_CLAIM_MET;
}

void sched_pause(struct sched_client *client, bool paused, uint64_t now_ns)
{
    struct sched_gang *gang = client->gang;

    if (!paused)
        sched_evict_cancel(client);
    if (client->paused != paused && gang != NULL) {
        lockd_each (struct sched_member, member, &client->members, of_client)
            sched_books_time(member, now_ns);
        gang->paused += paused ? 1 : UINT32_MAX;
        sched_each_of_gang (member, gang) {
            sched_books_member(member, now_ns);
            sched_agenda_touch(member);
        }
        sched_agenda_settle_gang(gang);
    }
    client->paused = paused;
    sched_plan(client->sched, now_ns);
}

void sched_host(struct sched *sched, uint64_t available, uint64_t now_ns)
{
    sched->host.available = available;
    sched->host.changed = true;
    sched_plan(sched, now_ns);
}

void sched_card(struct sched *sched, const struct sched_card *card, uint64_t now_ns)
{
    struct sched_device *device = sched_device_find(sched, card->uuid);

    if (device == NULL)
        return;
    sched_measure_card(device, card, now_ns);
    sched_agenda_plan(device);
    sched_plan(sched, now_ns);
}

struct sched_host_info sched_host_info(const struct sched *sched)
{
    return (struct sched_host_info){sched->host.total, sched->host.said};
}

static void retake_device(struct sched_device *device, const struct sched_settings *before,
                          uint64_t now)
{
    const bool anew = device->sched->settings.policy != before->policy;
    const struct sched_policy *policy = sched_policy_of(device);
    const double change = (double)sched_device_quantum(device) /
                          (double)sched_max(sched_device_quantum_by(device, before), 1);

    sched_agenda_plan(device);
    device->agenda.recount = true;
    device->space.fell_at = 0;
    lockd_each (struct sched_party, party, &device->parties, of_device) {
        if (change < 1 && policy->shorter != NULL)
            policy->shorter(party, change);
        sched_queue_renew(party, now);
        if (!device->turns.leases || !party->turn.held || !party->gang->runs)
            continue;
        /* the turn becomes longer or shorter as the quantum does; with another policy it begins anew */
        if (anew) {
            sched_lease_anew(party, now);
        } else if (party->turn.length != LOCKD_NEVER) {
            party->turn.length = (uint64_t)((double)party->turn.length * change);
            if (party->gang->complete != 0)
                party->turn.until = party->gang->complete + party->turn.length;
        }
    }
}

void sched_set(struct sched *sched, const struct sched_settings *settings, uint64_t now_ns)
{
    const struct sched_settings before = sched->settings;

    /* the time so far counts by the policy that was */
    lockd_each (struct sched_device, device, &sched->devices, link)
        sched_books_device_ran(device, now_ns);
    sched->settings = sched_settings_in_force(settings);
    sched->host.changed = true;
    lockd_each (struct sched_device, device, &sched->devices, link)
        retake_device(device, &before, now_ns);
    sched_plan(sched, now_ns);
}
