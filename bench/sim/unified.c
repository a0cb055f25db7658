/* SPDX-License-Identifier: Apache-2.0
 *
 * unified.c: the ancestor's ways, to compare with (the diploma thesis of 2021): unified memory
 * that kernels fault in, with a first-come-first-served lock for a fixed quantum, and without.
 *
 * The model. A pass of a program touches `hot` of its memory. The memory that the programs touch together
 * beyond the card is evicted least recently used first; as each pass touches its pages
 * in the same order, whoever lost some finds that the next ones have just been evicted, and all
 * that it touches moves again (the thesis measured that: chapter 10). So who comes to run after
 * others needed the room faults everything in, at `fault` bytes a second, inside its quantum.
 * Without the lock every pass of every program faults, and since programs evict each other's
 * pages before they are used, at only `thrash` of that rate for all together.
 *
 * Invariant: with the lock, only card->holder computes or faults.
 */
#include "bench/sim/sim.h"

static uint64_t now_of(const struct sim_program *program)
{
    return program->world->clock.now_ns;
}

static double touched_bytes(const struct sim_program *program)
{
    return program->class->hot * (double)program->class->memory;
}

/* --- with the lock --- */

static void enqueue_program(struct sim_program *program)
{
    struct sim_card *card = program->card;

    program->faults.queue_next = NULL;
    program->faults.queued = true;
    if (card->queue_first == NULL)
        card->queue_first = program;
    else
        card->queue_last->faults.queue_next = program;
    card->queue_last = program;
    sim_world_waiting(program, true);
}

/* Of those that have memory on the card, the one that ran longest ago. */
static struct sim_program *least_recent(const struct sim_card *card,
                                        const struct sim_program *but)
{
    struct sim_world *world = card->world;
    struct sim_program *pick = NULL;

    for (uint32_t i = 0; i < world->program_count; i++) {
        struct sim_program *each = &world->programs[i];

        if (each->card == card && each != but && each->work.phase != SIM_GONE &&
            each->faults.missing == 0 && each->figures.turns != 0 &&
            (pick == NULL || each->run_since < pick->run_since))
            pick = each;
    }
    return pick;
}

/* The memory that the program touches pushes the others out, all of each. */
static void push_out(struct sim_program *program)
{
    const struct sim_world *world = program->world;
    double free_bytes = (double)world->scenario->memory - touched_bytes(program);
    struct sim_program *victim;

    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct sim_program *each = &world->programs[i];

        if (each->card == program->card && each != program && each->work.phase != SIM_GONE &&
            each->faults.missing == 0 && each->figures.turns != 0)
            free_bytes -= touched_bytes(each);
    }
    while (free_bytes < 0 && (victim = least_recent(program->card, program)) != NULL) {
        victim->faults.missing = touched_bytes(victim);
        free_bytes += victim->faults.missing;
    }
}

static void get_on(struct sim_program *program)
{
    const double rate = (double)program->world->scenario->fault / 1e9;

    if (program->faults.missing == 0) {
        sim_work_compute(program);
        return;
    }
    push_out(program);
    program->faults.began = now_of(program);
    sim_clock_set(&program->world->clock, &program->faults.timer,
                  now_of(program) + (uint64_t)(program->faults.missing / rate));
}

static void note_faulted(void *owner)
{
    struct sim_program *program = owner;

    program->figures.moved_in += (uint64_t)program->faults.missing;
    program->faults.missing = 0;
    sim_work_compute(program);
}

static void grant_turn(struct sim_card *card)
{
    struct sim_program *next = card->queue_first;

    card->holder = next;
    if (next == NULL)
        return;
    card->queue_first = next->faults.queue_next;
    next->faults.queued = false;
    sim_world_waiting(next, false);
    sim_world_running(next, true);
    sim_clock_set(&card->world->clock, &card->quantum_timer,
                  now_of(next) + card->world->scenario->quantum_ns);
    get_on(next);
}

static void give_back(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;
    struct sim_card *card = program->card;

    sim_clock_cancel(clock, &card->quantum_timer);
    sim_clock_cancel(clock, &card->idle_timer);
    sim_clock_cancel(clock, &program->faults.timer);
    sim_work_halt(program);
    sim_world_running(program, false);
    if (program->work.phase == SIM_GPU)
        enqueue_program(program);
    grant_turn(card);
}

static void quantum_over(void *owner)
{
    struct sim_card *card = owner;

    if (card->holder != NULL && card->queue_first != NULL)
        give_back(card->holder);
}

static void idle_too_long(void *owner)
{
    struct sim_card *card = owner;

    if (card->holder != NULL && card->holder->work.phase != SIM_GPU)
        give_back(card->holder);
}

static void arrive_program(struct sim_program *program)
{
    program->faults.missing = touched_bytes(program);
}

static void wants_gpu(struct sim_program *program)
{
    struct sim_card *card = program->card;

    if (card->holder == program) {
        sim_clock_cancel(&program->world->clock, &card->idle_timer);
        get_on(program);
        return;
    }
    enqueue_program(program);
    if (card->holder == NULL)
        grant_turn(card);
    else if (!sim_timer_is_set(&card->quantum_timer))
        quantum_over(card);
}

static void rests_now(struct sim_program *program)
{
    struct sim_card *card = program->card;

    if (card->holder == program)
        sim_clock_set(&program->world->clock, &card->idle_timer,
                      now_of(program) + program->world->scenario->idle_release_ns);
}

static void leave_program(struct sim_program *program)
{
    if (program->card->holder == program)
        give_back(program);
}

const struct sim_way sim_way_unified = {arrive_program, wants_gpu, rests_now, leave_program};

/* --- without --- */

double sim_unified_speed(const struct sim_card *card, double speed)
{
    const struct sim_scenario *scenario = card->world->scenario;
    const double rate = (double)scenario->fault / 1e9 * scenario->thrash;
    double pass;

    if (card->computing < 2 || card->touched <= (double)scenario->memory)
        return speed;
    pass = card->pass_ns / card->computing;
    return pass / (pass / speed + card->touched / rate);
}

static void count_program(struct sim_program *program, bool computes)
{
    struct sim_card *card = program->card;

    if (program->faults.queued == computes)
        return;
    program->faults.queued = computes;
    card->computing += computes ? 1 : -1u;
    card->touched += (computes ? 1 : -1) * touched_bytes(program);
    card->pass_ns += (computes ? 1 : -1) * (double)program->class->pass_ns;
    sim_world_running(program, computes);
    sim_share_update(&card->gpu);
}

static void free_wants(struct sim_program *program)
{
    count_program(program, true);
    sim_work_compute(program);
}

static void free_rests(struct sim_program *program)
{
    count_program(program, false);
}

const struct sim_way sim_way_unlocked = {arrive_program, free_wants, free_rests, free_rests};

void sim_unified_init(struct sim_card *card)
{
    sim_timer_init(&card->quantum_timer, quantum_over, card);
    sim_timer_init(&card->idle_timer, idle_too_long, card);
}

void sim_unified_program(struct sim_program *program)
{
    sim_timer_init(&program->faults.timer, note_faulted, program);
}
