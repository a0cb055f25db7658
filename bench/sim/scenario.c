/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario.c: reads scenario files. One table says which keys there are, how each is written
 * and where it goes; parsing, bounds and --help come from it.
 */
#include "bench/sim/scenario.h"
#include "common/size.h"
#include "lockd/lock.h"

#include <errno.h>
#include <ini.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum kind { TIME, SPREAD, SIZE, RATE, COUNT, INTEGER, PART, CHOICE, WORD, POLICY };

struct key {
    const char *section, *name;
    enum kind kind;
    size_t offset;
    double low, high;
    bool or_auto; /* "auto" is LOCKD_AUTO */
    const char *help;
};

#define RUN(field)     offsetof(struct sim_scenario, field)
#define PROGRAM(field) offsetof(struct sim_class, field)
#define YEAR           (366.0 * 86400)

static const char *const ways[] = {"gpushare", "unified", "unlocked", NULL};

static const struct key keys[] = {
    {"run", "for", TIME, RUN(for_ns), 1e-3, 10 * YEAR, false,
     "ends after so long at the latest"},
    {"run", "warmup", TIME, RUN(warmup_ns), 0, YEAR, false, "figures count from here"},
    {"run", "seed", COUNT, RUN(seed), 0, 4294967295.0, false, "of everything that is random"},
    {"run", "way", CHOICE, RUN(way), 0, 0, false,
     "gpushare; or the ancestor's: unified (FCFS lock), unlocked"},
    {"run", "latency", TIME, RUN(latency_ns), 0, 10, false, "of a message, at most"},
    {"card", "count", COUNT, RUN(cards), 1, 1024, false, "cards that there are"},
    {"card", "memory", SIZE, RUN(memory), 1 << 20, 1e15, false, "of each card"},
    {"card", "bus_in", RATE, RUN(bus_in), 1e6, 1e13, false, "host to card, a second"},
    {"card", "bus_out", RATE, RUN(bus_out), 1e6, 1e13, false, "card to host, a second"},
    {"card", "bus_both", RATE, RUN(bus_both), 1e6, 1e13, false, "sum when both are busy"},
    {"card", "map", TIME, RUN(map_ns), 0, 1, false, "mapping or unmapping 256 MiB"},
    {"card", "slicing", PART, RUN(slicing), 0, 0.9, false,
     "part lost when several compute at once"},
    {"card", "fault", RATE, RUN(fault), 1e6, 1e13, false, "unified: faulted in, a second"},
    {"card", "thrash", PART, RUN(thrash), 1e-6, 1, false,
     "unified: part of that when programs fault against each other"},
    {"card", "idle_release", TIME, RUN(idle_release_ns), 0, 3600, false,
     "unified: the lock is given back after so long without work"},
    {"lock", "quantum", TIME, RUN(quantum_ns), 1e-3, 3600, true, "length of a turn"},
    {"lock", "quantum_min", TIME, RUN(quantum_min_ns), 0, 3600, false, "of the automatic one"},
    {"lock", "quantum_max", TIME, RUN(quantum_max_ns), 0, 3600, false, "of the automatic one"},
    {"lock", "cost", PART, RUN(cost), 0, 0.5, false,
     "part of the time for switches; 0: as it is"},
    {"lock", "idle", TIME, RUN(idle_ns), 1e-3, 3600, true, "what a holder may idle"},
    {"lock", "reserve", SIZE, RUN(reserve), 0, 1e15, true, "bytes that nobody gets"},
    {"lock", "policy", POLICY, RUN(policy), 0, 0, false, "fair, fifo, rr, priority"},
    {"lock", "exclusive", COUNT, RUN(exclusive), 0, 1, false, "1: turns also when all fit"},
    {"program", "copies", COUNT, PROGRAM(copies), 1, SIM_PROGRAMS_MOST, false,
     "how many there are"},
    {"program", "card", COUNT, PROGRAM(card), 0, 1023, false, "which one they use, from 0"},
    {"program", "memory", SIZE, PROGRAM(memory), 0, 1e15, false, "of each copy"},
    {"program", "start", TIME, PROGRAM(start_ns), 0, 10 * YEAR, false, "when the first comes"},
    {"program", "spacing", SPREAD, PROGRAM(spacing), 0, YEAR, false,
     "until the next one comes"},
    {"program", "cpu", SPREAD, PROGRAM(cpu), 0, YEAR, false, "a cycle's part without the card"},
    {"program", "gpu", SPREAD, PROGRAM(gpu), 0, YEAR, false, "a cycle's part on it, solo"},
    {"program", "cycles", COUNT, PROGRAM(cycles), 0, 1e15, false, "then it ends; 0: never"},
    {"program", "request", SPREAD, PROGRAM(request), 0, YEAR, false,
     "between requests of one cycle each; 0: it works without them"},
    {"program", "stop", SPREAD, PROGRAM(stop), 0, 3600, false,
     "submitted work goes on so long"},
    {"program", "busy", PART, PROGRAM(busy), 0.01, 1, false,
     "of its time on the card that it keeps the card busy"},
    {"program", "dirty", PART, PROGRAM(dirty), 0, 1, false, "of its memory changed in a turn"},
    {"program", "zero", PART, PROGRAM(zero), 0, 1, false, "of its memory that is all zero"},
    {"program", "hot", PART, PROGRAM(hot), 0, 1, false,
     "unified: of its memory that it touches"},
    {"program", "pass", TIME, PROGRAM(pass_ns), 1e-6, 3600, false,
     "unified: it touches all of that once in so long"},
    {"program", "weight", COUNT, PROGRAM(weight), 1, GS_WEIGHT_MAX, false, "its share"},
    {"program", "priority", INTEGER, PROGRAM(priority), -GS_PRIORITY_MAX, GS_PRIORITY_MAX,
     false, "with the policy of that name"},
    {"program", "group", WORD, PROGRAM(group), 0, 0, false, "gang"},
};

