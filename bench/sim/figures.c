/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.c: totals of a simulation and whether they are as expected. Reads the world once it
 * has run; no state.
 */
#include "bench/sim/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sim_samples_add(struct sim_samples *samples, double value)
{
    if (samples->count == samples->room) {
        samples->room = samples->room == 0 ? 256 : 2 * samples->room;
        samples->values = sim_more(samples->values, samples->room, sizeof samples->values[0]);
    }
    samples->values[samples->count++] = value;
}

static int compare_samples(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

double sim_samples_quantile(struct sim_samples *samples, double part)
{
    size_t at;

    if (samples->count == 0)
        return 0;
    qsort(samples->values, samples->count, sizeof samples->values[0], compare_samples);
    at = (size_t)ceil(part * (double)samples->count);
    return samples->values[at == 0 ? 0 : at - 1];
}

void sim_samples_deinit(struct sim_samples *samples)
{
    free(samples->values);
    *samples = (struct sim_samples){0};
}

static double gpu_of(const struct sim_program *program)
{
    return program->figures.gpu_ns - program->before.gpu_ns;
}

/* Was it there from the end of the warm-up to the end, with work of its own? */
static bool is_comparable(const struct sim_program *program)
{
    return program->work.phase != SIM_GONE &&
           program->started <= program->world->window_began && program->class->request.a == 0;
}

static void count_fairness(const struct sim_world *world, struct sim_totals *totals)
{
    double sum = 0, squares = 0, weights = 0, work = 0, count = 0;

    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct sim_program *program = &world->programs[i];
        const double each = gpu_of(program) / (double)program->class->weight;

        if (!is_comparable(program))
            continue;
        sum += each;
        squares += each * each;
        count++;
        weights += (double)program->class->weight;
        work += gpu_of(program);
    }
    totals->jain = squares > 0 ? sum * sum / (count * squares) : NAN;
    totals->weights = work > 0 ? 0 : NAN;
    for (uint32_t i = 0; i < world->program_count && work > 0; i++) {
        const struct sim_program *program = &world->programs[i];
        const double due = (double)program->class->weight / weights;

        if (is_comparable(program))
            totals->weights = fmax(totals->weights, fabs(gpu_of(program) / work / due - 1));
    }
}

static void count_waits(const struct sim_world *world, struct sim_totals *totals)
{
    totals->longest_wait = NAN;
    for (uint64_t c = 0; c < world->scenario->cards; c++) {
        const struct sim_card *card = &world->cards[c];
        const double mean =
            card->gap.count == 0 ? 0 : (double)card->gap.total / (double)card->gap.count / 1e9;
        double longest = 0, count = 0, bound;

        for (uint32_t i = 0; i < world->program_count; i++) {
            const struct sim_program *program = &world->programs[i];

            if (program->card != card || program->work.phase == SIM_GONE)
                continue;
            count++;
            if (is_comparable(program))
                longest = fmax(longest, (double)program->figures.wait_most_ns / 1e9);
        }
        totals->switch_seconds = fmax(totals->switch_seconds, mean);
        totals->quantum_seconds =
            fmax(totals->quantum_seconds, (double)card->quantum_most / 1e9);
        totals->switch_cost += (double)card->gap.total / 1e9 / totals->seconds;
        totals->busy += (double)card->busy_ns / 1e9 / totals->seconds;
        bound = (count - 1) * ((double)card->quantum_most / 1e9 + mean);
        if (bound <= 0 || longest / bound <= totals->longest_wait)
            continue;
        totals->longest_wait = longest / bound;
        totals->wait_seconds = longest;
        totals->wait_bound_seconds = bound;
    }
    totals->switch_cost /= (double)world->scenario->cards;
    totals->busy /= (double)world->scenario->cards;
}

static void count_latencies(struct sim_world *world, struct sim_totals *totals)
{
    totals->requests = world->latency.count;
    totals->latency_p50 = totals->latency_p99 = NAN;
    if (totals->requests == 0)
        return;
    totals->latency_p50_ms = sim_samples_quantile(&world->latency, 0.5) / 1e6;
    totals->latency_p99_ms = sim_samples_quantile(&world->latency, 0.99) / 1e6;
    totals->latency_p50 =
        totals->latency_p50_ms / (sim_samples_quantile(&world->ideal, 0.5) / 1e6);
    totals->latency_p99 =
        totals->latency_p99_ms / (sim_samples_quantile(&world->ideal, 0.99) / 1e6);
}

