/* SPDX-License-Identifier: Apache-2.0
 *
 * print.c: the results of a simulation as a table and as JSON. No state.
 */
#include "bench/sim/figures.h"
#include "common/size.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static const char *const way_names[] = {"gpushare", "unified", "unlocked"};

/* The figures of a program since the warm-up. */
struct row {
    double copies, gpu_s, cpu_s, held_s, wait_s, wait_most_s, out_gb, in_gb, turns, requests;
};

static struct row row_of(const struct sim_program *program)
{
    const struct sim_figures *now = &program->figures, *before = &program->before;

    return (struct row){
        .copies = 1,
        .gpu_s = (now->gpu_ns - before->gpu_ns) / 1e9,
        .cpu_s = (now->cpu_ns - before->cpu_ns) / 1e9,
        .held_s = (double)(now->held_ns - before->held_ns) / 1e9,
        .wait_s = (double)(now->wait_ns - before->wait_ns) / 1e9,
        .wait_most_s = (double)now->wait_most_ns / 1e9,
        .out_gb = (double)(now->moved_out - before->moved_out) / 1e9,
        .in_gb = (double)(now->moved_in - before->moved_in) / 1e9,
        .turns = (double)(now->turns - before->turns),
        .requests = (double)(now->requests - before->requests),
    };
}

static void row_add(struct row *sum, const struct row *row)
{
    sum->copies += row->copies;
    sum->gpu_s += row->gpu_s;
    sum->cpu_s += row->cpu_s;
    sum->held_s += row->held_s;
    sum->wait_s += row->wait_s;
    sum->wait_most_s = fmax(sum->wait_most_s, row->wait_most_s);
    sum->out_gb += row->out_gb;
    sum->in_gb += row->in_gb;
    sum->turns += row->turns;
    sum->requests += row->requests;
}

static void row_print(FILE *file, const char *name, const struct sim_class *class,
                      const struct row *row)
{
    char memory[32];

    fprintf(file, "%-14s %6.0f %10s %6llu %11.1f %11.1f %11.1f %9.2f %8.0f %10.1f %10.1f\n",
            name, row->copies, gs_size_format(class->memory, memory, sizeof memory),
            (unsigned long long)class->weight, row->gpu_s, row->cpu_s, row->wait_s,
            row->wait_most_s, row->turns, row->out_gb, row->in_gb);
}

/* Of hours, or of the minutes that a recording has. */
static const char *format_span(double seconds, char *buffer, size_t size)
{
    if (seconds < 600)
        snprintf(buffer, size, "%.2f s", seconds);
    else
        snprintf(buffer, size, "%.2f h", seconds / 3600);
    return buffer;
}

static void totals_print(FILE *file, const struct sim_totals *totals)
{
    char resident[32], work[32], all[32];

    fprintf(file,
            "throughput    %.4f of serial; %s of GPU work in %s, somebody ran %.2f %% of it\n",
            totals->throughput, format_span(totals->gpu_hours * 3600, work, sizeof work),
            format_span(totals->seconds, all, sizeof all), totals->busy * 100);
    fprintf(file, "switches      %.3f s each, %.2f %% of the time; quantum %.2f s\n",
            totals->switch_seconds, totals->switch_cost * 100, totals->quantum_seconds);
    if (!isnan(totals->jain))
        fprintf(file, "fairness      Jain index %.6f, shares within %.2f %% of the weights\n",
                totals->jain, totals->weights * 100);
    if (!isnan(totals->longest_wait))
        fprintf(file, "longest wait  %.2f s, (N-1)(quantum + switch) = %.2f s, ratio %.3f\n",
                totals->wait_seconds, totals->wait_bound_seconds, totals->longest_wait);
    if (totals->requests != 0)
        fprintf(file,
                "latency       p50 %.1f ms, p99 %.1f ms of %llu requests; over solo + missing"
                " bytes / bus: %.3f, %.3f\n",
                totals->latency_p50_ms, totals->latency_p99_ms,
                (unsigned long long)totals->requests, totals->latency_p50, totals->latency_p99);
    if (totals->moves > 0)
        fprintf(file, "moves         %.0f to other cards, at most %.0f of one program\n",
                totals->moves, totals->moves_most);
    fprintf(file, "most memory in use %s; %llu reports decided, %llu targets\n",
            gs_size_format(totals->resident_most, resident, sizeof resident),
            (unsigned long long)totals->states, (unsigned long long)totals->targets);
}

void sim_print(FILE *file, struct sim_world *world, const struct sim_totals *totals,
               double real_seconds, bool programs)
{
    const struct sim_scenario *scenario = world->scenario;
    uint32_t at = 0;
    char all[32];

    fprintf(file, "%s: %s, seed %llu, %s simulated in %.2f s (%llu events)\n", scenario->path,
            way_names[scenario->way], (unsigned long long)scenario->seed,
            format_span((double)world->clock.now_ns / 1e9, all, sizeof all), real_seconds,
            (unsigned long long)totals->events);
    fprintf(file, "%-14s %6s %10s %6s %11s %11s %11s %9s %8s %10s %10s\n", "program", "copies",
            "memory", "weight", "GPU s", "CPU s", "waited s", "longest", "turns", "GB out",
            "GB in");
    for (size_t i = 0; i < scenario->class_count; i++) {
        const struct sim_class *class = &scenario->classes[i];
        struct row sum = {0};

        for (uint64_t copy = 0; copy < class->copies; copy++) {
            const struct row row = row_of(&world->programs[at++]);
            char name[64];

            snprintf(name, sizeof name, "%s.%llu", class->name, (unsigned long long)copy);
            if (programs)
                row_print(file, name, class, &row);
            row_add(&sum, &row);
        }
        if (!programs)
            row_print(file, class->name, class, &sum);
    }
    totals_print(file, totals);
}

