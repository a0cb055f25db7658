/* SPDX-License-Identifier: Apache-2.0
 *
 * model_check.c: what must hold after every event, whatever the programs do.
 *
 * - sum: what all may hold on a device never exceeds its capacity. While it does, because the
 *   capacity fell or programs came back to a new daemon, it must not rise.
 * - bound: a program never has more on the device than the scheduler believes possible.
 * - run: a program that runs has all its memory there, but for one that cannot stop.
 * - starving: a program that wants to run and fits does so in bounded time; soon, where all
 * fit.
 * - forgotten: everybody is in the queue, on the holders' list, or has nothing to do.
 * - in circles: no turn begins again and again in one event, nor more often in a second than
 * there is reason for.
 * - awake: no tick leaves something that is due already, and few are due in a second: else a
 * daemon would tick for ever.
 * - floor: programs that go first leave the others theirs (model_floor.c).
 * - idle: no device is that a program wants which needs no other one.
 */
#include "lockd/sched/shares.h"
#include "tests/lockd/model_state.h"

#include <stdio.h>
#include <string.h>

#define TICKS_IN_A_SECOND  500 /* one that looks again after LOOK_AGAIN, for ever, makes more */
#define TURNS_IN_ONE_EVENT 3   /* of one gang; turns.c goes round eight times at least */

void model_fail(struct model *model, const char *what, uint64_t device, uint64_t a, uint64_t b)
{
    if (model->failure[0] == '\0')
        snprintf(model->failure, sizeof model->failure,
                 "%s: seed %llu, event %llu, %.6f s, device %llu: %llu against %llu", what,
                 (unsigned long long)model->options.seed,
                 (unsigned long long)model->figures.events, (double)model->now / 1e9,
                 (unsigned long long)device, (unsigned long long)a, (unsigned long long)b);
}

uint64_t model_resident(const struct model *model, uint32_t device)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < model->options.clients; i++)
        sum += model->programs[i].side[device].resident;
    return sum;
}

void model_check_deadline(struct model *model, uint64_t deadline)
{
    if (deadline <= model->now)
        model_fail(model, "awake: when the next tick is due, and now", 0, deadline, model->now);
}

void model_check_target(struct model *model, const struct model_side *side,
                        const struct gs_wire_target *target)
{
    const uint32_t known =
        GS_TARGET_RUN | GS_TARGET_WAITERS | GS_TARGET_SOLE | GS_TARGET_PAUSED;

    if (target->seq != side->seq + 1)
        model_fail(model, "number of a target", target->uuid[0], target->seq, side->seq + 1);
    if ((target->flags & ~known) != 0)
        model_fail(model, "flags of a target", target->uuid[0], target->flags, known);
    if ((target->flags & GS_TARGET_WAITERS) != 0 &&
        (target->idle_ns < IDLE_MIN || target->idle_ns > IDLE_MAX))
        model_fail(model, "idle time of a target", target->uuid[0], target->idle_ns, IDLE_MAX);
}

/* A program allocates by its first target: it must not have to wait for another word. */
void model_check_sent(struct model *model, const struct sched_client *client,
                      const struct gs_wire_target *target)
{
    const struct sched_member *member = sched_member_find(client, target->uuid);

    if (target->seq == member->sent.first_seq + 1 &&
        target->capacity != sched_device_most(member->device))
        model_fail(model, "capacity in a first target", target->uuid[0], target->capacity,
                   sched_device_most(member->device));
}

/* The longest turn under way on a device: a quantum, or more where it makes up for a short one.
 */
static uint64_t longest_turn(const struct sched_device *device)
{
    uint64_t longest = sched_device_quantum(device);

    lockd_each (const struct sched_party, party, &device->turns.holders, turn.holder) {
        if (party->turn.length != LOCKD_NEVER)
            longest = sched_max(longest, party->turn.length);
    }
    return longest;
}

