/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c: what a modelled program does all day: a CPU phase, then a GPU phase, again and again;
 * or it waits for requests, which arrive whether it is ready or not (open loop), and does that
 * for each. Knows nothing of how it comes by the card: that is its way (sim.h).
 *
 * Invariants: gpu_job is on the card's share exactly while the program computes; otherwise
 * gpu_left says what is left of the burst. Of a gang, none computes while one that has GPU work
 * may not; gang_next is a ring of its members.
 */
#include "bench/sim/sim.h"

#include <math.h>
#include <string.h>

static void cycle_next(struct sim_program *program);

double sim_random(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    return (double)(mixed >> 11) * 0x1p-53;
}

uint64_t sim_draw(const struct sim_spread *spread, uint64_t *random, uint64_t number)
{
    switch (spread->kind) {
    case SIM_EXPONENTIAL:
        return (uint64_t)(-log(1 - sim_random(random)) * spread->a);
    case SIM_UNIFORM:
        return (uint64_t)(spread->a + sim_random(random) * (spread->b - spread->a));
    case SIM_TURN:
        return (uint64_t)spread->turns[number % spread->turn_count];
    default:
        return (uint64_t)spread->a;
    }
}

static uint64_t now_of(const struct sim_program *program)
{
    return program->world->clock.now_ns;
}

/* --- computing --- */

static void gpu_count(struct sim_program *program, double left)
{
    program->figures.gpu_ns += program->work.gpu_begun - left;
    program->work.gpu_begun = left;
}

static void gpu_start(struct sim_program *program)
{
    if (program->work.phase != SIM_GPU || program->work.gpu_job.node.place != 0)
        return;
    program->work.gpu_begun = program->work.gpu_left;
    sim_share_add(&program->card->gpu, &program->work.gpu_job, program->work.gpu_left);
}

static void gpu_pause(struct sim_program *program)
{
    if (program->work.gpu_job.node.place == 0)
        return;
    program->work.gpu_left = sim_share_remove(&program->card->gpu, &program->work.gpu_job);
    gpu_count(program, program->work.gpu_left);
}

/* A gang gets on while all of it that has GPU work may compute; each waits for the others. */
static void gang_update(struct sim_program *program)
{
    bool all = true;

    for (struct sim_program *each = program;;) {
        all &= each->work.phase != SIM_GPU || each->work.may_compute;
        each = each->work.gang_next;
        if (each == program)
            break;
    }
    for (struct sim_program *each = program;;) {
        if (all)
            gpu_start(each);
        else
            gpu_pause(each);
        each = each->work.gang_next;
        if (each == program)
            break;
    }
}

void sim_work_compute(struct sim_program *program)
{
    if (program->work.phase != SIM_GPU || program->work.may_compute)
        return;
    program->work.may_compute = true;
    gang_update(program);
}

void sim_work_halt(struct sim_program *program)
{
    if (!program->work.may_compute)
        return;
    program->work.may_compute = false;
    gang_update(program);
    gpu_pause(program);
}

void sim_work_settle(struct sim_program *program)
{
    const uint64_t now = now_of(program);

    if (program->work.gpu_job.node.place != 0)
        gpu_count(program, sim_share_left(&program->card->gpu, &program->work.gpu_job));
    if (program->work.phase == SIM_CPU) {
        program->figures.cpu_ns += (double)(now - program->work.cpu_began);
        program->work.cpu_began = now;
    }
}

static void gpu_done(void *owner)
{
    struct sim_program *program = owner;

    gpu_count(program, 0);
    program->work.gpu_left = 0;
    program->work.phase = SIM_REST;
    program->work.may_compute = false;
    cycle_next(program);
    if (program->work.phase != SIM_GPU && program->work.phase != SIM_GONE)
        program->world->way->rests(program);
}

static void gpu_begin(struct sim_program *program)
{
    program->work.cycles++;
    program->work.phase = SIM_GPU;
    program->work.gpu_left = (double)(program->work.gpu_next == 0 ? 1 : program->work.gpu_next);
    program->world->way->wants(program);
    gang_update(program);
}

/* --- requests --- */

static void request_done(struct sim_program *program)
{
    struct sim_world *world = program->world;
    const uint64_t arrived = program->asked.due[program->asked.first];

    program->asked.serving = false;
    program->asked.first++;
    program->asked.count--;
    program->figures.requests++;
    if (arrived < world->window_began)
        return;
    sim_samples_add(&world->latency, (double)(now_of(program) - arrived));
    sim_samples_add(&world->ideal, (double)(program->asked.ideal_free - arrived));
    sim_samples_add(&program->asked.latency, (double)(now_of(program) - arrived));
    sim_samples_add(&program->asked.ideal, (double)(program->asked.ideal_free - arrived));
}

/* When a card of its own would be done with the request that begins now: the work, and the bus
 * for what is not there. */
static void request_begin(struct sim_program *program, uint64_t work_ns)
{
    const uint64_t arrived = program->asked.due[program->asked.first];
    const double missing = (double)(program->memory.demand - program->memory.resident);

    program->asked.serving = true;
    if (program->asked.ideal_free < arrived)
        program->asked.ideal_free = arrived;
    program->asked.ideal_free +=
        work_ns + (uint64_t)(missing / (double)program->world->scenario->bus_in * 1e9);
}

