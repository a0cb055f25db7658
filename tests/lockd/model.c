/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c: the modelled programs, their sockets (in order, with delays) and the clock. What
 * must hold is in model_check.c.
 *
 * One heap of events. A program's steps: drain, evict, bring in, open the gate; each takes time
 * and is followed by a report.
 */
#include "tests/lockd/model_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t real_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A delay of up to most, small ones more often. */
static uint64_t random_delay(struct model *model, uint64_t most)
{
    return 1000 + model_random(model, 1 + model_random(model, most));
}

/* The program writes its state to the socket. */
static void send_state(struct model *model, struct model_program *program, uint32_t device)
{
    struct model_side *side = &program->side[device];
    struct model_event event = {
        .kind = MODEL_STATE, .client = program->index, .device = device, .life = program->life};
    struct gs_wire_state *state = &event.state;

    if (program->client == NULL)
        return;
    if (side->resident == side->demand)
        side->short_bytes = 0;
    state->uuid[0] = (uint8_t)(device + 1);
    state->target_seq = side->seq;
    state->flags = (side->running ? GS_STATE_RUNNING : 0) | (side->want ? GS_STATE_WANT : 0) |
                   (side->moving ? GS_STATE_MOVING : 0) |
                   (side->short_bytes ? GS_STATE_SHORT : 0) |
                   (side->running && side->stuck_until > model->now ? GS_STATE_STUCK : 0);
    state->device_total = model->options.total;
    state->device_free = UINT64_MAX;
    if (model->options.measured)
        state->device_free = model->options.total - model_resident(model, device);
    state->demand = side->demand - side->kept;
    state->resident = side->resident - side->kept;
    state->pinned = side->kept;
    state->short_bytes = side->short_bytes;
    state->switch_ns = side->switch_ns;
    program->out_last =
        sched_max(program->out_last, model->now + random_delay(model, 2 * NS_PER_MS));
    event.at = program->out_last;
    model_push(model, event);
}

static void step_later(struct model *model, struct model_program *program, uint32_t device,
                       uint64_t ns)
{
    struct model_side *side = &program->side[device];

    if (side->step_at != 0 && side->step_at <= model->now + ns)
        return;
    side->step_at = model->now + ns;
    model_push(model, (struct model_event){.at = side->step_at,
                                           .kind = MODEL_STEP,
                                           .client = program->index,
                                           .device = device,
                                           .life = program->life});
}

static uint64_t move_time(const struct model *model, uint64_t bytes)
{
    return 1000 + bytes * 1000 / (model->options.bandwidth / 1000000);
}

static void begin_move(struct model *model, struct model_side *side)
{
    if (!side->moving)
        side->move_began = model->now;
    side->moving = true;
}

static void end_move(struct model *model, struct model_side *side)
{
    if (side->moving)
        side->switch_ns = model->now - side->move_began + 1;
    side->moving = false;
}

static void step_in(struct model *model, struct model_program *program, uint32_t device);

/* It cannot stop, and its next call needs more memory than it has: it goes on when that is
 * there. */
static void step_blocked(struct model *model, struct model_program *program, uint32_t device)
{
    struct model_side *side = &program->side[device];

    if (side->resident < model_room(side) && (side->flags & GS_TARGET_RUN) != 0)
        step_in(model, program, device);
    side->stuck_until = sched_max(side->stuck_until, model->now + 1000 * NS_PER_MS);
    send_state(model, program, device);
    step_later(model, program, device, 500 * NS_PER_MS);
}

static void step_running(struct model *model, struct model_program *program, uint32_t device)
{
    struct model_side *side = &program->side[device];

    if (side->resident < side->demand) {
        step_blocked(model, program, device);
    } else if ((side->flags & GS_TARGET_RUN) == 0) {
        if (side->stuck_until > model->now) {
            step_later(model, program, device, side->stuck_until - model->now);
        } else {
            side->running = false;
            side->want = side->work;
            step_later(model, program, device, 1000);
        }
        send_state(model, program, device);
    } else if (!side->work && side->want && side->idle_ns != 0) {
        if (model->now >= side->idle_since + side->idle_ns) {
            side->want = false; /* the gate may stay open until it is told */
            side->running = model_random(model, 2) == 0;
            send_state(model, program, device);
        } else {
            step_later(model, program, device, side->idle_since + side->idle_ns - model->now);
        }
    }
}