/* Longest that it takes to move all out that a device holds, and as much in. */
static uint64_t longest_switch(const struct model *model)
{
    const uint64_t bytes = 2 * model->options.total;

    return bytes * 1000 / (model->options.bandwidth / 1000000) +
           bytes / MODEL_CHUNK * 6 * NS_PER_MS + 200 * NS_PER_MS;
}

/* Longest that the queue may take to come round: everybody else's turn and switch, and one's
 * own switch. On several devices a program waits for its places one after the other, and each
 * of those before it at the first may keep its place there while it waits for the second.
 * turns: the longest ones seen while it waited, on all devices together. */
static uint64_t wait_bound(const struct model *model, uint64_t turns)
{
    const uint64_t devices = model->options.devices;
    uint64_t bound =
        (model->options.clients + 1ull) * devices * (longest_switch(model) + IDLE_MAX);

    if (model->options.mixed)
        bound += (model->options.clients + 1ull) * turns;
    else
        bound = devices * bound + (model->options.clients + 1ull) * devices * turns;
    if (model->options.stuck) /* one of them after the other */
        bound += (uint64_t)model->options.clients * (30000 * NS_PER_MS + GRACE);
    if (model->options.hidden != 0)
        bound += (uint64_t)model->options.clients * 6 * GRACE;
    return bound;
}

/* Its gang could be on all its devices now, and nothing keeps it off for good. */
static bool can_run(const struct sched_gang *gang)
{
    if (gang->paused != 0)
        return false;
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        if (party->books.demand > party->device->space.capacity)
            return false;
    }
    return true;
}

/* With these policies others may go before it for as long as they have work; before a background
 * program they do with any. */
static bool may_starve(const struct model *model, const struct sched_gang *gang)
{
    if (model->options.policy == GS_POLICY_FIFO ||
        sched_gang_class(gang) == GS_CLASS_BACKGROUND)
        return true;
    if (model->options.policy != GS_POLICY_PRIORITY)
        return false;
    for (uint32_t i = 0; i < model->options.clients; i++) {
        const struct sched_client *other = model->programs[i].client;

        if (other != NULL && other->gang != NULL && other->gang->wanting != 0 &&
            sched_gang_priority(other->gang) > sched_gang_priority(gang))
            return true;
    }
    return false;
}

/* With fair, so many rounds go by before its own: it had more than its share. Four at most, and
 * the one that it is in. */
static uint64_t rounds_to_sit_out(const struct sched_gang *gang)
{
    uint64_t most = 0;

    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        if (party->wait.queued.of != NULL)
            most = sched_max(most, sched_less(party->fair.round, party->device->fair.round));
    }
    return sched_min(most, 5);
}

/* Of the devices where it has to wait; 0: all that want them are interactive, and nobody is held
 * off. */
static double least_kept(const struct sched_gang *gang)
{
    double least = 0;

    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        const double keeps = model_keeps(party->device);

        if (keeps > 0 && (least == 0 || keeps < least))
            least = keeps;
    }
    return least;
}

static void check_wait(struct model *model, const struct sched_member *member, uint32_t index)
{
    struct model_program *program = member->client->owner;
    const struct sched_gang *gang = member->party->gang;
    struct model_side *side = &program->side[index];
    uint64_t wait, bound, turns = 0;

    if (!side->want || (side->running && side->resident == side->demand) || program->paused ||
        !can_run(gang) || may_starve(model, gang)) {
        side->wait.since = side->wait.turns_most = side->wait.rounds_most = 0;
        side->wait.keeps_least = 0;
        return;
    }
    if (side->wait.since == 0)
        side->wait.since = model->now;
    for (uint32_t i = 0; i < model->options.devices; i++)
        turns += model->turn[i];
    side->wait.turns_most = sched_max(side->wait.turns_most, turns);
    side->wait.rounds_most = sched_max(side->wait.rounds_most, rounds_to_sit_out(gang));
    bound = wait_bound(model, side->wait.turns_most) * (1 + side->wait.rounds_most);
    /* A gang waits for its places one after the other. On a device with `keeps`, in a time T,
     * interactive ones keep it from running for (1 - keeps) T + SPARE_MOST + keeps L at most
     * (model_floor.c), and the others, in the rest of all times, for the bound so far. */
    if (model->options.policy == GS_POLICY_FAIR) {
        const double keeps = least_kept(gang), places = gang->party_count;

        if (keeps > 0 && (side->wait.keeps_least == 0 || keeps < side->wait.keeps_least))
            side->wait.keeps_least = keeps;
        bound =
            (uint64_t)(((double)bound + places * (double)SPARE_MOST) /
                           (side->wait.keeps_least == 0 ? 1 : side->wait.keeps_least) +
                       places * (double)(side->wait.turns_most + 2 * longest_switch(model)));
    }
    wait = model->now - sched_max(side->wait.since, sched_min(model->disturbed, model->now));
    model->figures.wait_worst_ns = sched_max(model->figures.wait_worst_ns, wait);
    model->figures.wait_part =
        sched_max(model->figures.wait_part, wait * 1000 / sched_max(bound, 1));
    if (wait > bound)
        model_fail(model, "starving: ns waited, and the bound", index, wait, bound);
}

