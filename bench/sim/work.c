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

uint64_t sim_draw(const struct sim_spread *spread, uint64_t *random)
{
    switch (spread->kind) {
    case SIM_EXPONENTIAL:
        return (uint64_t)(-log(1 - sim_random(random)) * spread->a);
    case SIM_UNIFORM:
        return (uint64_t)(spread->a + sim_random(random) * (spread->b - spread->a));
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
    program->figures.gpu_ns += program->gpu_begun - left;
    program->gpu_begun = left;
}

static void gpu_start(struct sim_program *program)
{
    if (program->phase != SIM_GPU || program->gpu_job.node.place != 0)
        return;
    program->gpu_begun = program->gpu_left;
    sim_share_add(&program->card->gpu, &program->gpu_job, program->gpu_left);
}

static void gpu_pause(struct sim_program *program)
{
    if (program->gpu_job.node.place == 0)
        return;
    program->gpu_left = sim_share_remove(&program->card->gpu, &program->gpu_job);
    gpu_count(program, program->gpu_left);
}

/* A gang gets on while all of it that has GPU work may compute; each waits for the others. */
static void gang_update(struct sim_program *program)
{
    bool all = true;

    for (struct sim_program *each = program;;) {
        all &= each->phase != SIM_GPU || each->may_compute;
        each = each->gang_next;
        if (each == program)
            break;
    }
    for (struct sim_program *each = program;;) {
        if (all)
            gpu_start(each);
        else
            gpu_pause(each);
        each = each->gang_next;
        if (each == program)
            break;
    }
}

void sim_work_compute(struct sim_program *program)
{
    if (program->phase != SIM_GPU || program->may_compute)
        return;
    program->may_compute = true;
    gang_update(program);
}

void sim_work_halt(struct sim_program *program)
{
    if (!program->may_compute)
        return;
    program->may_compute = false;
    gang_update(program);
    gpu_pause(program);
}

void sim_work_settle(struct sim_program *program)
{
    const uint64_t now = now_of(program);

    if (program->gpu_job.node.place != 0)
        gpu_count(program, sim_share_left(&program->card->gpu, &program->gpu_job));
    if (program->phase == SIM_CPU) {
        program->figures.cpu_ns += (double)(now - program->cpu_began);
        program->cpu_began = now;
    }
}

static void gpu_done(void *owner)
{
    struct sim_program *program = owner;

    gpu_count(program, 0);
    program->gpu_left = 0;
    program->phase = SIM_REST;
    program->may_compute = false;
    cycle_next(program);
    if (program->phase != SIM_GPU && program->phase != SIM_GONE)
        program->world->way->rests(program);
}

static void gpu_begin(struct sim_program *program)
{
    program->cycles++;
    program->phase = SIM_GPU;
    program->gpu_left = (double)(program->gpu_next == 0 ? 1 : program->gpu_next);
    program->world->way->wants(program);
    gang_update(program);
}

/* --- requests --- */

static void request_done(struct sim_program *program)
{
    struct sim_world *world = program->world;
    const uint64_t arrived = program->requests[program->request_first];

    program->serving = false;
    program->request_first++;
    program->request_count--;
    program->figures.requests++;
    if (arrived < world->window_began)
        return;
    sim_samples_add(&world->latency, (double)(now_of(program) - arrived));
    sim_samples_add(&world->ideal, (double)(program->ideal_free - arrived));
    sim_samples_add(&program->latency, (double)(now_of(program) - arrived));
    sim_samples_add(&program->ideal, (double)(program->ideal_free - arrived));
}

/* When a card of its own would be done with the request that begins now: the work, and the bus
 * for what is not there. */
static void request_begin(struct sim_program *program, uint64_t work_ns)
{
    const uint64_t arrived = program->requests[program->request_first];
    const double missing = (double)(program->demand - program->resident);

    program->serving = true;
    if (program->ideal_free < arrived)
        program->ideal_free = arrived;
    program->ideal_free +=
        work_ns + (uint64_t)(missing / (double)program->world->scenario->bus_in * 1e9);
}

static void request_queue(struct sim_program *program)
{
    if (program->request_first + program->request_count == program->request_room) {
        program->request_room = 2 * program->request_count + 16;
        if (program->request_first != 0)
            memmove(program->requests, program->requests + program->request_first,
                    program->request_count * sizeof program->requests[0]);
        program->request_first = 0;
        program->requests =
            sim_more(program->requests, program->request_room, sizeof program->requests[0]);
    }
    program->requests[program->request_first + program->request_count++] = now_of(program);
}

static void request_arrives(void *owner)
{
    struct sim_program *program = owner;
    const bool rests = program->request_count == 0;

    for (uint64_t i = 0; i < program->class->cluster; i++)
        request_queue(program);
    sim_clock_set(&program->world->clock, &program->arrival_timer,
                  now_of(program) + sim_draw(&program->class->request, &program->arrivals));
    if (program->phase == SIM_REST && rests)
        cycle_next(program);
}

/* --- cycles --- */

static void leave(struct sim_program *program)
{
    struct sim_world *world = program->world;

    program->phase = SIM_GONE;
    program->ended = now_of(program);
    sim_clock_cancel(&world->clock, &program->arrival_timer);
    world->finished++;
    world->way->leave(program);
}

static void cpu_done(void *owner)
{
    struct sim_program *program = owner;

    program->figures.cpu_ns += (double)(now_of(program) - program->cpu_began);
    gpu_begin(program);
}

static bool has_cycles(const struct sim_program *program)
{
    if (program->class->burst_count != 0)
        return program->cycles < program->class->burst_count;
    return program->class->cycles == 0 || program->cycles < program->class->cycles;
}

/* CPU time that passes while the card has still work of the cycle before. */
static uint64_t hide_cpu(const struct sim_program *program, uint64_t cpu)
{
    uint64_t hidden = program->class->ahead_ns;

    if (program->yield_ns != 0 && hidden > program->yield_ns)
        hidden = program->yield_ns;
    return cpu > hidden ? cpu - hidden : 0;
}

/* The work of the next cycle. */
static uint64_t cycle_draw(struct sim_program *program)
{
    const struct sim_class *class = program->class;
    uint64_t cpu;

    if (class->burst_count != 0) {
        program->gpu_next = class->bursts[program->cycles].gpu_ns;
        return class->bursts[program->cycles].cpu_ns;
    }
    cpu = hide_cpu(program, sim_draw(&class->cpu, &program->random));
    program->gpu_next = sim_draw(&class->gpu, &program->random);
    if (class->pause_every != 0 &&
        program->cycles % class->pause_every == class->pause_every - 1)
        cpu += sim_draw(&class->pause, &program->random);
    return cpu;
}

static void cycle_next(struct sim_program *program)
{
    uint64_t cpu;

    if (program->serving && program->kernels == 0)
        request_done(program);
    if (!has_cycles(program)) {
        leave(program);
        return;
    }
    if (program->class->request.a > 0 && program->request_count == 0)
        return; /* rests until the next request */
    cpu = cycle_draw(program);
    if (program->serving) {
        program->kernels--;
        program->ideal_free += cpu + program->gpu_next;
    } else if (program->class->request.a > 0) {
        program->kernels = program->class->kernels - 1;
        request_begin(program, cpu + program->gpu_next);
    }
    if (cpu == 0) {
        gpu_begin(program);
        return;
    }
    program->phase = SIM_CPU;
    program->cpu_began = now_of(program);
    sim_clock_set(&program->world->clock, &program->phase_timer, now_of(program) + cpu);
}

static void arrive(void *owner)
{
    struct sim_program *program = owner;

    program->phase = SIM_REST;
    program->phase_timer.fire = cpu_done;
    program->started = now_of(program);
    program->world->arrived++;
    program->world->way->arrive(program);
    if (program->class->request.a > 0)
        sim_clock_set(&program->world->clock, &program->arrival_timer,
                      now_of(program) + sim_draw(&program->class->request, &program->arrivals));
    else
        cycle_next(program);
}

void sim_work_init(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;

    program->phase = SIM_GONE;
    program->gang_next = program;
    program->gpu_job =
        (struct sim_job){.load = program->class->busy, .done = gpu_done, .owner = program};
    sim_timer_init(&program->phase_timer, arrive, program);
    sim_clock_set(clock, &program->phase_timer, program->started);
    sim_timer_init(&program->arrival_timer, request_arrives, program);
}
