/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c: programs move from card to card, as balance.c says and gpushare-lockd does it: the
 * program is suspended, and all its memory leaves; the driver checkpoints it and restores it on
 * the other card; it goes on there, and its memory comes in with its turn.
 *
 * Invariant: goes_to is set exactly while a move is under way; its card changes at the end of it,
 * when it has nothing on the old one and does not compute.
 */
#include "bench/sim/sim.h"

#include <string.h>

static struct lockd_seen card_of(const struct sim_world *world, uint32_t index)
{
    struct lockd_seen card = {.name = "simulated", .total = world->scenario->memory};

    sim_card_uuid(index, card.uuid);
    return card;
}

void sim_move_connected(struct sim_program *program)
{
    struct sim_world *world = program->world;

    program->move.balance = balance_came(&world->balance, program->link.client, program);
    for (uint32_t i = 0; i < world->scenario->cards; i++) {
        const struct lockd_seen card = card_of(world, i);

        if (program->class->hidden == 0 || i == program->card->index)
            balance_sees(&world->balance, program->move.balance, &card);
    }
    if (world->scenario->balance != 0) /* as the daemon does after each message */
        sim_clock_set(&world->clock, &world->balance_timer, 0);
}

void sim_move_disconnected(struct sim_program *program)
{
    sim_clock_cancel(&program->world->clock, &program->move.timer);
    program->move.goes_to = NULL;
    balance_gone(&program->world->balance, program->move.balance);
    program->move.balance = NULL;
}

static void move_begin(struct sim_program *program, struct sim_card *to)
{
    struct sim_world *world = program->world;

    program->move.goes_to = to;
    program->move.began = world->clock.now_ns;
    program->move.bytes = program->figures.moved_out;
    sched_pause(program->link.client, true, sim_world_now(world));
    sched_evict(program->link.client, sim_world_now(world));
}

void sim_move_suspended(struct sim_program *program)
{
    const struct sim_scenario *scenario = program->world->scenario;

    if (program->move.goes_to == NULL || (program->link.flags & GS_TARGET_PAUSED) == 0 ||
        program->link.running || program->memory.resident != 0 ||
        sim_timer_is_set(&program->move.timer))
        return;
    sim_clock_set(&program->world->clock, &program->move.timer,
                  program->world->clock.now_ns + scenario->checkpoint_ns +
                      scenario->restore_ns);
}

/* It waits for the other card from now on, and no message about the old one counts any more. */
static void change_card(struct sim_program *program)
{
    struct sim_world *world = program->world;
    uint8_t uuid[16];

    if (program->link.running || program->memory.resident != 0)
        sim_world_failed(world, "program %u has memory on the card that it leaves",
                         program->index);
    sim_card_uuid(program->card->index, uuid);
    sched_left(program->link.client, uuid, sim_world_now(world));
    program->link.life++;
    program->card->waiting -= program->link.waiting;
    program->card = program->move.goes_to;
    program->card->waiting += program->link.waiting;
    program->link.flags = 0;
    program->memory.budget = 0;
    program->figures.moves++;
    memset(&program->link.sent, 0, sizeof program->link.sent);
}

static void move_end(void *owner)
{
    static const enum lockd_move_end failures[] = {LOCKD_MOVE_NOT_THERE, LOCKD_MOVE_NOT_IT,
                                                   LOCKD_MOVE_NOBODY};
    struct sim_program *program = owner;
    struct sim_world *world = program->world;
    enum lockd_move_end outcome = LOCKD_MOVE_DONE;

    if (sim_random(&program->noise) < world->scenario->move_fails)
        outcome = failures[(unsigned)(sim_random(&program->noise) * 3)];
    else
        change_card(program);
    program->move.goes_to = NULL;
    program->figures.move_attempts++;
    balance_outcome(&world->balance, program->move.balance, outcome,
                    world->clock.now_ns - program->move.began,
                    program->figures.moved_out - program->move.bytes, sim_world_now(world));
    sched_pause(program->link.client, false, sim_world_now(world));
    sim_client_moved(program);
    sim_world_flush(world);
}

static void look_at_balance(void *owner)
{
    struct sim_world *world = owner;
    const uint64_t next = balance_tend(&world->balance, sim_world_now(world));
    struct balance_move move;
    uint32_t index;

    while (balance_next(&world->balance, &move)) {
        memcpy(&index, move.to, sizeof index);
        move_begin(move.owner, &world->cards[index]);
        sim_world_flush(world);
    }
    if (next != LOCKD_NEVER)
        sim_clock_set(&world->clock, &world->balance_timer,
                      world->clock.now_ns + (next - sim_world_now(world)));
}

void sim_move_init(struct sim_world *world)
{
    balance_init(&world->balance, sched_client_load, NULL, NULL);
    balance_set(&world->balance, world->scenario->balance != 0);
    sim_timer_init(&world->balance_timer, look_at_balance, world);
}

void sim_move_program(struct sim_program *program)
{
    sim_timer_init(&program->move.timer, move_end, program);
}