static bool is_open(const struct sched_gang *gang)
{
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        if (party->device->turns.leases)
            return false;
    }
    return true;
}

/* Where all fit nobody waits for others, but for what they must let go; whatever the policy. */
static void check_open(struct model *model, const struct sched_member *member, uint32_t index)
{
    const struct model_program *program = member->client->owner;
    struct model_side *side = &((struct model_program *)member->client->owner)->side[index];
    const uint64_t bound = 2 * longest_switch(model) + 1000 * NS_PER_MS;

    if (!side->want || (side->running && side->resident == side->demand) || program->paused ||
        !can_run(member->party->gang) || !is_open(member->party->gang) ||
        model->now < model->unsettled_until)
        side->wait.open_since = 0;
    else if (side->wait.open_since == 0)
        side->wait.open_since = model->now;
    else if (model->now - side->wait.open_since > bound)
        model_fail(model, "all fit, and it waits: ns, and the bound", index,
                   model->now - side->wait.open_since, bound);
}

/* One event may let a gang begin, be interrupted, and begin again beside the one that
 * interrupted that one; but not again and again. */
static void check_turns(struct model *model, const struct sched_member *member, uint32_t index)
{
    struct model_side *side = &((struct model_program *)member->client->owner)->side[index];
    const struct sched_party *party = member->party;

    if (side->party == party && party->turn.count > side->turns) {
        model->begun += party->turn.count - side->turns;
        if (party->turn.count > side->turns + TURNS_IN_ONE_EVENT)
            model_fail(model, "in circles: turns in one event", index, party->turn.count,
                       side->turns);
    }
    side->party = party;
    side->turns = party->turn.count;
}

/* Turns begin since others are over, and that takes a part of a quantum; or since somebody has
 * work, or grows, or leaves, and then a few are stopped for it. */
static void check_rate(struct model *model)
{
    const uint64_t second = 1000 * NS_PER_MS,
                   bound = 2 * (model->options.clients * 20ull +
                                (model->causes + model->causes_before) * 2);

    if (model->begun > bound)
        model_fail(model, "in circles: turns in a second, and the bound", 0, model->begun,
                   bound);
    if (model->ticks > TICKS_IN_A_SECOND)
        model_fail(model, "awake: ticks in a second, and the bound", 0, model->ticks,
                   TICKS_IN_A_SECOND);
    if (model->now < model->second_began + second)
        return;
    model->figures.rate_part = sched_max(model->figures.rate_part, model->begun * 1000 / bound);
    model->causes_before = model->now < model->second_began + 2 * second ? model->causes : 0;
    model->causes = model->begun = model->ticks = 0;
    model->second_began = model->now;
}

/* Whose turn it is on several devices keeps them all, also those where it has nothing to do. */
static bool somebody_runs(const struct sched_gang *gang)
{
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        if (party->books.running_members != 0)
            return true;
    }
    return false;
}