static void step_in(struct model *model, struct model_program *program, uint32_t device)
{
    struct model_side *side = &program->side[device];
    const uint64_t left = sched_min(side->demand, model_room(side)) - side->resident;
    const uint64_t chunk = sched_min(left, MODEL_CHUNK);

    if (model_resident(model, device) + chunk > model->options.total - model->options.hidden) {
        if (side->short_bytes == 0) {
            side->short_bytes = chunk;
            send_state(model, program, device);
        }
        step_later(model, program, device, 20 * NS_PER_MS);
        return;
    }
    side->short_bytes = 0;
    side->resident += chunk;
    if (chunk == left)
        end_move(model, side);
    else
        begin_move(model, side);
    if (side->resident == side->demand && !side->running) {
        side->running = true;
        model->figures.turns++;
    }
    send_state(model, program, device);
    step_later(model, program, device, move_time(model, MODEL_CHUNK));
}

static void step_side(struct model *model, struct model_program *program, uint32_t device)
{
    struct model_side *side = &program->side[device];

    side->step_at = 0;
    if (side->running) {
        step_running(model, program, device);
    } else if (side->resident > model_room(side)) {
        const uint64_t chunk = sched_min(side->resident - model_room(side), MODEL_CHUNK);

        if (model->options.keeps && model_random(model, 8) == 0)
            side->kept += chunk;
        else
            side->resident -= chunk;
        if (side->resident > model_room(side))
            begin_move(model, side);
        else
            end_move(model, side);
        send_state(model, program, device);
        step_later(model, program, device, move_time(model, chunk));
    } else if ((side->flags & GS_TARGET_RUN) != 0 && side->want) {
        if (side->resident < side->demand && side->resident < model_room(side)) {
            step_in(model, program, device);
        } else if (side->resident == side->demand) {
            side->running = true;
            model->figures.turns++;
            end_move(model, side);
            send_state(model, program, device);
        } else {
            side->moving = false;
        }
    } else {
        side->moving = false;
    }
}

static void take_target(struct model *model, struct model_program *program, uint32_t device,
                        const struct gs_wire_target *target)
{
    struct model_side *side = &program->side[device];

    model_check_target(model, side, target);
    side->seq = target->seq;
    side->flags = target->flags;
    side->budget = target->budget;
    side->kept = sched_min(side->kept, sched_less(side->resident, side->budget));
    side->idle_ns = target->idle_ns;
    if (side->running && model->options.stuck && (target->flags & GS_TARGET_RUN) == 0 &&
        side->stuck_until < model->now && model_random(model, 50) == 0)
        side->stuck_until = model->now + model_random(model, 30000 * NS_PER_MS);
    side->idle_since = model->now;
    send_state(model, program, device); /* the echo */
    step_later(model, program, device,
               side->running ? random_delay(model, 30 * NS_PER_MS)
                             : random_delay(model, NS_PER_MS));
}

void model_flush(struct model *model)
{
    struct sched_send send;

    while (sched_next_send(model->sched, &send)) {
        struct model_program *program = send.owner;

        model->figures.targets++;
        model_check_sent(model, program->client, &send.target);
        program->in_last =
            sched_max(program->in_last, model->now + random_delay(model, 2 * NS_PER_MS));
        model_push(model, (struct model_event){.at = program->in_last,
                                               .kind = MODEL_TARGET,
                                               .client = program->index,
                                               .device = (uint32_t)send.target.uuid[0] - 1,
                                               .life = program->life,
                                               .target = send.target});
    }
}

/* Without a random number, so that the programs are the same with classes and without. */
static uint32_t some_class(const struct model *model, const struct model_program *program)
{
    const uint64_t which = model->options.seed * 31 + 7ull * program->index + program->life;

    return model->options.classes && which % 3 == 0 ? GS_CLASS_BACKGROUND : GS_CLASS_AUTO;
}

void model_connect(struct model *model, struct model_program *program)
{
    program->life++;
    program->in_last = program->out_last = model->now;
    program->client = sched_client_add(model->sched, program);
    if (model->options.mixed || model->options.users > 1) {
        struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT,
                                      .priority = program->priority,
                                      .class = some_class(model, program)};

        memcpy(hello.group, program->group, sizeof program->group);
        sched_describe(program->client, &hello,
                       model->options.users > 1 ? 1 + program->index % model->options.users
                                                : 1);
    }
    for (uint32_t i = 0; i < model->options.devices; i++) {
        if (!model_uses(program, i))
            continue;
        program->side[i].step_at = 0;
        send_state(model, program, i);
        step_later(model, program, i, NS_PER_MS);
    }
}