static void request_queue(struct sim_program *program)
{
    if (program->asked.first + program->asked.count == program->asked.room) {
        program->asked.room = 2 * program->asked.count + 16;
        if (program->asked.first != 0)
            memmove(program->asked.due, program->asked.due + program->asked.first,
                    program->asked.count * sizeof program->asked.due[0]);
        program->asked.first = 0;
        program->asked.due =
            sim_more(program->asked.due, program->asked.room, sizeof program->asked.due[0]);
    }
    program->asked.due[program->asked.first + program->asked.count++] = now_of(program);
}

static void request_arrives(void *owner)
{
    struct sim_program *program = owner;
    const bool rests = program->asked.count == 0;

    for (uint64_t i = 0; i < program->class->cluster; i++)
        request_queue(program);
    sim_clock_set(&program->world->clock, &program->asked.arrival_timer,
                  now_of(program) + sim_draw(&program->class->request, &program->arrivals,
                                             ++program->asked.arrivals));
    if (program->work.phase == SIM_REST && rests)
        cycle_next(program);
}

/* --- cycles --- */

static void leave_world(struct sim_program *program)
{
    struct sim_world *world = program->world;

    program->work.phase = SIM_GONE;
    program->ended = now_of(program);
    sim_clock_cancel(&world->clock, &program->asked.arrival_timer);
    world->finished++;
    world->way->leave(program);
}

static void cpu_done(void *owner)
{
    struct sim_program *program = owner;

    program->figures.cpu_ns += (double)(now_of(program) - program->work.cpu_began);
    gpu_begin(program);
}

static bool has_cycles(const struct sim_program *program)
{
    if (program->class->burst_count != 0)
        return program->work.cycles < program->class->burst_count;
    return program->class->cycles == 0 || program->work.cycles < program->class->cycles;
}

/* CPU time that passes while the card has still work of the cycle before. */
static uint64_t hide_cpu(const struct sim_program *program, uint64_t cpu)
{
    const uint64_t hidden = program->class->ahead_ns;

    return cpu > hidden ? cpu - hidden : 0;
}

/* Of values that come one after the other each goes for a whole request, or from one pause to the next. */
static uint64_t draw_number(const struct sim_program *program)
{
    if (program->class->request.a > 0)
        return program->figures.requests;
    return program->class->pause_every != 0 ? program->work.pauses : program->work.cycles;
}

/* The work of the next cycle. */
static uint64_t cycle_draw(struct sim_program *program)
{
    const struct sim_class *class = program->class;
    const uint64_t number = draw_number(program);
    uint64_t cpu;

    if (class->burst_count != 0) {
        program->work.gpu_next = class->bursts[program->work.cycles].gpu_ns;
        return class->bursts[program->work.cycles].cpu_ns;
    }
    cpu = hide_cpu(program, sim_draw(&class->cpu, &program->random, number));
    program->work.gpu_next = sim_draw(&class->gpu, &program->random, number);
    if (class->pause_every != 0 &&
        program->work.cycles % class->pause_every == class->pause_every - 1)
        cpu += sim_draw(&class->pause, &program->random, program->work.pauses++);
    return cpu;
}

static void cycle_next(struct sim_program *program)
{
    uint64_t cpu;

    if (program->asked.serving && program->work.kernels == 0)
        request_done(program);
    if (!has_cycles(program)) {
        leave_world(program);
        return;
    }
    if (program->class->request.a > 0 && program->asked.count == 0)
        return; /* rests until the next request */
    cpu = cycle_draw(program);
    if (program->asked.serving) {
        program->work.kernels--;
        program->asked.ideal_free += cpu + program->work.gpu_next;
    } else if (program->class->request.a > 0) {
        program->work.kernels = program->class->kernels - 1;
        request_begin(program, cpu + program->work.gpu_next);
    }
    if (cpu == 0) {
        gpu_begin(program);
        return;
    }
    program->work.phase = SIM_CPU;
    program->work.cpu_began = now_of(program);
    sim_clock_set(&program->world->clock, &program->work.phase_timer, now_of(program) + cpu);
}

static void arrive_request(void *owner)
{
    struct sim_program *program = owner;

    program->work.phase = SIM_REST;
    program->work.phase_timer.fire = cpu_done;
    program->started = now_of(program);
    program->world->arrived++;
    program->world->way->arrive(program);
    if (program->class->request.a > 0)
        sim_clock_set(&program->world->clock, &program->asked.arrival_timer,
                      now_of(program) +
                          sim_draw(&program->class->request, &program->arrivals, 0));
    else
        cycle_next(program);
}

void sim_work_init(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;

    program->work.phase = SIM_GONE;
    program->work.gang_next = program;
    program->work.gpu_job =
        (struct sim_job){.load = program->class->busy, .done = gpu_done, .owner = program};
    sim_timer_init(&program->work.phase_timer, arrive_request, program);
    sim_clock_set(clock, &program->work.phase_timer, program->started);
    sim_timer_init(&program->asked.arrival_timer, request_arrives, program);
}
