/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: the runtime library's side of lockd/protocol/wire.h as a model: what runtime/client/reconcile.c,
 * swap.c and report.c do, with times from the scenario instead of a card.
 *
 * Invariants: memory moves out only while `running` is off; resident never grows beyond the
 * newest budget read; a target is read between two steps of moving, as the real client thread
 * does; it runs only when all of its memory is there.
 */
#include "bench/sim/sim.h"

#include <string.h>

#define CHUNK      (64ull << 20) /* runtime/range/range.h */
#define STEP_BYTES (4 * CHUNK)   /* runtime/swap/swap.h */

static void reconcile(struct sim_program *program);

static uint64_t now_of(const struct sim_program *program)
{
    return program->world->clock.now_ns;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool may_run(const struct sim_program *program)
{
    return (program->flags & GS_TARGET_RUN) != 0;
}

static bool has_work(const struct sim_program *program)
{
    return program->phase == SIM_GPU;
}

/* --- reports --- */

static void report(struct sim_program *program)
{
    const struct sim_card *card = program->card;
    const bool moving = (may_run(program) && program->resident < program->demand) ||
                        (!program->running && program->resident > program->budget);
    const bool want = has_work(program) || (program->running && !program->idle);
    struct gs_wire_state state = {
        .header = {.magic = GS_WIRE_MAGIC,
                   .version = GS_WIRE_VERSION,
                   .type = GS_WIRE_STATE,
                   .length = sizeof state},
        .target_seq = program->seq,
        .flags = (program->running ? GS_STATE_RUNNING : 0) | (want ? GS_STATE_WANT : 0) |
                 (moving ? GS_STATE_MOVING : 0),
        .device_total = card->world->scenario->memory,
        .device_free = UINT64_MAX,
        .demand = program->demand,
        .resident = program->resident,
        .moved_out = program->figures.moved_out,
        .moved_in = program->figures.moved_in,
        .switch_ns = program->switch_ns,
        .host_used = program->on_host,
        .host_wanted = program->on_host,
        .device_name = "simulated",
    };

    sim_card_uuid(card->index, state.uuid);
    if (state.flags == program->sent.flags && state.target_seq == program->sent.target_seq &&
        state.demand == program->sent.demand && state.resident == program->sent.resident)
        return;
    program->sent = state;
    sim_world_send(program, &state);
}

/* --- stopping --- */

static void stopped(void *owner)
{
    struct sim_program *program = owner;

    sim_work_halt(program);
    sim_world_running(program, false);
    sim_world_waiting(program, has_work(program));
    reconcile(program);
}

/* The gate closes at once; what has been submitted goes on for a while. */
static void stop_begin(struct sim_program *program)
{
    uint64_t after = 0;

    if (sim_timer_is_set(&program->stop_timer))
        return;
    if (has_work(program))
        after = sim_draw(&program->class->stop, &program->noise);
    if (program->yield_ns != 0)
        after = smaller(after, program->yield_ns);
    sim_clock_set(&program->world->clock, &program->stop_timer, now_of(program) + after);
}

/* It may run on after all. */
static void stop_cancel(struct sim_program *program)
{
    sim_clock_cancel(&program->world->clock, &program->stop_timer);
    sim_world_waiting(program, false);
    sim_work_compute(program);
}

/* --- moving --- */

/* How many of the bytes on their way out must be copied: those without a host copy, but for the
 * ones that are all zero; of the others what has changed since. */
static double copy_out(struct sim_program *program, uint64_t bytes)
{
    const uint64_t outside = program->demand - program->resident - program->fresh;
    const uint64_t with_copy = smaller(bytes, program->on_host - outside); /* these go first */
    const uint64_t without = bytes - with_copy;

    program->on_host += without;
    return (1 - program->class->zero) *
           ((double)with_copy * program->class->dirty + (double)without);
}

/* Memory that was never touched needs no copy in. */
static double copy_in(struct sim_program *program, uint64_t bytes)
{
    const uint64_t fresh = smaller(bytes, program->fresh);

    program->fresh -= fresh;
    return (1 - program->class->zero) * (double)(bytes - fresh);
}

static void step_done(void *owner)
{
    struct sim_program *program = owner;
    const bool out = program->moving_out;

    program->moving_out = program->moving_in = false;
    program->moving_ns += now_of(program) - program->step_began;
    if (out) {
        sim_world_resident(program, program->resident - program->step_bytes);
        program->was_out = true;
    } else {
        sim_world_resident(program, program->resident + program->step_bytes);
    }
    if (program->has_news) {
        program->has_news = false;
        sim_client_target(program, &program->news);
    } else {
        reconcile(program);
    }
}

static void copied(void *owner)
{
    struct sim_program *program = owner;

    sim_clock_set(&program->world->clock, &program->step_timer,
                  now_of(program) + program->world->scenario->map_ns);
}

static void step_begin(struct sim_program *program, bool out, uint64_t bytes)
{
    const double copy = out ? copy_out(program, bytes) : copy_in(program, bytes);

    program->moving_out = out;
    program->moving_in = !out;
    program->step_began = now_of(program);
    program->step_bytes = bytes;
    *(out ? &program->figures.moved_out : &program->figures.moved_in) += (uint64_t)copy;
    if (copy > 0)
        sim_share_add(out ? &program->card->out : &program->card->in, &program->copy_job, copy);
    else
        copied(program);
}

/* One step: whole chunks, and out rather one more than one less. True: something moves. */
static bool move(struct sim_program *program)
{
    uint64_t bytes, room;

    if (program->moving_out || program->moving_in)
        return true;
    if (!program->running && program->resident > program->budget) {
        bytes = (program->resident - program->budget + CHUNK - 1) / CHUNK * CHUNK;
        step_begin(program, true, smaller(smaller(bytes, program->resident), STEP_BYTES));
        return true;
    }
    if (!may_run(program) || program->resident >= program->demand ||
        program->budget <= program->resident)
        return false;
    room = program->budget - program->resident;
    bytes = program->demand - program->resident;
    if (bytes > room)
        bytes = room / CHUNK * CHUNK;
    bytes = smaller(bytes, STEP_BYTES);
    if (bytes == 0)
        return false;
    step_begin(program, false, bytes);
    return true;
}

/* --- running --- */

static void open_gate(struct sim_program *program)
{
    if (program->was_out)
        program->switch_ns = program->moving_ns;
    program->was_out = false;
    program->moving_ns = 0;
    sim_world_waiting(program, false);
    sim_world_running(program, true);
    sim_work_compute(program);
}

static void idle_now(void *owner)
{
    struct sim_program *program = owner;

    program->idle = true;
    report(program);
}

/* Where turns are taken: idle after idle_ns without work. */
static void watch_idleness(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;

    if (!program->running || program->idle_ns == 0 || has_work(program)) {
        program->idle = false;
        program->active_at = now_of(program);
        sim_clock_cancel(clock, &program->idle_timer);
    } else if (!program->idle && !sim_timer_is_set(&program->idle_timer)) {
        sim_clock_set(clock, &program->idle_timer, program->active_at + program->idle_ns);
    }
}

static void reconcile(struct sim_program *program)
{
    if (!may_run(program) && program->running)
        stop_begin(program);
    else if (may_run(program) && sim_timer_is_set(&program->stop_timer))
        stop_cancel(program);
    if (!move(program) && may_run(program) && !program->running &&
        program->resident == program->demand)
        open_gate(program);
    watch_idleness(program);
    report(program);
    sim_move_suspended(program);
}

void sim_client_moved(struct sim_program *program)
{
    reconcile(program);
}

void sim_client_target(struct sim_program *program, const struct gs_wire_target *target)
{
    if (program->moving_out || program->moving_in) {
        program->news = *target;
        program->has_news = true;
        return;
    }
    if (target->seq <= program->seq)
        sim_world_failed(program->world, "program %u: target %u after %u", program->index,
                         target->seq, program->seq);
    program->seq = target->seq;
    program->flags = target->flags;
    program->budget = target->budget;
    program->idle_ns = target->idle_ns;
    program->yield_ns = target->yield_ns;
    reconcile(program);
}

/* --- the way --- */

static void arrive(struct sim_program *program)
{
    program->demand = program->fresh = program->class->memory;
    sim_world_connect(program);
    report(program);
}

static void wants(struct sim_program *program)
{
    if (program->running && !sim_timer_is_set(&program->stop_timer))
        sim_work_compute(program);
    else
        sim_world_waiting(program, true);
    reconcile(program);
}

static void rests(struct sim_program *program)
{
    program->active_at = now_of(program);
    if (sim_timer_is_set(&program->stop_timer)) /* nothing left to wait for */
        sim_clock_set(&program->world->clock, &program->stop_timer, now_of(program));
    reconcile(program);
}

static void leave(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;

    sim_clock_cancel(clock, &program->stop_timer);
    sim_clock_cancel(clock, &program->idle_timer);
    sim_clock_cancel(clock, &program->step_timer);
    sim_share_remove(program->moving_out ? &program->card->out : &program->card->in,
                     &program->copy_job);
    program->moving_out = program->moving_in = program->has_news = false;
    if (program->running)
        sim_world_running(program, false);
    sim_world_waiting(program, false);
    sim_world_resident(program, 0);
    sim_world_disconnect(program);
}

const struct sim_way sim_way_gpushare = {arrive, wants, rests, leave};

void sim_client_init(struct sim_program *program)
{
    program->copy_job = (struct sim_job){.load = 1, .done = copied, .owner = program};
    sim_timer_init(&program->stop_timer, stopped, program);
    sim_timer_init(&program->idle_timer, idle_now, program);
    sim_timer_init(&program->step_timer, step_done, program);
}
