/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario.c: reads scenario files. One table says which keys there are, how each is written
 * and where it goes; parsing, bounds and --help come from it.
 */
#include "bench/sim/scenario_value.h"
#include "lockd/sched/scheduler.h"

#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUN(field)     offsetof(struct sim_scenario, field)
#define PROGRAM(field) offsetof(struct sim_class, field)
#define YEAR           (366.0 * 86400)

static const struct sim_key keys[] = {
    {"run", "for", SIM_TIME, RUN(for_ns), 1e-3, 10 * YEAR, false, "latest end of the run"},
    {"run", "warmup", SIM_TIME, RUN(warmup_ns), 0, YEAR, false,
     "figures are counted from this time on"},
    {"run", "seed", SIM_COUNT, RUN(seed), 0, 4294967295.0, false, "seed of all random numbers"},
    {"run", "way", SIM_CHOICE, RUN(way), 0, 0, false,
     "gpushare, or as the thesis did: unified (FCFS lock), unlocked"},
    {"run", "latency", SIM_TIME, RUN(latency_ns), 0, 10, false, "longest delay of a message"},
    {"card", "count", SIM_COUNT, RUN(cards), 1, 1024, false, "number of cards"},
    {"card", "memory", SIM_SIZE, RUN(memory), 1 << 20, 1e15, false, "memory of each card"},
    {"card", "bus_in", SIM_RATE, RUN(bus_in), 1e6, 1e13, false,
     "bytes a second from host to card"},
    {"card", "bus_out", SIM_RATE, RUN(bus_out), 1e6, 1e13, false,
     "bytes a second from card to host"},
    {"card", "bus_both", SIM_RATE, RUN(bus_both), 1e6, 1e13, false,
     "bytes a second of both directions of the bus together"},
    {"card", "map", SIM_TIME, RUN(map_ns), 0, 1, false, "time to map or unmap 256 MiB"},
    {"card", "slicing", SIM_PART, RUN(slicing), 0, 0.9, false,
     "part of throughput lost when several programs compute at once"},
    {"card", "checkpoint", SIM_TIME, RUN(checkpoint_ns), 0, 60, false,
     "time in which the driver checkpoints a program that moves"},
    {"card", "restore", SIM_TIME, RUN(restore_ns), 0, 60, false,
     "time in which the driver restores such a program on the other card"},
    {"card", "move_fails", SIM_PART, RUN(move_fails), 0, 1, false,
     "part of the moves that fail"},
    {"card", "fault", SIM_RATE, RUN(fault), 1e6, 1e13, false,
     "unified: bytes a second that faults bring in"},
    {"card", "thrash", SIM_PART, RUN(thrash), 1e-6, 1, false,
     "unified: part of the rate of faults that is left when programs fault against each other"},
    {"card", "idle_release", SIM_TIME, RUN(idle_release_ns), 0, 3600, false,
     "unified: time without work after which the lock is released"},
    {"scheduler", "quantum", SIM_TIME, RUN(quantum_ns), 1e-3, 3600, true, "length of a turn"},
    {"scheduler", "quantum_min", SIM_TIME, RUN(quantum_min_ns), 0, 3600, false,
     "shortest automatic quantum"},
    {"scheduler", "quantum_max", SIM_TIME, RUN(quantum_max_ns), 0, 3600, false,
     "longest automatic quantum"},
    {"scheduler", "cost", SIM_PART, RUN(cost), 0, 0.5, false,
     "part of the time that switches may cost; 0: the default"},
    {"scheduler", "floor", SIM_PART, RUN(floor), 0, 1, false,
     "part of their fair share that programs that go first leave to the others; 0: the "
     "default"},
    {"scheduler", "idle", SIM_TIME, RUN(idle_ns), 1e-3, 3600, true,
     "time that a holder may be idle"},
    {"scheduler", "reserve", SIM_SIZE, RUN(reserve), 0, 1e15, true,
     "bytes that no program gets"},
    {"scheduler", "policy", SIM_POLICY, RUN(policy), 0, 0, false,
     "policy: fair, fifo, rr or priority"},
    {"scheduler", "exclusive", SIM_COUNT, RUN(exclusive), 0, 1, false,
     "1: take turns also when all programs fit"},
    {"scheduler", "balance", SIM_COUNT, RUN(balance), 0, 1, false,
     "1: programs that wait move to other cards"},
    {"program", "copies", SIM_COUNT, PROGRAM(copies), 1, SIM_PROGRAMS_MOST, false,
     "number of programs"},
    {"program", "card", SIM_COUNT, PROGRAM(card), 0, 1023, false,
     "number of the first card that the copies use, from 0"},
    {"program", "spread", SIM_COUNT, PROGRAM(spread), 1, 1024, false,
     "number of cards over which the copies are spread"},
    {"program", "hidden", SIM_COUNT, PROGRAM(hidden), 0, 1, false,
     "1: the copies see no other card, and so cannot move"},
    {"program", "memory", SIM_SIZE, PROGRAM(memory), 0, 1e15, false, "memory of each copy"},
    {"program", "start", SIM_TIME, PROGRAM(start_ns), 0, 10 * YEAR, false,
     "start of the first program"},
    {"program", "spacing", SIM_SPREAD, PROGRAM(spacing), 0, YEAR, false,
     "time until the next program starts"},
    {"program", "cpu", SIM_SPREAD, PROGRAM(cpu), 0, YEAR, false,
     "part of a cycle without the card"},
    {"program", "gpu", SIM_SPREAD, PROGRAM(gpu), 0, YEAR, false,
     "part of a cycle on the card, when alone"},
    {"program", "cycles", SIM_COUNT, PROGRAM(cycles), 0, 1e15, false,
     "number of cycles until a copy ends; 0: it never ends"},
    {"program", "request", SIM_SPREAD, PROGRAM(request), 0, YEAR, false,
     "time between requests of one cycle each; 0: work without requests"},
    {"program", "cluster", SIM_COUNT, PROGRAM(cluster), 1, 1e6, false,
     "number of requests that arrive together"},
    {"program", "pause", SIM_SPREAD, PROGRAM(pause), 0, YEAR, false,
     "time without the card after each pause_every cycles"},
    {"program", "pause_every", SIM_COUNT, PROGRAM(pause_every), 0, 1e15, false,
     "number of cycles between pauses; 0: no pauses"},
    {"program", "ahead", SIM_TIME, PROGRAM(ahead_ns), 0, 3600, false,
     "submitted work, which hides as much of the part without the card"},
    {"program", "stop", SIM_SPREAD, PROGRAM(stop), 0, 3600, false,
     "time that submitted work continues"},
    {"program", "busy", SIM_PART, PROGRAM(busy), 0.01, 1, false,
     "part of the time on the card in which a copy keeps the card busy"},
    {"program", "dirty", SIM_PART, PROGRAM(dirty), 0, 1, false,
     "part of the memory that a copy changes in a turn"},
    {"program", "zero", SIM_PART, PROGRAM(zero), 0, 1, false,
     "part of the memory that is all zero"},
    {"program", "saved", SIM_PART, PROGRAM(saved), 0, 1, false,
     "part of what comes in that the memory of the program before holds already"},
    {"program", "hot", SIM_PART, PROGRAM(hot), 0, 1, false,
     "unified: part of the memory that a copy touches"},
    {"program", "pass", SIM_TIME, PROGRAM(pass_ns), 1e-6, 3600, false,
     "unified: time in which a copy touches all of its hot memory once"},
    {"program", "weight", SIM_COUNT, PROGRAM(weight), 1, GS_WEIGHT_MAX, false,
     "weight, with policy fair"},
    {"program", "priority", SIM_INTEGER, PROGRAM(priority), -GS_PRIORITY_MAX, GS_PRIORITY_MAX,
     false, "priority, with policy priority"},
    {"program", "user", SIM_COUNT, PROGRAM(user), 0, 4294967295.0, false,
     "number of the user who runs the copies"},
    {"program", "class", SIM_COUNT, PROGRAM(kind), 0, 3, false,
     "class: 1 interactive, 2 batch, 3 background; 0: none said"},
    {"program", "kernels", SIM_COUNT, PROGRAM(kernels), 1, 1e6, false,
     "cycles of cpu and gpu that a request takes"},
    {"program", "group", SIM_WORD, PROGRAM(group), 0, 0, false,
     "name of the gang that the copies form"},
};

