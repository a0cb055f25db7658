/* SPDX-License-Identifier: Apache-2.0
 *
 * balance_load.c: estimates the part of the time in which each program would use a card of its own.
 * It is the time that the program ran on the card that it shares, divided by that time and the time
 * in which it had nothing to do; waiting is left out. The sum over the programs of a card tells how
 * busy they would keep it. A program that moves counts on its target only. Owns struct balance_past
 * and the sums of the places.
 */
#include "lockd/move/balance_load.h"

#include <string.h>

#define FADES   43e9 /* ns of work and rest; half of it counts after 30 s */
#define ASSUMED 1e9  /* ns of work that each program is given in advance */

struct balance_sight *balance_sight_find(const struct balance_program *program,
                                         const struct balance_place *place)
{
    lockd_list_each (at, &program->sights) {
        struct balance_sight *sight = balance_sight_of(at);

        if (sight->place == place)
            return sight;
    }
    return NULL;
}

struct balance_place *balance_place_find(const struct balance *balance, const uint8_t *uuid)
{
    lockd_list_each (at, &balance->places) {
        struct balance_place *place = balance_place_of(at);

        if (memcmp(place->card.uuid, uuid, sizeof place->card.uuid) == 0)
            return place;
    }
    return NULL;
}

void balance_load_forget(struct balance_program *program)
{
    program->past.seen_at = 0;
    program->past.ran_ns = program->past.waited_ns = 0;
}

static uint64_t later_by(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Its work since the last look. */
static void take_past(struct balance_program *program, uint64_t now)
{
    struct balance_past *past = &program->past;
    const struct sched_load *load = &program->load;
    const uint64_t ran = later_by(load->run_ns, past->run_ns),
                   waited = later_by(load->wait_ns, past->wait_ns),
                   rested = later_by(now, past->seen_at + ran + waited);

    past->ran_ns = past->waited_ns = 0;
    if (past->seen_at != 0) {
        const double keeps = 1 / (1 + (double)(ran + rested) / FADES);

        past->ran_ns = ran;
        past->waited_ns = waited;
        past->ran = past->ran * keeps + (double)ran;
        past->rested = past->rested * keeps + (double)rested;
    }
    past->seen_at = now;
    past->run_ns = load->run_ns;
    past->wait_ns = load->wait_ns;
    program->part = (past->ran + ASSUMED) / (past->ran + past->rested + ASSUMED);
}

static void place_add(struct balance_place *place, const struct balance_program *program,
                      const struct sched_load *load)
{
    place->pinned += load->pinned;
    if (load->class == GS_CLASS_BACKGROUND)
        place->background += program->part;
    else
        place->work += program->part;
    if (load->class == GS_CLASS_INTERACTIVE)
        place->interactive += program->part;
}

/* A program is on one card, as nearly all are, or on several. */
static bool take_program(struct balance *balance, struct balance_program *program, uint64_t now)
{
    struct sched_load load;

    program->home = NULL;
    if (!balance->ask(program->client, 0, &program->load, now)) {
        balance_load_forget(program);
        program->load.waits = false;
        return false;
    }
    take_past(program, now);
    for (uint32_t number = 0; balance->ask(program->client, number, &load, now); number++) {
        struct balance_place *place = balance_place_find(balance, load.uuid);

        if (place == NULL)
            continue;
        place->capacity = load.capacity;
        if (load.alone)
            program->home = balance_sight_find(program, place);
        if (program->to == NULL)
            place_add(place, program, &load);
    }
    return program->load.waits || program->past.waited_ns != 0 ||
           (program->past.ran_ns != 0 && !program->load.turns);
}

bool balance_load_take(struct balance *balance, uint64_t now_ns)
{
    bool waits = false;

    lockd_list_each (at, &balance->places) {
        struct balance_place *place = balance_place_of(at);

        place->work = place->background = place->interactive = 0;
        place->pinned = place->capacity = 0;
    }
    lockd_list_each (at, &balance->programs)
        waits = take_program(balance, balance_program_of(at), now_ns) || waits;
    if (balance->moving != NULL)
        place_add(balance->moving->to, balance->moving, &balance->moving->load);
    return waits;
}