/* Whatever the policy, no device is idle for long that somebody wants who needs no other one:
 * gangs that wait elsewhere keep their places for as long as they have patience, one after the
 * other. */
static void check_idle(struct model *model, const struct sched_device *device, uint32_t index)
{
    const uint64_t patience =
        GRACE + (device->party_count + 1ull) * sched_device_quantum(device);
    uint64_t bound = 2 * patience;
    bool wanted = false;

    lockd_each (const struct sched_member, member, &device->members, of_device) {
        const struct sched_gang *gang = member->party->gang;
        const struct model_side *side =
            &((struct model_program *)member->client->owner)->side[index];

        if (side->running || (member->party->turn.held && somebody_runs(gang))) {
            model->idle_since[index] = 0;
            return;
        }
        bound += gang->party_count > 1 ? patience : 0;
        wanted = wanted || (side->want && can_run(gang) && gang->party_count == 1);
    }
    if (!wanted || model->now < model->unsettled_until)
        model->idle_since[index] = 0;
    else if (model->idle_since[index] == 0)
        model->idle_since[index] = model->now;
    else if (model->now - model->idle_since[index] > bound)
        model_fail(model, "idle: ns, and the bound", index,
                   model->now - model->idle_since[index], bound);
}

static void check_member(struct model *model, uint32_t index, const struct sched_member *member)
{
    struct model_program *program = member->client->owner;
    const struct model_side *side = &program->side[index];

    if (side->resident > sched_member_hold(member) + sched_member_pinned(member) &&
        model->now >= model->unsettled_until)
        model_fail(model, "bound: really resident, and thought possible", index, side->resident,
                   sched_member_hold(member) + sched_member_pinned(member));
    if (side->running && side->resident != side->demand && side->stuck_until <= model->now)
        model_fail(model, "run: resident, demand", index, side->resident, side->demand);
    if (member->sent.outstanding_count == 0 ||
        member->sent.seq - member->report.echoed > TARGETS_IN_FLIGHT)
        model_fail(model, "targets in flight", index, member->sent.seq, member->report.echoed);
    check_wait(model, member, index);
    check_turns(model, member, index);
    if (model->options.mixed)
        check_open(model, member, index);
}

static void check_device(struct model *model, const struct sched_device *device)
{
    const uint32_t index = (uint32_t)device->uuid[0] - 1;
    uint64_t held = 0, demand = 0;
    uint32_t members = 0;
    bool oversize = false;

    model->turn[index] = longest_turn(device);
    lockd_each (const struct sched_member, member, &device->members, of_device) {
        check_member(model, index, member);
        held += sched_member_hold(member);
        demand += member->report.demand;
        oversize = oversize || sched_member_hold(member) > device->space.capacity;
        members++;
    }
    if (held > device->space.capacity && held > model->held[index] && !oversize &&
        model->now >= model->unsettled_until)
        model_fail(model, "sum: may be held, capacity", index, held, device->space.capacity);
    if (demand != device->books.sum.demand || members != device->member_count)
        model_fail(model, "counts: demand", index, demand, device->books.sum.demand);
    model->held[index] = held;
    if (!model->options.stuck && model->options.hidden == 0 && !model->options.keeps)
        check_idle(model, device, index);
    model_check_floor(model, device, index);
}

void model_check(struct model *model)
{
    const char *wrong = sched_check(model->sched);

    if (wrong != NULL)
        model_fail(model, wrong, 0, 0, 0);
    lockd_each (struct sched_device, device, &model->sched->devices, link)
        check_device(model, device);
    check_rate(model);
}

bool model_all_run(const struct model *model)
{
    for (uint32_t i = 0; i < model->options.clients; i++) {
        const struct sched_client *client = model->programs[i].client;

        for (uint32_t d = 0; d < model->options.devices; d++) {
            if (client != NULL && client->set.class != GS_CLASS_BACKGROUND &&
                model_uses(&model->programs[i], d) && !model->programs[i].side[d].running)
                return false;
        }
    }
    return true;
}