static const char *const metrics[] = {
    "throughput",  "jain",           "weights",        "longest_wait", "latency_p50",
    "latency_p99", "latency_p50_ms", "latency_p99_ms", "finished",     "seconds",
    "switch_cost", "busy",           "gpu_hours",      "program_p50",  "program_p99",
    "training",    "mistaken",       "moves",          "moves_most",   NULL};

/* "jain = at least 0.999" */
static int set_expect(struct sim_scenario *scenario, const char *name, const char *text,
                      struct gs_err *err)
{
    struct sim_expect expect = {.at_least = strncmp(text, "at least ", 9) == 0};
    const char *number = text + (expect.at_least ? 9 : 8);
    bool known = false;
    char *end;

    for (size_t i = 0; metrics[i] != NULL; i++)
        known |= strcmp(metrics[i], name) == 0;
    if (!known)
        return gs_err_set(err, -EINVAL,
                          "[expect] has no '%s'; gpushare-sim --help lists the figures", name);
    if (!expect.at_least && strncmp(text, "at most ", 8) != 0)
        return gs_err_set(err, -EINVAL,
                          "[expect] %s = %s: write 'at least 0.95' or 'at most 3'", name, text);
    expect.bound = strtod(number, &end);
    if (end == number || *end != '\0' || !isfinite(expect.bound))
        return gs_err_set(err, -EINVAL, "[expect] %s = %s: not a number", name, text);
    if (scenario->expect_count == SIM_EXPECTS)
        return gs_err_set(err, -E2BIG, "more than %d expectations", SIM_EXPECTS);
    memcpy(expect.name, name, strlen(name) + 1);
    scenario->expects[scenario->expect_count++] = expect;
    return 0;
}