/* It lacks memory and cannot stop before it got it. Two at a time could block each other, and
 * nobody could help them. */
static bool may_be_blocked(const struct model *model, uint32_t device, uint64_t demand)
{
    for (uint32_t i = 0; i < model->options.clients; i++) {
        const struct model_side *side = &model->programs[i].side[device];

        if (side->running && side->resident < side->demand)
            return false;
    }
    return demand <= model->options.total;
}

void model_want(struct model *model, struct model_program *program, uint32_t device, bool work)
{
    struct model_side *side = &program->side[device];

    model->causes++;
    side->work = work;
    side->idle_since = model->now;
    if (!work && side->running)
        side->demand = side->resident; /* it gives up what it was blocked for */
    if (work)
        side->want = true;
    else if (!side->running || (side->flags & GS_TARGET_RUN) == 0)
        side->want = false; /* a running one says so only when others wait */
    send_state(model, program, device);
    step_later(model, program, device, sched_max(side->idle_ns, 1000));
}

void model_resize(struct model *model, struct model_program *program, uint32_t device,
                  uint64_t demand)
{
    struct model_side *side = &program->side[device];

    model->causes++;
    if (demand > side->resident && side->running && side->stuck_until > model->now &&
        !may_be_blocked(model, device, demand))
        return;
    if (demand > side->demand && side->running) {
        if (demand <= model_room(side) &&
            model_resident(model, device) + demand - side->demand <=
                model->options.total - model->options.hidden)
            side->resident = demand;
        else if (side->stuck_until <= model->now) /* else it can not even stop */
            side->running = false;
    }
    side->demand = demand;
    side->resident = sched_min(side->resident, demand);
    side->kept = sched_min(side->kept, side->resident);
    send_state(model, program, device);
    step_later(model, program, device, 1000);
}

void model_finds_a_place(struct model *model, struct model_program *program, uint32_t device)
{
    struct model_side *side = &program->side[device];

    if (side->running)
        return; /* nothing leaves meanwhile */
    side->resident -= side->kept;
    side->kept = 0;
    send_state(model, program, device);
    step_later(model, program, device, 1000);
}

static void tick_scheduler(struct model *model)
{
    uint64_t deadline;

    model->ticks += sched_deadline(model->sched) <= model->now;
    sched_tick(model->sched, model->now);
    model_flush(model);
    deadline = sched_deadline(model->sched);
    model_check_deadline(model, deadline);
    if (deadline == LOCKD_NEVER || deadline == model->tick_at)
        return;
    model->tick_at = sched_max(deadline, model->now + 1);
    model_push(model, (struct model_event){.at = model->tick_at, .kind = MODEL_TICK});
}

static void deliver_state(struct model *model, struct model_program *program,
                          const struct model_event *event)
{
    const uint64_t began = real_now();
    uint64_t took;

    if (sched_state(program->client, &event->state, model->now) != 0)
        abort();
    took = real_now() - began;
    model->figures.states++;
    model->figures.decision_ns += took;
    model->figures.decision_worst_ns = sched_max(model->figures.decision_worst_ns, took);
    model->took[sched_min(took / 100, MODEL_TIMES)]++;
    model_flush(model);
}

static void handle_event(struct model *model, const struct model_event *event)
{
    struct model_program *program = &model->programs[event->client];

    if (event->kind == MODEL_TICK || event->kind == MODEL_MIND) {
        if (event->kind == MODEL_MIND)
            model_change_mind(model, program);
    } else if (event->kind == MODEL_BACK) {
        if (program->client == NULL)
            model_connect(model, program);
    } else if (event->life != program->life || program->client == NULL) {
        return; /* from before it was killed */
    } else if (event->kind == MODEL_STATE) {
        deliver_state(model, program, event);
    } else if (event->kind == MODEL_TARGET) {
        take_target(model, program, event->device, &event->target);
    } else if (program->side[event->device].step_at == event->at) {
        step_side(model, program, event->device);
    }
    tick_scheduler(model);
}

/* One event; false when there is none before `until`. */
bool model_once(struct model *model, uint64_t until)
{
    struct model_event event;

    if (model->count == 0 || model->heap[0].at > until) {
        model->now = until;
        return false;
    }
    event = model_pop(model);
    model->now = sched_max(model->now, event.at);
    if (!model->options.unchecked)
        model_count_floor(model);
    handle_event(model, &event);
    model->figures.events++;
    model->figures.now_ns = model->now;
    if (!model->options.unchecked)
        model_check(model);
    return model->failure[0] == '\0';
}
