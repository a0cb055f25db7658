/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: a card: how fast its programs compute and copy, who runs on it and waits for it, and
 * the figures of that. Watches the promise that programs never hold more than there is.
 */
#include "bench/sim/sim.h"

#include <string.h>

void sim_world_running(struct sim_program *program, bool running)
{
    struct sim_card *card = program->card;
    const uint64_t now = program->world->clock.now_ns;

    if (program->link.running == running)
        return;
    program->link.running = running;
    if (!running) {
        program->figures.held_ns += now - program->run_since;
        if (--card->running == 0) {
            card->busy_ns += now - card->busy_since;
            card->gap_began = now;
        }
        return;
    }
    program->run_since = now;
    program->figures.turns++;
    if (card->running++ != 0)
        return;
    card->busy_since = now;
    if (now > card->gap_began && card->gap_began != 0 && card->waiting != 0) {
        card->gap.total += now - card->gap_began;
        card->gap.count++;
        if (now - card->gap_began > card->gap.most)
            card->gap.most = now - card->gap_began;
    }
}

void sim_world_waiting(struct sim_program *program, bool waiting)
{
    const uint64_t now = program->world->clock.now_ns;
    uint64_t waited;

    if (program->link.waiting == waiting)
        return;
    program->link.waiting = waiting;
    if (waiting) {
        program->wait_since = now;
        program->card->waiting++;
        return;
    }
    program->card->waiting--;
    waited = now - program->wait_since;
    program->figures.wait_ns += waited;
    if (waited > program->figures.wait_most_ns &&
        program->wait_since >= program->world->window_began)
        program->figures.wait_most_ns = waited;
}

void sim_world_resident(struct sim_program *program, uint64_t resident)
{
    struct sim_card *card = program->card;

    card->resident = card->resident - program->memory.resident + resident;
    program->memory.resident = resident;
    if (card->resident > card->resident_most)
        card->resident_most = card->resident;
    if (card->resident > program->world->scenario->memory)
        sim_world_failed(program->world, "card %u holds %llu bytes of %llu", card->index,
                         (unsigned long long)card->resident,
                         (unsigned long long)program->world->scenario->memory);
}

/* --- speeds --- */

/* Each gets on at full speed while together they leave gaps enough; then they share what there
 * is, less what the driver's switching costs. */
static double gpu_speed(const struct sim_share *share)
{
    const struct sim_card *card = share->owner;
    const struct sim_scenario *scenario = card->world->scenario;
    double speed = 1;

    if (share->load > 1)
        speed = (share->jobs.count > 1 ? 1 - scenario->slicing : 1) / share->load;
    return card->world->way == &sim_way_unlocked ? sim_unified_speed(card, speed) : speed;
}

static double bus_speed(const struct sim_share *share)
{
    const struct sim_card *card = share->owner;
    const struct sim_scenario *scenario = card->world->scenario;
    const bool out = share == &card->out;
    double rate = (double)(out ? scenario->bus_out : scenario->bus_in);
    const double half = (double)scenario->bus_both / 2;

    if ((out ? &card->in : &card->out)->jobs.count != 0 && rate > half)
        rate = half;
    return rate / 1e9 / (double)share->jobs.count;
}

static void bus_changed(struct sim_share *share)
{
    struct sim_card *card = share->owner;

    sim_share_update(share == &card->out ? &card->in : &card->out);
}

void sim_card_uuid(uint32_t index, uint8_t uuid[16])
{
    memset(uuid, 0, 16);
    memcpy(uuid, &index, sizeof index);
    uuid[15] = 1;
}

void sim_card_init(struct sim_card *card, struct sim_world *world, uint32_t index)
{
    card->world = world;
    card->index = index;
    sim_share_init(&card->gpu, &world->clock, gpu_speed, card);
    sim_share_init(&card->in, &world->clock, bus_speed, card);
    sim_share_init(&card->out, &world->clock, bus_speed, card);
    card->in.changed = card->out.changed = bus_changed;
    sim_unified_init(card);
}