/* Of each program with requests, and of each without. */
static void each_program(struct sim_world *world, struct sim_totals *totals)
{
    totals->program_p50 = totals->program_p99 = totals->mistaken = NAN;
    for (uint32_t i = 0; i < world->program_count; i++) {
        struct sim_program *program = &world->programs[i];
        const struct sim_figures *now = &program->figures, *before = &program->before;
        const double looks = (double)(now->looks - before->looks);

        if (program->class->request.a == 0) {
            totals->training += gpu_of(program) / 1e9 / totals->seconds;
            totals->mistaken =
                fmax(totals->mistaken,
                     (double)(now->looks_interactive - before->looks_interactive) / looks);
        } else if (program->asked.latency.count != 0) {
            totals->program_p50 =
                fmax(totals->program_p50, sim_samples_quantile(&program->asked.latency, 0.5) /
                                              sim_samples_quantile(&program->asked.ideal, 0.5));
            totals->program_p99 = fmax(totals->program_p99,
                                       sim_samples_quantile(&program->asked.latency, 0.99) /
                                           sim_samples_quantile(&program->asked.ideal, 0.99));
        }
    }
    totals->training /= (double)world->scenario->cards;
}

struct sim_totals sim_totals(struct sim_world *world)
{
    struct sim_totals totals = {.events = world->clock.fired,
                                .states = world->states,
                                .targets = world->targets,
                                .finished = world->finished};
    double work = 0;

    totals.seconds = (double)(world->clock.now_ns - world->window_began) / 1e9;
    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct sim_program *program = &world->programs[i];

        totals.gpu_hours += gpu_of(program) / 3600e9;
        work += gpu_of(program) + program->figures.cpu_ns - program->before.cpu_ns;
        totals.moves += (double)(program->figures.moves - program->before.moves);
        totals.moves_most = fmax(totals.moves_most, (double)program->figures.moves);
    }
    for (uint64_t i = 0; i < world->scenario->cards; i++)
        if (world->cards[i].resident_most > totals.resident_most)
            totals.resident_most = world->cards[i].resident_most;
    totals.throughput = work / 1e9 / totals.seconds / (double)world->scenario->cards;
    count_fairness(world, &totals);
    count_waits(world, &totals);
    count_latencies(world, &totals);
    each_program(world, &totals);
    return totals;
}

double sim_totals_get(const struct sim_totals *totals, const char *name)
{
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"throughput", totals->throughput},
        {"jain", totals->jain},
        {"weights", totals->weights},
        {"longest_wait", totals->longest_wait},
        {"latency_p50", totals->latency_p50},
        {"latency_p99", totals->latency_p99},
        {"latency_p50_ms", totals->latency_p50_ms},
        {"latency_p99_ms", totals->latency_p99_ms},
        {"finished", totals->finished},
        {"seconds", totals->seconds},
        {"switch_cost", totals->switch_cost},
        {"busy", totals->busy},
        {"gpu_hours", totals->gpu_hours},
        {"program_p50", totals->program_p50},
        {"program_p99", totals->program_p99},
        {"training", totals->training},
        {"mistaken", totals->mistaken},
        {"moves", totals->moves},
        {"moves_most", totals->moves_most},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].value;
    return NAN;
}

unsigned sim_expect_check(const struct sim_scenario *scenario, const struct sim_totals *totals,
                          FILE *file)
{
    unsigned missed = 0;

    for (size_t i = 0; i < scenario->expect_count; i++) {
        const struct sim_expect *expect = &scenario->expects[i];
        const double value = sim_totals_get(totals, expect->name);
        const bool met = expect->at_least ? value >= expect->bound : value <= expect->bound;

        if (!met)
            missed++;
        if (file != NULL)
            fprintf(file, "%-9s %s %.6g, expected at %s %.6g\n",
                    met ? "met:" : "NOT MET:", expect->name, value,
                    expect->at_least ? "least" : "most", expect->bound);
    }
    return missed;
}
