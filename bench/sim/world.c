/* SPDX-License-Identifier: Apache-2.0
 *
 * world.c: the cards, the programs on them, and lockd's scheduler, unchanged, between the two:
 * carries messages with a delay, and calls the scheduler's tick when it asks for it.
 */
#include "bench/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY 1000000000ull
#define EPOCH      1000000000ull /* the scheduler's clock at the beginning; it takes 0 for never */

struct sim_message {
    struct sim_timer timer;
    struct sim_world *world;
    struct sim_program *program;
    uint64_t life;
    bool to_lock;
    union {
        struct gs_wire_state state;
        struct gs_wire_target target;
    };
    struct sim_message *next_spare, *next_all;
};

void sim_world_failed(struct sim_world *world, const char *format, ...)
{
    va_list arguments;
    int length;

    if (world->failure[0] != '\0')
        return;
    length = snprintf(world->failure, sizeof world->failure,
                      "after %.3f s: ", (double)world->clock.now_ns / 1e9);
    va_start(arguments, format);
    vsnprintf(world->failure + length, sizeof world->failure - (size_t)length, format,
              arguments);
    va_end(arguments);
}

/* --- the scheduler --- */

uint64_t sim_world_now(const struct sim_world *world)
{
    return world->clock.now_ns + EPOCH;
}

static void deliver_message(void *owner);

static struct sim_message *message_new(struct sim_program *program, bool to_lock)
{
    struct sim_world *world = program->world;
    struct sim_message *message = world->spare;
    uint64_t *last = to_lock ? &program->link.to_lock_at : &program->link.from_lock_at;
    const double delay = sim_random(&program->noise) * (double)world->scenario->latency_ns;
    uint64_t at = world->clock.now_ns + (uint64_t)delay;

    if (message != NULL) {
        world->spare = message->next_spare;
    } else {
        message = sim_new(1, sizeof *message);
        message->next_all = world->all_messages;
        world->all_messages = message;
        sim_timer_init(&message->timer, deliver_message, message);
        message->world = world;
    }
    message->program = program;
    message->life = program->link.life;
    message->to_lock = to_lock;
    if (at < *last)
        at = *last;
    *last = at;
    sim_clock_set(&world->clock, &message->timer, at);
    return message;
}

static void device_seen(void *context, const struct gs_wire_device *info)
{
    struct sim_world *world = context;
    uint32_t index;

    memcpy(&index, info->uuid, sizeof index);
    if (index < world->scenario->cards && info->leases != 0 &&
        info->quantum_ns > world->cards[index].quantum_most)
        world->cards[index].quantum_most = info->quantum_ns;
}

static void member_seen(void *context, void *owner, const struct gs_wire_client *client)
{
    struct sim_program *program = owner;

    (void)context;
    program->figures.yielded_ns = client->yielded_ns;
    program->figures.looks++;
    program->figures.looks_interactive += client->class == GS_CLASS_INTERACTIVE;
}

/* Takes what the scheduler wants to send, and asks when it wants to look again. */
void sim_world_flush(struct sim_world *world)
{
    struct sched_send send;
    uint64_t deadline;

    while (sched_next_send(world->sched, &send)) {
        world->targets++;
        message_new(send.owner, false)->target = send.target;
    }
    deadline = sched_deadline(world->sched);
    if (deadline == LOCKD_NEVER)
        sim_clock_cancel(&world->clock, &world->lock_timer);
    else
        sim_clock_set(&world->clock, &world->lock_timer,
                      deadline > EPOCH ? deadline - EPOCH : 0);
}

static void tick_scheduler(void *owner)
{
    struct sim_world *world = owner;

    sched_tick(world->sched, sim_world_now(world));
    sim_world_flush(world);
}

/* The quantum that the scheduler uses. Reading it visits every program, so only now and then. */
static void look_at_quantum(struct sim_world *world)
{
    if (world->clock.now_ns < world->look_at)
        return;
    sched_visit(world->sched, device_seen, member_seen, world, sim_world_now(world));
    world->look_at = world->clock.now_ns + LOOK_EVERY * (world->program_count / 16 + 1);
}

