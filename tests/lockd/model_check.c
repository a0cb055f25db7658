/* SPDX-License-Identifier: Apache-2.0
 *
 * model_check.c: what must hold after every event, whatever the programs do.
 *
 *   sum        what all may hold on a device never exceeds its capacity (while it does, because
 * the capacity fell or programs came back to a new daemon, it must not rise) bound      a
 * program never has more on the device than the lock believes possible run        who runs has
 * all its memory there, but for one that cannot stop   starving   who wants to run and fits,
 * runs in bounded time forgotten everybody is in the queue, on the holders' list, or has
 * nothing to do
 */
#include "tests/lockd/model_state.h"

#include <stdio.h>
#include <string.h>

static void fail(struct model *model, const char *what, uint64_t device, uint64_t a, uint64_t b)
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

void model_check_target(struct model *model, const struct model_side *side,
                        const struct gs_wire_target *target)
{
    const uint32_t known =
        GS_TARGET_RUN | GS_TARGET_WAITERS | GS_TARGET_SOLE | GS_TARGET_PAUSED;

    if (target->seq != side->seq + 1)
        fail(model, "number of a target", target->uuid[0], target->seq, side->seq + 1);
    if ((target->flags & ~known) != 0)
        fail(model, "flags of a target", target->uuid[0], target->flags, known);
    if ((target->flags & GS_TARGET_WAITERS) != 0 &&
        (target->idle_ns < IDLE_MIN || target->idle_ns > IDLE_MAX))
        fail(model, "idle time of a target", target->uuid[0], target->idle_ns, IDLE_MAX);
}

/* A program allocates by its first target: it must not have to wait for another word. */
void model_check_sent(struct model *model, const struct sched_client *client,
                      const struct gs_wire_target *target)
{
    const struct sched_member *member = sched_member_find(client, target->uuid);

    if (target->seq == member->first_seq + 1 &&
        target->capacity != sched_device_most(member->device))
        fail(model, "capacity in a first target", target->uuid[0], target->capacity,
             sched_device_most(member->device));
}

/* The longest turn under way on a device: a quantum, or more where it makes up for a short one.
 */
static uint64_t longest_turn(const struct sched_device *device)
{
    uint64_t longest = sched_device_quantum(device);

    for (const struct lockd_list *at = device->holders.next; at != &device->holders;
         at = at->next) {
        const struct sched_party *party = lockd_entry(at, struct sched_party, holder);

        if (party->turn_length != LOCKD_NEVER)
            longest = sched_max(longest, party->turn_length);
    }
    return longest;
}

/* Longest that the queue may take to come round: everybody else's turn and switch, and one's
 * own switch. On two devices a program waits for its places one after the other, and each of
 * those before it at the first may keep its place there while it waits for the second. turns:
 * on all devices together, the longest ones seen while it waited. */
static uint64_t wait_bound(const struct model *model, uint64_t turns)
{
    const uint64_t bytes = 2 * model->options.total;
    const uint64_t change = bytes * 1000 / (model->options.bandwidth / 1000000) +
                            bytes / MODEL_CHUNK * 6 * NS_PER_MS + 200 * NS_PER_MS;
    uint64_t bound = (model->options.clients + 1ull) * model->options.devices *
                     (turns + model->options.devices * (change + IDLE_MAX));

    if (model->options.stuck) /* one of them after the other */
        bound += (uint64_t)model->options.clients * (30000 * NS_PER_MS + GRACE);
    if (model->options.hidden != 0)
        bound += (uint64_t)model->options.clients * 6 * GRACE;
    return bound;
}

static void check_wait(struct model *model, const struct sched_device *device, uint32_t index,
                       struct model_program *program)
{
    struct model_side *side = &program->side[index];
    bool hopeless = false;
    uint64_t wait;

    for (uint32_t i = 0; i < model->options.devices; i++) /* it waits for all its devices */
        hopeless = hopeless || program->side[i].demand > device->capacity;
    if (hopeless || !side->want || (side->running && side->resident == side->demand) ||
        program->paused || program->client == NULL || side->demand > device->capacity) {
        side->waits_since = side->turns_most = 0;
        return;
    }
    if (side->waits_since == 0)
        side->waits_since = model->now;
    side->turns_most = sched_max(side->turns_most, model->turn[0] + model->turn[1]);
    wait = model->now - sched_max(side->waits_since, sched_min(model->disturbed, model->now));
    model->figures.wait_worst_ns = sched_max(model->figures.wait_worst_ns, wait);
    if (wait > wait_bound(model, side->turns_most))
        fail(model, "starving: ns waited, and the bound", index, wait,
             wait_bound(model, side->turns_most));
}

static void check_member(struct model *model, uint32_t index, const struct sched_member *member)
{
    struct model_program *program = member->client->owner;
    const struct model_side *side = &program->side[index];

    if (side->resident > sched_member_hold(member) + sched_member_pinned(member) &&
        model->now >= model->unsettled_until)
        fail(model, "bound: really resident, and thought possible", index, side->resident,
             sched_member_hold(member) + sched_member_pinned(member));
    if (side->running && side->resident != side->demand && side->stuck_until <= model->now)
        fail(model, "run: resident, demand", index, side->resident, side->demand);
    if (member->outstanding_count == 0 || member->seq - member->echoed > TARGETS_IN_FLIGHT)
        fail(model, "targets in flight", index, member->seq, member->echoed);
    check_wait(model, member->device, index, program);
}

static void check_device(struct model *model, const struct sched_device *device)
{
    const uint32_t index = (uint32_t)device->uuid[0] - 1;
    uint64_t held = 0, demand = 0;
    uint32_t members = 0;
    bool oversize = false;

    model->turn[index] = longest_turn(device);
    for (const struct lockd_list *at = device->members.next; at != &device->members;
         at = at->next) {
        const struct sched_member *member = lockd_entry(at, struct sched_member, of_device);

        check_member(model, index, member);
        held += sched_member_hold(member);
        demand += member->demand;
        oversize = oversize || sched_member_hold(member) > device->capacity;
        members++;
    }
    if (held > device->capacity && held > model->held[index] && !oversize &&
        model->now >= model->unsettled_until)
        fail(model, "sum: may be held, capacity", index, held, device->capacity);
    if (demand != device->sum.demand || members != device->member_count)
        fail(model, "counts: demand", index, demand, device->sum.demand);
    model->held[index] = held;
}

void model_check(struct model *model)
{
    const char *wrong = sched_check(model->lock);

    if (wrong != NULL)
        fail(model, wrong, 0, 0, 0);
    for (const struct lockd_list *at = model->lock->devices.next; at != &model->lock->devices;
         at = at->next)
        check_device(model, lockd_entry(at, struct sched_device, link));
}

bool model_all_run(const struct model *model)
{
    for (uint32_t i = 0; i < model->options.clients; i++) {
        for (uint32_t d = 0; d < model->options.devices; d++) {
            if (model->programs[i].client != NULL && !model->programs[i].side[d].running)
                return false;
        }
    }
    return true;
}