static const char *const metrics[] = {"throughput",  "jain",        "weights",   "longest_wait",
                                      "latency_p50", "latency_p99", "finished",  "seconds",
                                      "switch_cost", "busy",        "gpu_hours", NULL};

static int refuse(struct gs_err *err, const struct key *key, const char *text, const char *why)
{
    return gs_err_set(err, -EINVAL, "[%s] %s = %s: %s", key->section, key->name, text, why);
}

/* A number of seconds with its unit: 5s, 20 ms, 1.5h; the text behind it in *end. */
static int read_time(const char *text, const char **end, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                 {"min", 60},  {"h", 3600},  {"d", 86400}};
    char *behind;
    size_t length;

    *seconds = strtod(text, &behind);
    if (behind == text || !isfinite(*seconds))
        return -EINVAL;
    behind += strspn(behind, " ");
    length = strcspn(behind, " ");
    *end = behind + length;
    if (length == 0 && *seconds == 0)
        return 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strlen(units[i].unit) == length && memcmp(units[i].unit, behind, length) == 0) {
            *seconds *= units[i].seconds;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_time(const struct key *key, void *at, const char *text, struct gs_err *err)
{
    const char *end;
    double seconds;

    if (read_time(text, &end, &seconds) != 0 || *end != '\0')
        return refuse(err, key, text, "no time; write 5s, 20ms, 1.5h (ns us ms s min h d)");
    if (seconds < key->low || seconds > key->high)
        return refuse(err, key, text, "out of range");
    *(uint64_t *)at = (uint64_t)(seconds * 1e9);
    return 0;
}

static int set_spread(const struct key *key, void *at, const char *text, struct gs_err *err)
{
    struct sim_spread spread = {.kind = SIM_FIXED};
    const char *next = text;
    double seconds[2] = {0};

    if (strncmp(text, "exp ", 4) == 0) {
        spread.kind = SIM_EXPONENTIAL;
        next += 4;
    } else if (strncmp(text, "uniform ", 8) == 0) {
        spread.kind = SIM_UNIFORM;
        next += 8;
    }
    for (int i = 0; i < (spread.kind == SIM_UNIFORM ? 2 : 1); i++) {
        if (read_time(next, &next, &seconds[i]) != 0)
            return refuse(err, key, text, "write 50ms, exp 50ms (mean), uniform 10ms 90ms");
        if (seconds[i] < key->low || seconds[i] > key->high)
            return refuse(err, key, text, "out of range");
    }
    if (*next != '\0' || (spread.kind == SIM_UNIFORM && seconds[1] < seconds[0]))
        return refuse(err, key, text, "write 50ms, exp 50ms (mean), uniform 10ms 90ms");
    spread.a = seconds[0] * 1e9;
    spread.b = seconds[1] * 1e9;
    *(struct sim_spread *)at = spread;
    return 0;
}

static int set_size(const struct key *key, void *at, const char *text, struct gs_err *err)
{
    uint64_t bytes;

    if (gs_size_parse(text, &bytes) != 0)
        return refuse(err, key, text, "no size; write 15.5GiB, 12GB");
    if ((double)bytes < key->low || (double)bytes > key->high)
        return refuse(err, key, text, "out of range");
    *(uint64_t *)at = bytes;
    return 0;
}

static int set_number(const struct key *key, void *at, const char *text, struct gs_err *err)
{
    char *end;
    const double number = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(number))
        return refuse(err, key, text, "no number");
    if (number < key->low || number > key->high)
        return refuse(err, key, text, "out of range");
    if (key->kind == PART)
        *(double *)at = number;
    else if (number != floor(number))
        return refuse(err, key, text, "no whole number");
    else if (key->kind == INTEGER)
        *(int64_t *)at = (int64_t)number;
    else
        *(uint64_t *)at = (uint64_t)number;
    return 0;
}