static void deliver_message(void *owner)
{
    struct sim_message *message = owner;
    struct sim_world *world = message->world;
    struct sim_program *program = message->program;
    const bool valid = message->life == program->link.life && program->link.client != NULL;
    const bool to_lock = message->to_lock;
    const struct gs_wire_target target = message->target;

    if (valid && to_lock) {
        world->states++;
        if (sched_state(program->link.client, &message->state, sim_world_now(world)) != 0)
            sim_world_failed(world, "the scheduler refused program %u", program->index);
    }
    message->next_spare = world->spare;
    world->spare = message;
    if (!valid)
        return;
    if (to_lock) {
        sim_world_flush(world);
        look_at_quantum(world);
    } else {
        sim_client_target(program, &target);
    }
}

void sim_world_send(struct sim_program *program, const struct gs_wire_state *state)
{
    message_new(program, true)->state = *state;
}

void sim_world_connect(struct sim_program *program)
{
    struct sim_world *world = program->world;
    struct gs_wire_hello hello = {.pid = (int32_t)program->index + 1,
                                  .weight = (uint32_t)program->class->weight,
                                  .class = (uint32_t)program->class->kind,
                                  .priority = (int32_t)program->class->priority};

    program->link.client = sched_client_add(world->sched, program);
    if (program->link.client == NULL) {
        fprintf(stderr, "gpushare-sim: out of memory at program %u\n", program->index);
        exit(1);
    }
    snprintf(hello.name, sizeof hello.name, "%s", program->class->name);
    snprintf(hello.group, sizeof hello.group, "%s", program->class->group);
    sched_describe(program->link.client, &hello, (uint32_t)program->class->user);
    sim_move_connected(program);
}

void sim_world_disconnect(struct sim_program *program)
{
    struct sim_world *world = program->world;

    sim_move_disconnected(program);
    sched_client_gone(program->link.client, sim_world_now(world));
    program->link.client = NULL;
    program->link.life++;
    sim_world_flush(world);
}

/* --- the world --- */

/* The figures count from here. */
static void warmed_up(void *owner)
{
    struct sim_world *world = owner;

    world->window_began = world->clock.now_ns;
    world->latency.count = world->ideal.count = 0;
    sched_visit(world->sched, device_seen, member_seen, world, sim_world_now(world));
    for (uint32_t i = 0; i < world->program_count; i++) {
        struct sim_program *program = &world->programs[i];

        sim_work_settle(program);
        if (program->link.running) {
            program->figures.held_ns += world->clock.now_ns - program->run_since;
            program->run_since = world->clock.now_ns;
        }
        program->figures.wait_most_ns = 0;
        program->asked.latency.count = program->asked.ideal.count = 0;
        program->before = program->figures;
    }
    for (uint64_t i = 0; i < world->scenario->cards; i++) {
        struct sim_card *card = &world->cards[i];

        card->gap = (struct sim_sum){0};
        card->quantum_most = 0;
        card->busy_ns = 0;
        card->busy_since = world->clock.now_ns;
    }
    world->warm = true;
}

/* The programs of one group are a ring. */
static void gang_join(struct sim_world *world, struct sim_program *program)
{
    if (program->class->group[0] == '\0')
        return;
    for (uint32_t i = 0; i < program->index; i++) {
        struct sim_program *other = &world->programs[i];

        if (strcmp(other->class->group, program->class->group) != 0)
            continue;
        program->work.gang_next = other->work.gang_next;
        other->work.gang_next = program;
        return;
    }
}

static void programs_init(struct sim_world *world)
{
    const struct sim_scenario *scenario = world->scenario;
    uint64_t seed = scenario->seed;
    uint32_t at = 0;

    for (size_t i = 0; i < scenario->class_count; i++) {
        const struct sim_class *class = &scenario->classes[i];
        uint64_t start = class->start_ns;

        for (uint64_t copy = 0; copy < class->copies; copy++, at++) {
            struct sim_program *program = &world->programs[at];

            program->world = world;
            program->card = &world->cards[class->card + copy % class->spread];
            program->class = class;
            program->index = at;
            program->random = (seed << 32) + 3ull * at;
            program->arrivals = program->random + 1;
            program->noise = program->random + 2;
            program->started = start;
            start += sim_draw(&class->spacing, &program->arrivals, copy);
            sim_work_init(program);
            gang_join(world, program);
            sim_client_init(program);
            sim_move_program(program);
            sim_unified_program(program);
        }
    }
}