void sim_scenario_init(struct sim_scenario *scenario)
{
    *scenario = (struct sim_scenario){
        .for_ns = 3600000000000,
        .seed = 1,
        .latency_ns = 50000,
        .cards = 1,
        .memory = 80000000000,
        .bus_in = 55000000000,
        .bus_out = 55000000000,
        .bus_both = 101000000000,
        .map_ns = 300000,
        .slicing = 0.11,
        .checkpoint_ns = 550000000, /* measured: an H200, driver 580 */
        .restore_ns = 470000000,
        .fault = 11500000000,
        .thrash = 0.29,
        .idle_release_ns = 5000000000,
        .quantum_ns = LOCKD_AUTO,
        .idle_ns = LOCKD_AUTO,
        .reserve = 0,
    };
}

void sim_scenario_deinit(struct sim_scenario *scenario)
{
    for (size_t i = 0; i < scenario->class_count; i++)
        free(scenario->classes[i].bursts);
    scenario->class_count = 0;
}

struct sim_class *sim_scenario_class(struct sim_scenario *scenario, const char *name,
                                     struct gs_err *err)
{
    struct sim_class *class;

    for (size_t i = 0; i < scenario->class_count; i++)
        if (strcmp(scenario->classes[i].name, name) == 0)
            return &scenario->classes[i];
    if (*name == '\0' || strlen(name) >= sizeof class->name) {
        gs_err_set(err, -EINVAL, "[program %s]: a name of 1 to 31 characters is needed", name);
        return NULL;
    }
    if (scenario->class_count == SIM_CLASSES) {
        gs_err_set(err, -E2BIG, "more than %d kinds of programs", SIM_CLASSES);
        return NULL;
    }
    class = &scenario->classes[scenario->class_count++];
    *class = (struct sim_class){.copies = 1,
                                .busy = 1,
                                .kernels = 1,
                                .spread = 1,
                                .cluster = 1,
                                .dirty = 1,
                                .hot = 1,
                                .pass_ns = 1000000000,
                                .weight = GS_WEIGHT_DEFAULT};
    memcpy(class->name, name, strlen(name) + 1);
    return class;
}

static int assign_value(struct sim_scenario *scenario, const char *section, const char *name,
                        const char *value, struct gs_err *err)
{
    const bool program = strncmp(section, "program ", 8) == 0;
    struct sim_class *class = NULL;

    if (strcmp(section, "expect") == 0)
        return set_expect(scenario, name, value, err);
    if (program) {
        class = sim_scenario_class(scenario, section + 8, err);
        if (class == NULL)
            return err->code;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].section, program ? "program" : section) == 0 &&
            strcmp(keys[i].name, name) == 0)
            return sim_value_set(&keys[i], program ? (void *)class : scenario, value, err);
    }
    return gs_err_set(err, -EINVAL, "[%s] has no '%s'; gpushare-sim --help lists all keys",
                      section, name);
}

