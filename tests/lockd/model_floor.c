/* SPDX-License-Identifier: Apache-2.0
 *
 * model_floor.c: the floor, measured from what programs really do: over any time the others keep
 * `floor` of their fair share of it, but for SPARE_MOST that was saved up before.
 *
 * The account here is one of the model's own. It falls by `keeps` while a program that does not
 * go first wants the device, none such runs, and one that goes first has it or comes to it; and
 * rises by the rest of the time. If an interactive program may end a turn only while it is not
 * below 0, then, over a time T in which they were held off for H, and of which the last stretch is L,
 *
 *     (1 - keeps) (T - H) - keeps H >= -SPARE_MOST - keeps L,  so  H <= (1 - keeps) T + SPARE_MOST + keeps L
 *
 * TOLERANCE: what is sent and what is so are messages apart, at each switch.
 */
#include "lockd/sched/shares.h"
#include "tests/lockd/model_state.h"

#define TOLERANCE 0.9
#define SLACK     (1000 * NS_PER_MS)

/* A party that goes first, and has not run for too long since. The account stands as of the last plan,
 * which knew how long it would last. */
static bool is_ahead(const struct sched_party *party, uint64_t now)
{
    return party->share.first && (!party->turn.held || (sched_share_goes_on(party, now) &&
                                                        now < party->device->share.off_until));
}

static bool is_batch(const struct sched_party *party, uint64_t now)
{
    return !is_ahead(party, now) && !sched_party_is_background(party);
}

static bool really_runs(const struct sched_party *party, uint32_t index)
{
    lockd_each (const struct sched_member, member, &party->members, of_party) {
        if (((struct model_program *)member->client->owner)->side[index].running)
            return true;
    }
    return false;
}

/* Does an interactive program keep the others from running, at this moment? */
static bool is_held_off(const struct sched_device *device, uint32_t index, uint64_t now)
{
    const struct sched_party *comes = device->cleared.party;
    bool wanted = false, runs = false, first = comes != NULL && comes->share.first;

    lockd_each (const struct sched_party, party, &device->parties, of_device) {
        first = first || (party->turn.held && is_ahead(party, now));
        if (!is_batch(party, now) || party->turn.backfilled)
            continue;
        wanted = wanted || party->share.batch_queued;
        runs = runs || (party->turn.held && really_runs(party, index));
    }
    return device->turns.leases && first && wanted && !runs;
}

/* Who has a turn there, and is not interactive? */
static void note_turns(struct model *model, const struct sched_device *device, uint32_t index)
{
    lockd_each (const struct sched_member, member, &device->members, of_device) {
        const struct sched_party *party = member->party;
        const bool has = party->turn.held && is_batch(party, model->now);

        ((struct model_program *)member->client->owner)->side[index].turn_of =
            has ? party : NULL;
    }
}

/* ... and has it been ended before its time since then? The place of one that waits for memory that
 * it cannot have is anybody's. */
static bool was_cut(const struct sched_device *device, uint32_t index)
{
    lockd_each (const struct sched_member, member, &device->members, of_device) {
        const struct sched_party *party = member->party;

        if (((struct model_program *)member->client->owner)->side[index].turn_of == party &&
            !party->turn.held && party->turn.interrupted && !sched_party_hopeless(party))
            return true;
    }
    return false;
}

/* An interactive program ends the turn of one that is not: is it paid for? */
static void check_ended(struct model *model, const struct sched_device *device, uint32_t index)
{
    const bool cut = was_cut(device, index);

    lockd_each (const struct sched_member, member, &device->members, of_device) {
        const struct sched_party *party = member->party;
        struct model_side *side = &((struct model_program *)member->client->owner)->side[index];
        const bool ends = party->turn.interrupts && party->share.first && !party->wait.first;

        /* one that joins a gang has not ended the turn that its gang ended before */
        if (cut && ends && !side->ends && side->ends_of == party &&
            model->floor[index].balance < -(double)SLACK)
            model_fail(model, "floor: ns owed to others, and the bound", index,
                       (uint64_t)-model->floor[index].balance, SLACK);
        side->ends = ends;
        side->ends_of = party;
    }
}

/* An interactive program that holds them off may have run for too long before anything happens. */
static uint64_t held_off_until(const struct sched_device *device, uint32_t index, uint64_t from,
                               uint64_t to)
{
    if (is_held_off(device, index, to))
        return to;
    while (to - from > NS_PER_MS) {
        const uint64_t middle = from + (to - from) / 2;

        if (is_held_off(device, index, middle))
            from = middle;
        else
            to = middle;
    }
    return from;
}

/* Up to now, if nothing has happened since the last check. */
static void count_floor(struct model *model, const struct sched_device *device, uint32_t index)
{
    struct model_floor *floor = &model->floor[index];
    const double keeps = TOLERANCE * model_keeps(device);
    const uint64_t until =
        floor->off ? held_off_until(device, index, floor->at, model->now) : floor->at;

    floor->balance -= (double)(until - floor->at) * keeps;
    if (floor->balance < -(double)SPARE_MOST)
        floor->balance = -(double)SPARE_MOST;
    floor->balance += (double)(model->now - until) * (1 - keeps);
    if (floor->balance > (double)SPARE_MOST)
        floor->balance = (double)SPARE_MOST;
    floor->at = model->now;
}

void model_count_floor(struct model *model)
{
    lockd_each (const struct sched_device, device, &model->sched->devices, link) {
        count_floor(model, device, (uint32_t)device->uuid[0] - 1);
        note_turns(model, device, (uint32_t)device->uuid[0] - 1);
    }
}

void model_check_floor(struct model *model, const struct sched_device *device, uint32_t index)
{
    struct model_floor *floor = &model->floor[index];

    count_floor(model, device, index); /* there is time to count only if the device is new */
    floor->off = is_held_off(device, index, model->now);
    if (model->options.policy == GS_POLICY_FAIR && model->now >= model->unsettled_until)
        check_ended(model, device, index);
}

double model_keeps(const struct sched_device *device)
{
    return (double)FLOOR_PPM / (double)PPM * (1 - device->share.due);
}
