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

static void reconcile_program(struct sim_program *program);

static uint64_t now_of(const struct sim_program *program)
{
    return program->world->clock.now_ns;
}

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool may_run(const struct sim_program *program)
{
    return (program->link.flags & GS_TARGET_RUN) != 0;
}

static bool has_work(const struct sim_program *program)
{
    return program->work.phase == SIM_GPU;
}

/* --- reports --- */

static void report_state(struct sim_program *program)
{
    const struct sim_card *card = program->card;
    const bool moving =
        (may_run(program) && program->memory.resident < program->memory.demand) ||
        (!program->link.running && program->memory.resident > program->memory.budget);
    const bool want = has_work(program) || (program->link.running && !program->link.idle);
    struct gs_wire_state state = {
        .header = {.magic = GS_WIRE_MAGIC,
                   .version = GS_WIRE_VERSION,
                   .type = GS_WIRE_STATE,
                   .length = sizeof state},
        .target_seq = program->link.seq,
        .flags = (program->link.running ? GS_STATE_RUNNING : 0) | (want ? GS_STATE_WANT : 0) |
                 (moving ? GS_STATE_MOVING : 0),
        .device_total = card->world->scenario->memory,
        .device_free = UINT64_MAX,
        .demand = program->memory.demand,
        .resident = program->memory.resident,
        .moved_out = program->figures.moved_out,
        .moved_in = program->figures.moved_in,
        .switch_ns = program->link.switch_ns,
        .host_used = program->memory.on_host,
        .host_wanted = program->memory.on_host,
        .device_name = "simulated",
    };

    sim_card_uuid(card->index, state.uuid);
    if (state.flags == program->link.sent.flags &&
        state.target_seq == program->link.sent.target_seq &&
        state.demand == program->link.sent.demand &&
        state.resident == program->link.sent.resident)
        return;
    program->link.sent = state;
    sim_world_send(program, &state);
}

/* --- stopping --- */

static void note_stopped(void *owner)
{
    struct sim_program *program = owner;

    sim_work_halt(program);
    sim_world_running(program, false);
    sim_world_waiting(program, has_work(program));
    reconcile_program(program);
}

/* The gate closes at once; what has been submitted goes on for a while. */
static void stop_begin(struct sim_program *program)
{
    uint64_t after = 0;

    if (sim_timer_is_set(&program->link.stop_timer))
        return;
    if (has_work(program))
        after = sim_draw(&program->class->stop, &program->noise, program->figures.turns);
    sim_clock_set(&program->world->clock, &program->link.stop_timer, now_of(program) + after);
}

/* It may run on after all. */
static void stop_cancel(struct sim_program *program)
{
    sim_clock_cancel(&program->world->clock, &program->link.stop_timer);
    sim_world_waiting(program, false);
    sim_work_compute(program);
}

/* --- moving --- */

/* How many of the bytes on their way out must be copied: those without a host copy, but for the
 * ones that are all zero; of the others what has changed since. */
static double copy_out(struct sim_program *program, uint64_t bytes)
{
    const uint64_t outside =
        program->memory.demand - program->memory.resident - program->memory.fresh;
    const uint64_t with_copy =
        smaller_of(bytes, program->memory.on_host - outside); /* these go first */
    const uint64_t without = bytes - with_copy;

    program->memory.on_host += without;
    return (1 - program->class->zero) *
           ((double)with_copy * program->class->dirty + (double)without);
}

/* Memory that was never touched needs no copy in, nor does memory that holds the bytes already. */
static double copy_in(struct sim_program *program, uint64_t bytes)
{
    const uint64_t fresh = smaller_of(bytes, program->memory.fresh);

    program->memory.fresh -= fresh;
    return (1 - program->class->zero) * (1 - program->class->saved) * (double)(bytes - fresh);
}

static void step_done(void *owner)
{
    struct sim_program *program = owner;
    const bool out = program->memory.moving_out;

    program->memory.moving_out = program->memory.moving_in = false;
    program->memory.moving_ns += now_of(program) - program->memory.step_began;
    if (out) {
        sim_world_resident(program, program->memory.resident - program->memory.step_bytes);
        program->memory.was_out = true;
    } else {
        sim_world_resident(program, program->memory.resident + program->memory.step_bytes);
    }
    if (program->link.has_news) {
        program->link.has_news = false;
        sim_client_target(program, &program->link.news);
    } else {
        reconcile_program(program);
    }
}

static void note_copied(void *owner)
{
    struct sim_program *program = owner;

    sim_clock_set(&program->world->clock, &program->memory.step_timer,
                  now_of(program) + program->world->scenario->map_ns);
}

static void step_begin(struct sim_program *program, bool out, uint64_t bytes)
{
    const double copy = out ? copy_out(program, bytes) : copy_in(program, bytes);

    program->memory.moving_out = out;
    program->memory.moving_in = !out;
    program->memory.step_began = now_of(program);
    program->memory.step_bytes = bytes;
    *(out ? &program->figures.moved_out : &program->figures.moved_in) += (uint64_t)copy;
    if (copy > 0)
        sim_share_add(out ? &program->card->out : &program->card->in, &program->memory.copy_job,
                      copy);
    else
        note_copied(program);
}

