/* SPDX-License-Identifier: Apache-2.0
 *
 * model_life.c: what modelled programs take into their heads, and the phases of a test.
 */
#include "tests/lockd/model_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void mind_later(struct model *model, const struct model_program *program, uint64_t ns)
{
    model_push(model, (struct model_event){
                          .at = model->now + ns, .kind = MODEL_MIND, .client = program->index});
}

/* What kind of a program it is from now on. */
static void be_somebody(struct model *model, struct model_program *program)
{
    const uint32_t all = (1u << model->options.devices) - 1;

    program->devices = all;
    if (!model->options.mixed)
        return;
    do {
        program->devices = (uint32_t)model_random(model, all + 1ull);
    } while (program->devices == 0);
    program->bursts = model_random(model, 3) == 0;
    program->pause = (uint64_t[]){10, 60, 300, 2000}[model_random(model, 4)] * NS_PER_MS;
    program->priority = (int32_t)model_random(model, 5) / 2;
    program->group[0] = '\0';
    if (model_random(model, 2) == 0)
        program->group[0] = "ab"[model_random(model, 2)];
}

static void kill_program(struct model *model, struct model_program *program)
{
    struct sched_client *client = program->client;

    program->client = NULL;
    program->life++;
    program->paused = false;
    memset(program->side, 0, sizeof program->side);
    model->causes += 2;
    be_somebody(model, program);
    sched_client_gone(client, model->now);
    model_flush(model);
}

static void new_scheduler(struct model *model)
{
    const struct sched_settings settings = {.quantum_ns = model->options.quantum_ns,
                                            .idle_ns = LOCKD_AUTO,
                                            .reserve = LOCKD_AUTO,
                                            .policy = model->options.policy};

    model->sched = sched_new(&settings, model->now);
    for (uint32_t i = 0; i < MODEL_DEVICES; i++) /* it begins with nothing saved up */
        model->floor[i] = (struct model_floor){.at = model->now};
    if (model->sched == NULL)
        abort();
}

/* The daemon is killed and started again; programs keep what they hold and come back one by
 * one. */
static void restart_daemon(struct model *model)
{
    sched_free(model->sched);
    new_scheduler(model);
    model->unsettled_until = model->now + 3000 * NS_PER_MS;
    model->disturbed = model->unsettled_until;
    for (uint32_t i = 0; i < model->options.clients; i++) {
        struct model_program *program = &model->programs[i];

        if (program->client == NULL)
            continue;
        program->client = NULL;
        program->life++;
        program->paused = false;
        model_push(model, (struct model_event){.at = model->now + 1 +
                                                     model_random(model, 200 * NS_PER_MS),
                                               .kind = MODEL_BACK,
                                               .client = program->index});
    }
}

static uint64_t some_demand(struct model *model)
{
    uint64_t most = model->options.demand_most;

    if (model_random(model, 4) == 0)
        most /= 16;
    return model_random(model, 20) == 0 ? 0 : model_random(model, most / MIB) * MIB;
}

/* A burst ends a little after it has come to run on all devices. false: it has no memory yet.
 */
static bool step_burst(struct model *model, struct model_program *program)
{
    bool working = false, running = true;

    for (uint32_t i = 0; i < model->options.devices; i++) {
        const struct model_side *side = &program->side[i];

        if (model_uses(program, i) && side->demand == 0)
            return false;
        working = working || (model_uses(program, i) && side->work);
        running = running && (!model_uses(program, i) || side->running);
    }
    for (uint32_t i = 0; i < model->options.devices; i++) {
        if (model_uses(program, i) && (!working || running))
            model_want(model, program, i, !working);
    }
    mind_later(
        model, program,
        1 + model_random(model, working && running ? 2 * program->pause : 40 * NS_PER_MS));
    return true;
}