static int set_word(const struct key *key, void *at, const char *text, struct gs_err *err)
{
    const size_t length = strlen(text);

    if (length > 31)
        return refuse(err, key, text, "longer than 31 characters");
    memcpy(at, text, length + 1);
    return 0;
}

static int set_choice(const struct key *key, void *at, const char *text, struct gs_err *err)
{
    const int policy = key->kind == POLICY ? lockd_policy_find(text) : -1;

    if (policy >= 0) {
        *(uint64_t *)at = (uint64_t)policy;
        return 0;
    }
    for (uint64_t i = 0; key->kind == CHOICE && ways[i] != NULL; i++) {
        if (strcmp(ways[i], text) == 0) {
            *(uint64_t *)at = i;
            return 0;
        }
    }
    return refuse(err, key, text, key->help);
}

static int set_key(const struct key *key, void *base, const char *text, struct gs_err *err)
{
    void *at = (char *)base + key->offset;

    if (key->or_auto && strcmp(text, "auto") == 0) {
        *(uint64_t *)at = LOCKD_AUTO;
        return 0;
    }
    switch (key->kind) {
    case TIME:
        return set_time(key, at, text, err);
    case SPREAD:
        return set_spread(key, at, text, err);
    case SIZE:
    case RATE:
        return set_size(key, at, text, err);
    case CHOICE:
    case POLICY:
        return set_choice(key, at, text, err);
    case WORD:
        return set_word(key, at, text, err);
    default:
        return set_number(key, at, text, err);
    }
}

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
        return gs_err_set(err, -EINVAL, "[expect] has no '%s'; gpushare-sim --help lists them",
                          name);
    if (!expect.at_least && strncmp(text, "at most ", 8) != 0)
        return gs_err_set(err, -EINVAL,
                          "[expect] %s = %s: write 'at least 0.95' or 'at most 3'", name, text);
    expect.bound = strtod(number, &end);
    if (end == number || *end != '\0' || !isfinite(expect.bound))
        return gs_err_set(err, -EINVAL, "[expect] %s = %s: no number", name, text);
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
                                .dirty = 1,
                                .hot = 1,
                                .pass_ns = 1000000000,
                                .weight = GS_WEIGHT_DEFAULT};
    memcpy(class->name, name, strlen(name) + 1);
    return class;
}

static int assign(struct sim_scenario *scenario, const char *section, const char *name,
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
            return set_key(&keys[i], program ? (void *)class : scenario, value, err);
    }
    return gs_err_set(err, -EINVAL, "[%s] has no '%s'; gpushare-sim --help lists what there is",
                      section, name);
}

int sim_scenario_set(struct sim_scenario *scenario, const char *assignment, struct gs_err *err)
{
    char section[48], name[32], value[64];
    int error = 0;

    if (sscanf(assignment, "%47[^.=].%31[^.=]=%63[^\n]", section, name, value) != 3)
        return gs_err_set(err, -EINVAL, "--set %s: write section.key=value, as lock.quantum=5s",
                          assignment);
    if (strcmp(section, "program") != 0)
        return assign(scenario, section, name, value, err);
    for (size_t i = 0; i < scenario->class_count && error == 0; i++) {
        snprintf(section, sizeof section, "program %s", scenario->classes[i].name);
        error = assign(scenario, section, name, value, err);
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

    return assign(reading->scenario, section, name, value, reading->err) == 0 ? 1 : 0;
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
        if (class->card >= scenario->cards)
            return gs_err_set(err, -EINVAL,
                              "%s: [program %s] card = %llu, but [card] count = %llu",
                              scenario->path, class->name, (unsigned long long)class->card,
                              (unsigned long long)scenario->cards);
        if (class->burst_count == 0 &&
            sim_spread_mean(&class->cpu) + sim_spread_mean(&class->gpu) <= 0)
            return gs_err_set(err, -EINVAL, "%s: [program %s] does nothing: give it gpu = TIME",
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
        return gs_err_set(err, -EINVAL, "%s: way = unified needs a [lock] quantum",
                          scenario->path);
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
    fprintf(file, "[expect]        each 'at least NUMBER' or 'at most NUMBER'\n ");
    for (size_t i = 0; metrics[i] != NULL; i++)
        fprintf(file, " %s", metrics[i]);
    fputc('\n', file);
}