int sim_scenario_set(struct sim_scenario *scenario, const char *assignment, struct gs_err *err)
{
    char section[48], name[32], value[64];
    int error = 0;

    if (sscanf(assignment, "%47[^.=].%31[^.=]=%63[^\n]", section, name, value) != 3)
        return gs_err_set(err, -EINVAL,
                          "--set %s: write section.key=value, as scheduler.quantum=5s",
                          assignment);
    if (strcmp(section, "program") != 0)
        return assign_value(scenario, section, name, value, err);
    for (size_t i = 0; i < scenario->class_count && error == 0; i++) {
        snprintf(section, sizeof section, "program %s", scenario->classes[i].name);
        error = assign_value(scenario, section, name, value, err);
    }
    return error;
}

struct reading {
    struct sim_scenario *scenario;
    struct gs_err *err;
};

static int on_line(void *user, const char *section, const char *name, const char *value)
{
    const struct reading *reading = user;

    return assign_value(reading->scenario, section, name, value, reading->err) == 0 ? 1 : 0;
}

int sim_scenario_read(struct sim_scenario *scenario, const char *path, struct gs_err *err)
{
    struct gs_err inner = {0};
    struct reading reading = {scenario, &inner};
    const int line = ini_parse(path, on_line, &reading);

    snprintf(scenario->path, sizeof scenario->path, "%s", path);
    if (line < 0)
        return gs_err_errno(err, -errno, "cannot read the scenario %s", path);
    if (line > 0)
        return gs_err_set(err, -EINVAL, "%s:%d: %s", path, line,
                          inner.code != 0 ? inner.text : "neither [section] nor key = value");
    return 0;
}

double sim_spread_mean(const struct sim_spread *spread)
{
    return spread->kind == SIM_UNIFORM ? (spread->a + spread->b) / 2 : spread->a;
}

int sim_scenario_check(const struct sim_scenario *scenario, struct gs_err *err)
{
    uint64_t programs = 0;

    for (size_t i = 0; i < scenario->class_count; i++) {
        const struct sim_class *class = &scenario->classes[i];

        programs += class->copies;
        if (class->card + class->spread > scenario->cards)
            return gs_err_set(err, -EINVAL,
                              "%s: [program %s] card = %llu, but [card] count = %llu",
                              scenario->path, class->name,
                              (unsigned long long)(class->card + class->spread - 1),
                              (unsigned long long)scenario->cards);
        if (class->burst_count == 0 &&
            sim_spread_mean(&class->cpu) + sim_spread_mean(&class->gpu) <= 0)
            return gs_err_set(err, -EINVAL, "%s: [program %s] does no work: give it gpu = TIME",
                              scenario->path, class->name);
    }
    if (programs == 0)
        return gs_err_set(err, -EINVAL, "%s: has no [program NAME]", scenario->path);
    if (programs > SIM_PROGRAMS_MOST)
        return gs_err_set(err, -EINVAL, "%s: %llu programs, at most %d", scenario->path,
                          (unsigned long long)programs, SIM_PROGRAMS_MOST);
    if (scenario->warmup_ns >= scenario->for_ns)
        return gs_err_set(err, -EINVAL, "%s: [run] warmup is not shorter than for",
                          scenario->path);
    if (scenario->way == SIM_WAY_UNIFIED && scenario->quantum_ns == LOCKD_AUTO)
        return gs_err_set(err, -EINVAL, "%s: way = unified needs a [scheduler] quantum",
                          scenario->path);
    if (scenario->balance != 0 && scenario->way != SIM_WAY_GPUSHARE)
        return gs_err_set(err, -EINVAL, "%s: balance needs way = gpushare", scenario->path);
    return 0;
}

void sim_scenario_help(FILE *file)
{
    const char *section = "";

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(section, keys[i].section) != 0)
            fprintf(file, "[%s%s]\n", keys[i].section,
                    strcmp(keys[i].section, "program") == 0 ? " NAME" : "");
        section = keys[i].section;
        fprintf(file, "  %-13s %s\n", keys[i].name, keys[i].help);
    }
    fprintf(
        file,
        "[expect]        bounds of figures, written 'at least NUMBER' or 'at most NUMBER'\n ");
    for (size_t i = 0; metrics[i] != NULL; i++)
        fprintf(file, " %s", metrics[i]);
    fputc('\n', file);
}