/* One step: whole chunks, and out rather one more than one less. True: something moves. */
static bool move_memory(struct sim_program *program)
{
    uint64_t bytes, room;

    if (program->memory.moving_out || program->memory.moving_in)
        return true;
    if (!program->link.running && program->memory.resident > program->memory.budget) {
        bytes = (program->memory.resident - program->memory.budget + CHUNK - 1) / CHUNK * CHUNK;
        step_begin(program, true,
                   smaller_of(smaller_of(bytes, program->memory.resident), STEP_BYTES));
        return true;
    }
    if (!may_run(program) || program->memory.resident >= program->memory.demand ||
        program->memory.budget <= program->memory.resident)
        return false;
    room = program->memory.budget - program->memory.resident;
    bytes = program->memory.demand - program->memory.resident;
    if (bytes > room)
        bytes = room / CHUNK * CHUNK;
    bytes = smaller_of(bytes, STEP_BYTES);
    if (bytes == 0)
        return false;
    step_begin(program, false, bytes);
    return true;
}

/* --- running --- */

static void open_gate(struct sim_program *program)
{
    if (program->memory.was_out)
        program->link.switch_ns = program->memory.moving_ns;
    program->memory.was_out = false;
    program->memory.moving_ns = 0;
    sim_world_waiting(program, false);
    sim_world_running(program, true);
    sim_work_compute(program);
}

static void idle_now(void *owner)
{
    struct sim_program *program = owner;

    program->link.idle = true;
    report_state(program);
}

/* Where turns are taken: idle after idle_ns without work. */
static void watch_idleness(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;

    if (!program->link.running || program->link.idle_ns == 0 || has_work(program)) {
        program->link.idle = false;
        program->link.active_at = now_of(program);
        sim_clock_cancel(clock, &program->link.idle_timer);
    } else if (!program->link.idle && !sim_timer_is_set(&program->link.idle_timer)) {
        sim_clock_set(clock, &program->link.idle_timer,
                      program->link.active_at + program->link.idle_ns);
    }
}

static void reconcile_program(struct sim_program *program)
{
    if (!may_run(program) && program->link.running)
        stop_begin(program);
    else if (may_run(program) && sim_timer_is_set(&program->link.stop_timer))
        stop_cancel(program);
    if (!move_memory(program) && may_run(program) && !program->link.running &&
        program->memory.resident == program->memory.demand)
        open_gate(program);
    watch_idleness(program);
    report_state(program);
    sim_move_suspended(program);
}

void sim_client_moved(struct sim_program *program)
{
    reconcile_program(program);
}

void sim_client_target(struct sim_program *program, const struct gs_wire_target *target)
{
    if (program->memory.moving_out || program->memory.moving_in) {
        program->link.news = *target;
        program->link.has_news = true;
        return;
    }
    if (target->seq <= program->link.seq)
        sim_world_failed(program->world, "program %u: target %u after %u", program->index,
                         target->seq, program->link.seq);
    program->link.seq = target->seq;
    program->link.flags = target->flags;
    program->memory.budget = target->budget;
    program->link.idle_ns = target->idle_ns;
    reconcile_program(program);
}

/* --- the way --- */

static void arrive_program(struct sim_program *program)
{
    program->memory.demand = program->memory.fresh = program->class->memory;
    sim_world_connect(program);
    report_state(program);
}

static void wants_gpu(struct sim_program *program)
{
    if (program->link.running && !sim_timer_is_set(&program->link.stop_timer))
        sim_work_compute(program);
    else
        sim_world_waiting(program, true);
    reconcile_program(program);
}

static void rests_now(struct sim_program *program)
{
    program->link.active_at = now_of(program);
    if (sim_timer_is_set(&program->link.stop_timer)) /* nothing left to wait for */
        sim_clock_set(&program->world->clock, &program->link.stop_timer, now_of(program));
    reconcile_program(program);
}

static void leave_program(struct sim_program *program)
{
    struct sim_clock *clock = &program->world->clock;

    sim_clock_cancel(clock, &program->link.stop_timer);
    sim_clock_cancel(clock, &program->link.idle_timer);
    sim_clock_cancel(clock, &program->memory.step_timer);
    sim_share_remove(program->memory.moving_out ? &program->card->out : &program->card->in,
                     &program->memory.copy_job);
    program->memory.moving_out = program->memory.moving_in = program->link.has_news = false;
    if (program->link.running)
        sim_world_running(program, false);
    sim_world_waiting(program, false);
    sim_world_resident(program, 0);
    sim_world_disconnect(program);
}

const struct sim_way sim_way_gpushare = {arrive_program, wants_gpu, rests_now, leave_program};

void sim_client_init(struct sim_program *program)
{
    program->memory.copy_job =
        (struct sim_job){.load = 1, .done = note_copied, .owner = program};
    sim_timer_init(&program->link.stop_timer, note_stopped, program);
    sim_timer_init(&program->link.idle_timer, idle_now, program);
    sim_timer_init(&program->memory.step_timer, step_done, program);
}