static json_t *make_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *quantile_json(struct sim_samples *samples, double part)
{
    return make_number(samples->count == 0 ? NAN : sim_samples_quantile(samples, part) / 1e6);
}

static json_t *program_json(struct sim_program *program)
{
    const struct row row = row_of(program);
    const struct sim_figures *now = &program->figures, *before = &program->before;
    const double looks = (double)(now->looks - before->looks);

    return json_pack(
        "{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:f, s:o, s:o, "
        "s:o, "
        "s:o, s:f, s:o, s:I, s:I, s:I}",
        "program", program->class->name, "index", (json_int_t)program->index, "memory",
        (json_int_t)program->class->memory, "weight", (json_int_t)program->class->weight,
        "gpu_s", row.gpu_s, "cpu_s", row.cpu_s, "held_s", row.held_s, "wait_s", row.wait_s,
        "wait_longest_s", row.wait_most_s, "turns", row.turns, "out_gb", row.out_gb, "in_gb",
        row.in_gb, "requests", row.requests, "ended", program->ended != 0, "ended_s",
        (double)program->ended / 1e9, "latency_p50_ms",
        quantile_json(&program->asked.latency, 0.5), "latency_p99_ms",
        quantile_json(&program->asked.latency, 0.99), "ideal_p50_ms",
        quantile_json(&program->asked.ideal, 0.5), "ideal_p99_ms",
        quantile_json(&program->asked.ideal, 0.99), "yielded_s",
        (double)(now->yielded_ns - before->yielded_ns) / 1e9, "interactive",
        make_number((double)(now->looks_interactive - before->looks_interactive) / looks),
        "moves", (json_int_t)now->moves, "move_attempts", (json_int_t)now->move_attempts,
        "card", (json_int_t)program->card->index);
}

static json_t *totals_json(const struct sim_totals *totals)
{
    return json_pack(
        "{s:f, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f, s:I, s:f, s:f, s:f, "
        "s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:o, s:f, s:f}",
        "seconds", totals->seconds, "throughput", make_number(totals->throughput), "jain",
        make_number(totals->jain), "weights", make_number(totals->weights), "longest_wait",
        make_number(totals->longest_wait), "wait_s", totals->wait_seconds, "wait_bound_s",
        totals->wait_bound_seconds, "quantum_s", totals->quantum_seconds, "switch_s",
        totals->switch_seconds, "latency_p50", make_number(totals->latency_p50), "latency_p99",
        make_number(totals->latency_p99), "latency_p50_ms", totals->latency_p50_ms,
        "latency_p99_ms", totals->latency_p99_ms, "requests", (json_int_t)totals->requests,
        "finished", totals->finished, "switch_cost", totals->switch_cost, "busy", totals->busy,
        "gpu_hours", totals->gpu_hours, "resident_most", (json_int_t)totals->resident_most,
        "events", (json_int_t)totals->events, "states", (json_int_t)totals->states, "targets",
        (json_int_t)totals->targets, "program_p50", make_number(totals->program_p50),
        "program_p99", make_number(totals->program_p99), "training", totals->training,
        "mistaken", make_number(totals->mistaken), "moves", totals->moves, "moves_most",
        totals->moves_most);
}

static json_t *expects_json(const struct sim_scenario *scenario,
                            const struct sim_totals *totals)
{
    json_t *array = json_array();

    for (size_t i = 0; i < scenario->expect_count; i++) {
        const struct sim_expect *expect = &scenario->expects[i];
        const double value = sim_totals_get(totals, expect->name);
        const bool met = expect->at_least ? value >= expect->bound : value <= expect->bound;

        json_array_append_new(
            array, json_pack("{s:s, s:s, s:f, s:o, s:b}", "name", expect->name, "at",
                             expect->at_least ? "least" : "most", "bound", expect->bound,
                             "value", make_number(value), "met", met));
    }
    return array;
}

int sim_print_json(FILE *file, struct sim_world *world, const struct sim_totals *totals)
{
    const struct sim_scenario *scenario = world->scenario;
    json_t *programs = json_array(), *root;
    int error = 0;

    for (uint32_t i = 0; i < world->program_count; i++)
        json_array_append_new(programs, program_json(&world->programs[i]));
    root = json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "scenario", scenario->path, "way",
                     way_names[scenario->way], "seed", (json_int_t)scenario->seed, "totals",
                     totals_json(totals), "expected", expects_json(scenario, totals),
                     "programs", programs);
    if (root == NULL || json_dumpf(root, file, JSON_INDENT(1) | JSON_REAL_PRECISION(10)) != 0)
        error = -ENOMEM;
    else
        fputc('\n', file);
    json_decref(root);
    return error;
}
