/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c: makes programs of a recorded trace (`gpusharectl trace`, or any file of Chrome
 * trace events): each track of complete events (ph "X") named `compute` or `stop` becomes a
 * program that computes as long, with the gaps between as its CPU phases. `wait`, `copy_out`,
 * `copy_in` and `paused` are what sharing cost when it was recorded, so they are left out of
 * the gaps: the simulation finds its own. The memory is the largest that the track's counters
 * (ph "C", named "memory ...", all args together) or args.demand of its events say.
 */
#include "bench/sim/scenario.h"
#include "bench/sim/clock.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MOST 1000000000000000 /* bytes */
#define LATEST      4e15             /* microseconds: 126 years of any clock */

struct span {
    uint64_t process, track;
    double from, to; /* microseconds */
    bool compute;
    uint64_t demand;
};

struct spans {
    struct span *all;
    size_t count, room;
};

static bool is_ours(const char *name, bool *compute)
{
    static const char *const others[] = {"wait", "copy_out", "copy_in", "paused"};
    bool ours = *compute = strcmp(name, "compute") == 0 || strcmp(name, "stop") == 0;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ours |= strcmp(name, others[i]) == 0;
    return ours;
}

/* The sum of a counter's parts. */
static uint64_t sum_counter(json_t *args)
{
    const char *name;
    json_t *value;
    uint64_t sum = 0;

    json_object_foreach(args, name, value)
    {
        if (json_integer_value(value) > 0 && json_integer_value(value) < MEMORY_MOST)
            sum += (uint64_t)json_integer_value(value);
    }
    return sum;
}

/* Adds the event if it is one of ours; -EINVAL when its times make no sense. */
static int take_event(struct spans *spans, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    const char *kind = json_string_value(json_object_get(event, "ph"));
    const bool counter = kind != NULL && strcmp(kind, "C") == 0;
    const json_t *length = json_object_get(event, "dur");
    json_t *args = json_object_get(event, "args");
    struct span span = {0};

    if (name == NULL || kind == NULL || (!counter && strcmp(kind, "X") != 0) ||
        !(counter ? strncmp(name, "memory", 6) == 0 : is_ours(name, &span.compute)))
        return 0;
    span.process = (uint64_t)json_integer_value(json_object_get(event, "pid"));
    span.track = (uint64_t)json_integer_value(json_object_get(event, counter ? "id" : "tid"));
    span.from = json_number_value(json_object_get(event, "ts"));
    span.to = span.from + (counter ? 0 : json_number_value(length));
    span.demand = counter ? sum_counter(args) : 0;
    if (!counter && json_integer_value(json_object_get(args, "demand")) > 0 &&
        json_integer_value(json_object_get(args, "demand")) < MEMORY_MOST)
        span.demand = (uint64_t)json_integer_value(json_object_get(args, "demand"));
    if (!(fabs(span.from) < LATEST && span.to >= span.from && span.to < LATEST))
        return -EINVAL;
    if (spans->count == spans->room) {
        spans->room = spans->room == 0 ? 256 : 2 * spans->room;
        spans->all = sim_more(spans->all, spans->room, sizeof spans->all[0]);
    }
    spans->all[spans->count++] = span;
    return 0;
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *left = a, *right = b;

    if (left->process != right->process)
        return left->process < right->process ? -1 : 1;
    if (left->track != right->track)
        return left->track < right->track ? -1 : 1;
    return (left->from > right->from) - (left->from < right->from);
}

static void burst_add(struct sim_class *class, double cpu_us, double gpu_us)
{
    if (class->burst_count == class->burst_room) {
        class->burst_room = class->burst_room == 0 ? 64 : 2 * class->burst_room;
        class->bursts = sim_more(class->bursts, class->burst_room, sizeof class->bursts[0]);
    }
    class->bursts[class->burst_count++] =
        (struct sim_burst){(uint64_t)(cpu_us * 1e3), (uint64_t)(gpu_us * 1e3)};
}

/* The spans of one track, in order of time. */
static void track_bursts(struct sim_class *class, const struct span *spans, size_t count,
                         double began)
{
    double at = spans[0].from, cpu = 0;

    class->start_ns = (uint64_t)((at - began) * 1e3);
    for (size_t i = 0; i < count; i++) {
        if (spans[i].from > at)
            cpu += spans[i].from - at;
        if (spans[i].to > at)
            at = spans[i].to;
        if (spans[i].demand > class->memory)
            class->memory = spans[i].demand;
        if (!spans[i].compute)
            continue;
        burst_add(class, cpu, spans[i].to - spans[i].from);
        cpu = 0;
    }
}

static int read_tracks(struct sim_scenario *scenario, struct spans *spans, const char *path,
                       uint64_t memory, struct gs_err *err)
{
    double began = spans->all[0].from;

    for (size_t i = 0; i < spans->count; i++)
        if (spans->all[i].from < began)
            began = spans->all[i].from;
    for (size_t first = 0, end; first < spans->count; first = end) {
        const struct span *track = &spans->all[first];
        struct sim_class *class;
        char name[32];

        for (end = first; end < spans->count && spans->all[end].process == track->process &&
                          spans->all[end].track == track->track;
             end++)
            ;
        snprintf(name, sizeof name, "%llu.%llu", (unsigned long long)track->process,
                 (unsigned long long)track->track);
        class = sim_scenario_class(scenario, name, err);
        if (class == NULL)
            return err->code;
        track_bursts(class, track, end - first, began);
        if (class->burst_count == 0) {
            scenario->class_count--; /* it never came to compute */
            continue;
        }
        if (memory != 0)
            class->memory = memory;
        if (class->memory == 0)
            return gs_err_set(err, -EINVAL,
                              "%s: track %s has no args.demand; give its memory with --memory",
                              path, name);
    }
    return 0;
}

int sim_replay(struct sim_scenario *scenario, const char *path, uint64_t memory,
               struct gs_err *err)
{
    struct spans spans = {0};
    json_error_t where;
    json_t *root = json_load_file(path, 0, &where);
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
    size_t taken = 0;
    int error = 0;

    if (root == NULL)
        return gs_err_set(err, -EINVAL, "cannot read the trace %s: line %d: %s", path,
                          where.line, where.text);
    while (taken < json_array_size(events) &&
           take_event(&spans, json_array_get(events, taken)) == 0)
        taken++;
    if (taken < json_array_size(events)) {
        error =
            gs_err_set(err, -EINVAL, "%s: event %zu: ts and dur are not plausible microseconds",
                       path, taken);
    } else if (spans.count == 0) {
        error = gs_err_set(err, -EINVAL,
                           "%s: no trace events with ph \"X\" named compute, wait, copy_out or"
                           " copy_in; record one with gpusharectl trace",
                           path);
    } else {
        qsort(spans.all, spans.count, sizeof spans.all[0], compare_spans);
        error = read_tracks(scenario, &spans, path, memory, err);
    }
    free(spans.all);
    json_decref(root);
    return error;
}