void model_change_mind(struct model *model, struct model_program *program)
{
    const struct model_options *options = &model->options;
    uint32_t device = (uint32_t)model_random(model, options->devices);
    struct model_side *side;

    if (model->frozen)
        return;
    while (!model_uses(program, device))
        device = (device + 1) % options->devices;
    side = &program->side[device];
    if (program->bursts && program->client != NULL && model_random(model, 50) != 0 &&
        step_burst(model, program))
        return;
    mind_later(model, program, 1 + model_random(model, 2 * options->change_ns));
    if (program->client == NULL) {
        if (side->seq == 0) /* else it is on its way back to a new daemon */
            model_connect(model, program);
    } else if (options->kills && model_random(model, 30) == 0) {
        kill_program(model, program);
    } else if (options->restarts && model_random(model, 200) == 0) {
        restart_daemon(model);
    } else if (options->pauses && model_random(model, 20) == 0) {
        program->paused = !program->paused;
        model->causes++;
        sched_pause(program->client, program->paused, model->now);
        model_flush(model);
    } else if (side->kept != 0 && model_random(model, 4) == 0) {
        model_finds_a_place(model, program, device);
    } else if (side->demand == 0 || (options->grows && model_random(model, 2) == 0)) {
        side->wait.since = 0;
        model_resize(model, program, device, some_demand(model));
    } else {
        model_want(model, program, device, !side->work);
    }
}

struct model *model_new(const struct model_options *options)
{
    struct model *model = calloc(1, sizeof *model);

    if (model == NULL)
        return NULL;
    model->options = *options;
    model->random = options->seed * 0x2545f4914f6cdd1du + 1;
    model->now = 1000 * NS_PER_MS;
    model->programs = calloc(options->clients, sizeof *model->programs);
    if (model->programs == NULL) {
        free(model);
        return NULL;
    }
    new_scheduler(model);
    for (uint32_t i = 0; i < options->clients; i++) {
        model->programs[i].index = i;
        be_somebody(model, &model->programs[i]);
        mind_later(model, &model->programs[i], model_random(model, options->change_ns));
    }
    return model;
}

void model_free(struct model *model)
{
    if (model == NULL)
        return;
    sched_free(model->sched);
    free(model->programs);
    free(model->heap);
    free(model);
}

const char *model_run(struct model *model, uint64_t events)
{
    while (events-- > 0 && model_once(model, UINT64_MAX))
        ;
    return model->failure[0] != '\0' ? model->failure : NULL;
}

static const char *run_until(struct model *model, uint64_t until)
{
    while (model_once(model, until))
        ;
    return model->failure[0] != '\0' ? model->failure : NULL;
}

const char *model_settle(struct model *model, bool work, uint64_t ns)
{
    model->frozen = true;
    if (run_until(model, model->now + 1000 * NS_PER_MS) !=
        NULL) /* a new daemon: let all come back */
        return model->failure;
    for (uint32_t i = 0; i < model->options.clients; i++) {
        struct model_program *program = &model->programs[i];

        if (program->client == NULL)
            continue;
        if (program->paused)
            sched_pause(program->client, false, model->now);
        program->paused = false;
        model_flush(model);
        for (uint32_t d = 0; d < model->options.devices; d++) {
            if (model_uses(program, d))
                model_want(model, program, d, work);
        }
    }
    return run_until(model, model->now + ns);
}

void model_make_fit(struct model *model)
{
    const uint64_t each = model->options.total / 4 / model->options.clients;

    model->frozen = true;
    for (uint32_t i = 0; i < model->options.clients; i++) {
        for (uint32_t d = 0; d < model->options.devices && model->programs[i].client != NULL;
             d++) {
            if (!model_uses(&model->programs[i], d))
                continue;
            model_resize(model, &model->programs[i], d,
                         sched_min(model->programs[i].side[d].demand, each / MIB * MIB));
        }
    }
}

const char *model_must_be_quiet(struct model *model, uint64_t ns)
{
    const uint64_t before = model->figures.targets;
    const char *failure = run_until(model, model->now + ns);

    if (failure == NULL && model->figures.targets != before) {
        snprintf(model->failure, sizeof model->failure,
                 "seed %llu: %llu targets were sent although nothing changed",
                 (unsigned long long)model->options.seed,
                 (unsigned long long)(model->figures.targets - before));
        failure = model->failure;
    }
    return failure;
}

const struct model_figures *model_figures(const struct model *model)
{
    return &model->figures;
}

uint64_t model_decision_quantile(const struct model *model, double part)
{
    uint64_t left = (uint64_t)(part * (double)model->figures.states);

    for (uint64_t i = 0; i < MODEL_TIMES; i++) {
        if (model->took[i] > left)
            return (i + 1) * 100;
        left -= model->took[i];
    }
    return MODEL_TIMES * 100ull;
}