struct sim_world *sim_world_new(const struct sim_scenario *scenario)
{
    static const struct sim_way *const ways[] = {[SIM_WAY_GPUSHARE] = &sim_way_gpushare,
                                                 [SIM_WAY_UNIFIED] = &sim_way_unified,
                                                 [SIM_WAY_UNLOCKED] = &sim_way_unlocked};
    const struct sched_settings settings = {
        .quantum_ns = scenario->quantum_ns,
        .idle_ns = scenario->idle_ns,
        .reserve = scenario->reserve,
        .policy = (enum gs_policy)scenario->policy,
        .exclusive = scenario->exclusive != 0,
        .quantum_min_ns = scenario->quantum_min_ns,
        .quantum_max_ns = scenario->quantum_max_ns,
        .share_ppm = (uint32_t)(scenario->cost * 1e6),
        .floor_ppm = (uint32_t)(scenario->floor * 1e6),
        .balance = scenario->balance != 0,
    };
    struct sim_world *world = sim_new(1, sizeof *world);

    world->scenario = scenario;
    world->way = ways[scenario->way];
    world->sched = sched_new(&settings, EPOCH);
    if (world->sched == NULL) {
        fprintf(stderr, "gpushare-sim: out of memory for the scheduler\n");
        exit(1);
    }
    for (size_t i = 0; i < scenario->class_count; i++)
        world->program_count += (uint32_t)scenario->classes[i].copies;
    world->cards = sim_new(scenario->cards, sizeof world->cards[0]);
    world->programs = sim_new(world->program_count, sizeof world->programs[0]);
    for (uint32_t i = 0; i < scenario->cards; i++)
        sim_card_init(&world->cards[i], world, i);
    sim_move_init(world);
    programs_init(world);
    sim_timer_init(&world->lock_timer, tick_scheduler, world);
    sim_timer_init(&world->warmup_timer, warmed_up, world);
    sim_clock_set(&world->clock, &world->warmup_timer, scenario->warmup_ns);
    return world;
}

void sim_world_run(struct sim_world *world)
{
    while (world->finished < world->program_count && world->failure[0] == '\0' &&
           sim_clock_next(&world->clock, world->scenario->for_ns))
        ;
    if (!world->warm)
        sim_world_failed(world, "nothing remained to be measured after the warm-up of %.0f s",
                         (double)world->scenario->warmup_ns / 1e9);
    sched_visit(world->sched, device_seen, member_seen, world, sim_world_now(world));
    for (uint32_t i = 0; i < world->program_count; i++) {
        struct sim_program *program = &world->programs[i];

        sim_work_settle(program);
        if (program->link.running)
            program->figures.held_ns += world->clock.now_ns - program->run_since;
        if (program->link.waiting)
            sim_world_waiting(program, false);
    }
    for (uint64_t i = 0; i < world->scenario->cards; i++)
        if (world->cards[i].running != 0)
            world->cards[i].busy_ns += world->clock.now_ns - world->cards[i].busy_since;
}

void sim_world_free(struct sim_world *world)
{
    struct sim_message *message;

    if (world == NULL)
        return;
    balance_deinit(&world->balance);
    sched_free(world->sched);
    while ((message = world->all_messages) != NULL) {
        world->all_messages = message->next_all;
        free(message);
    }
    for (uint32_t i = 0; i < world->program_count; i++) {
        free(world->programs[i].asked.due);
        sim_samples_deinit(&world->programs[i].asked.latency);
        sim_samples_deinit(&world->programs[i].asked.ideal);
    }
    for (uint64_t i = 0; i < world->scenario->cards; i++) {
        sim_share_deinit(&world->cards[i].gpu);
        sim_share_deinit(&world->cards[i].in);
        sim_share_deinit(&world->cards[i].out);
    }
    sim_samples_deinit(&world->latency);
    sim_samples_deinit(&world->ideal);
    sim_heap_deinit(&world->clock.timers);
    free(world->programs);
    free(world->cards);
    free(world);
}
