/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: writes the daemon's answer in Prometheus' text format 0.0.4: a family for each figure
 * of figures.def that has a metric, and families for values that are one of several names. Programs
 * beyond a bound are summed. No state.
 */
#include "lockd/ctl/metrics.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/words.h"
#include "lockd/protocol/figures.h"
#include "lockd/protocol/names.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/ctl.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S      1000000000u
#define PROGRAMS_MOST 500 /* with series of their own: about 5 MB of text */

/* A label's value: a clean text, which may hold quotes. */
static void put_label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            putc('\\', out);
        putc(*value, out);
    }
    putc('"', out);
}

/* Seconds with all digits: a large counter must still show a small growth. */
static void put_seconds(FILE *out, uint64_t ns)
{
    char digits[16];
    int length = snprintf(digits, sizeof digits, "%09llu", (unsigned long long)(ns % NS_PER_S));

    while (length > 0 && digits[length - 1] == '0')
        digits[--length] = '\0';
    fprintf(out, " %llu%s%s\n", (unsigned long long)(ns / NS_PER_S), length > 0 ? "." : "",
            digits);
}

static void put_value(FILE *out, const struct lockd_figure *figure, uint64_t value)
{
    if (figure->unit == LOCKD_FIGURE_NS)
        put_seconds(out, value);
    else
        fprintf(out, " %llu\n", (unsigned long long)value);
}

static void put_ratio(FILE *out, int percent)
{
    fprintf(out, " %d.%02d\n", percent / 100, percent % 100);
}

/* By Prometheus' rules a counter's name ends with _total, and no other name does. */
static bool is_counter(const char *metric)
{
    const size_t length = strlen(metric);

    return length > 6 && strcmp(metric + length - 6, "_total") == 0;
}

static const char *type_of(const char *metric)
{
    return is_counter(metric) ? "counter" : "gauge";
}

static void put_head(FILE *out, const char *prefix, const char *metric, const char *type,
                     const char *help)
{
    fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, metric, help, prefix, metric,
            type);
}

/* --- the daemon --- */

static void put_daemon(FILE *out, const struct gs_wire_daemon *daemon)
{
    const char *name;

    put_head(out, "gpushare_", "build_info", "gauge",
             "Version of the daemon in a label, always 1");
    fputs("gpushare_build_info{", out);
    put_label(out, "version", daemon->version);
    fputs("} 1\n", out);
    put_head(out, "gpushare_", "policy", "gauge",
             "Whether the daemon schedules by the policy in the label (1) or not (0)");
    for (uint32_t i = 0; (name = lockd_policy_name(i)) != NULL; i++)
        fprintf(out, "gpushare_policy{policy=\"%s\"} %d\n", name, i == daemon->policy);
    for (const struct lockd_figure *at = lockd_daemon_figures; at->help != NULL; at++) {
        const uint64_t value = lockd_figure_value(at, daemon);

        if (at->metric[0] == '\0')
            continue;
        put_head(out, "gpushare_", at->metric, type_of(at->metric), at->help);
        if (value == UINT64_MAX) /* no limit */
            continue;
        fprintf(out, "gpushare_%s", at->metric);
        put_value(out, at, value);
    }
}

/* --- devices --- */

static void put_device(FILE *out, const uint8_t *uuid, const char *name, const char *more)
{
    char text[LOCKD_UUID_SIZE];

    putc('{', out);
    put_label(out, "device", lockd_uuid_text(uuid, text));
    putc(',', out);
    put_label(out, "model", name);
    fprintf(out, "%s}", more);
}

static void put_devices(FILE *out, const struct ctl_answer *answer)
{
    for (const struct lockd_figure *at = lockd_device_figures; at->help != NULL; at++) {
        if (at->metric[0] == '\0')
            continue;
        put_head(out, "gpushare_device_", at->metric, type_of(at->metric), at->help);
        for (size_t i = 0; i < answer->device_count; i++) {
            fprintf(out, "gpushare_device_%s", at->metric);
            put_device(out, answer->devices[i].uuid, answer->devices[i].name, "");
            put_value(out, at, lockd_figure_value(at, &answer->devices[i]));
        }
    }
}

static void put_device_busy(FILE *out, const struct ctl_answer *answer)
{
    put_head(
        out, "gpushare_device_", "busy_ratio", "gauge",
        "Share of the last second in which a kernel ran on the device, by NVML, from 0 to 1");
    for (size_t i = 0; i < answer->device_count; i++) {
        const int busy = ctl_device_busy(answer, i);

        if (busy == CTL_BUSY_UNKNOWN)
            continue;
        fputs("gpushare_device_busy_ratio", out);
        put_device(out, answer->devices[i].uuid, answer->devices[i].name, "");
        put_ratio(out, busy);
    }
}

static void put_totals(FILE *out, const struct ctl_answer *answer)
{
    for (const struct lockd_figure *at = lockd_total_figures; at->help != NULL; at++) {
        put_head(out, "gpushare_device_", at->metric, type_of(at->metric), at->help);
        for (size_t i = 0; i < answer->total_count; i++) {
            fprintf(out, "gpushare_device_%s", at->metric);
            put_device(out, answer->totals[i].uuid, answer->totals[i].name, "");
            put_value(out, at, lockd_figure_value(at, &answer->totals[i]));
        }
    }
}

static void put_histogram(FILE *out, const struct lockd_figure *figure,
                          const struct gs_wire_totals *totals)
{
    const struct gs_wire_histogram *histogram = lockd_figure_histogram(figure, totals);
    uint64_t count = 0;

    for (size_t i = 0; i <= GS_HISTOGRAM_BOUNDS; i++) {
        char bound[32];

        count += histogram->count[i];
        snprintf(bound, sizeof bound, ",le=\"%s\"",
                 i < GS_HISTOGRAM_BOUNDS ? lockd_histogram_bounds[i] : "+Inf");
        fprintf(out, "gpushare_device_%s_bucket", figure->metric);
        put_device(out, totals->uuid, totals->name, bound);
        fprintf(out, " %llu\n", (unsigned long long)count);
    }
    fprintf(out, "gpushare_device_%s_sum", figure->metric);
    put_device(out, totals->uuid, totals->name, "");
    put_seconds(out, histogram->sum_ns);
    fprintf(out, "gpushare_device_%s_count", figure->metric);
    put_device(out, totals->uuid, totals->name, "");
    fprintf(out, " %llu\n", (unsigned long long)count);
}

/* --- programs --- */

/* A program of the metrics. twin: its number among programs that look the same, so that no two
 * lines have the same labels. */
struct program {
    const struct gs_wire_client *client;
    const struct ctl_pod *pod;
    unsigned twin;
};

static void put_program(FILE *out, const struct program *program, const char *more)
{
    const struct gs_wire_client *client = program->client;
    const struct {
        const char *name, *value;
    } known[] = {{"container", client->container},
                 {"container_name", program->pod->container},
                 {"pod", client->pod},
                 {"pod_name", program->pod->name},
                 {"pod_namespace", program->pod->space}};
    char uuid[LOCKD_UUID_SIZE], user[64];

    fprintf(out, "{pid=\"%d\",uid=\"%u\",", client->pid, client->uid);
    put_label(out, "user", ctl_user_name(client->uid, user, sizeof user));
    putc(',', out);
    put_label(out, "name", client->name);
    putc(',', out);
    put_label(out, "device",
              client->condition != GS_CONDITION_NO_DEVICE ? lockd_uuid_text(client->uuid, uuid)
                                                          : "");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].value[0] == '\0')
            continue;
        putc(',', out);
        put_label(out, known[i].name, known[i].value);
    }
    if (program->twin != 0)
        fprintf(out, ",twin=\"%u\"", program->twin);
    fprintf(out, "%s}", more);
}

/* The states of a program exclude each other: one series for each, 1 for the present state
 * and 0 for the others. */
struct states {
    const char *metric, *help, *label;
    uint32_t first, count;
    const char *(*name)(uint32_t state);
    uint32_t (*present)(const struct gs_wire_client *client);
};

static uint32_t present_condition(const struct gs_wire_client *client)
{
    return client->condition;
}

static uint32_t present_class(const struct gs_wire_client *client)
{
    return (uint32_t)client->class;
}

/* The programs without series of their own are summed, for each device. */
static void put_rest_label(FILE *out, const char *metric, const struct gs_wire_device *device,
                           const char *more)
{
    char uuid[LOCKD_UUID_SIZE];

    fprintf(out, "gpushare_program_%s{pid=\"0\",name=\"(others)\",", metric);
    put_label(out, "device", lockd_uuid_text(device->uuid, uuid));
    fprintf(out, "%s}", more);
}

static const struct gs_wire_client *next_of_rest(const struct ctl_answer *answer, size_t *at,
                                                 const struct gs_wire_device *device)
{
    for (; *at < answer->client_count; ++*at) {
        const struct gs_wire_client *client = &answer->clients[*at];

        if (client->condition != GS_CONDITION_NO_DEVICE &&
            memcmp(client->uuid, device->uuid, sizeof device->uuid) == 0)
            return client;
    }
    return NULL;
}

/* A counter may not fall, and a sum over programs that come and go does: the device's counters have
 * all of them. */
static void put_rest_figure(FILE *out, const struct lockd_figure *figure,
                            const struct ctl_answer *answer)
{
    if (is_counter(figure->metric))
        return;
    for (size_t i = 0; answer->client_count > PROGRAMS_MOST && i < answer->device_count; i++) {
        const struct gs_wire_client *client;
        uint64_t sum = 0;

        for (size_t at = PROGRAMS_MOST;
             (client = next_of_rest(answer, &at, &answer->devices[i])) != NULL; at++) {
            const uint64_t value = lockd_figure_value(figure, client);

            sum += value != UINT64_MAX ? value : 0; /* no limit */
        }
        put_rest_label(out, figure->metric, &answer->devices[i], "");
        put_value(out, figure, sum);
    }
}

static void put_rest_state(FILE *out, const struct states *states, uint32_t state,
                           const char *label, const struct ctl_answer *answer)
{
    for (size_t i = 0; answer->client_count > PROGRAMS_MOST && i < answer->device_count; i++) {
        const struct gs_wire_client *client;
        size_t count = 0;

        for (size_t at = PROGRAMS_MOST;
             (client = next_of_rest(answer, &at, &answer->devices[i])) != NULL; at++)
            count += states->present(client) == state;
        put_rest_label(out, states->metric, &answer->devices[i], label);
        fprintf(out, " %zu\n", count);
    }
}

static void put_states(FILE *out, const struct states *states, const struct program *programs,
                       size_t count, const struct ctl_answer *answer)
{
    put_head(out, "gpushare_program_", states->metric, "gauge", states->help);
    for (uint32_t state = states->first; state < states->count; state++) {
        char label[64];

        snprintf(label, sizeof label, ",%s=\"%s\"", states->label, states->name(state));
        for (size_t i = 0; i < count; i++) {
            fprintf(out, "gpushare_program_%s", states->metric);
            put_program(out, &programs[i], label);
            fprintf(out, " %d\n", states->present(programs[i].client) == state);
        }
        put_rest_state(out, states, state, label, answer);
    }
}

static void put_figures(FILE *out, const struct program *programs, size_t count,
                        const struct ctl_answer *answer)
{
    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (at->metric[0] == '\0')
            continue;
        put_head(out, "gpushare_program_", at->metric, type_of(at->metric), at->help);
        for (size_t i = 0; i < count; i++) {
            const uint64_t value = lockd_figure_value(at, programs[i].client);

            if (value == UINT64_MAX) /* no limit */
                continue;
            fprintf(out, "gpushare_program_%s", at->metric);
            put_program(out, &programs[i], "");
            put_value(out, at, value);
        }
        put_rest_figure(out, at, answer);
    }
}

/* The figures of NVML; without it the families have no series. */
static void put_program_busy(FILE *out, const struct ctl_answer *answer,
                             const struct program *programs, size_t count)
{
    put_head(
        out, "gpushare_program_", "busy_ratio", "gauge",
        "Share of the last second in which a kernel of the program ran, by NVML, from 0 to 1");
    for (size_t i = 0; i < count; i++) {
        const int busy = ctl_client_busy(answer, i);

        if (busy == CTL_BUSY_UNKNOWN)
            continue;
        fputs("gpushare_program_busy_ratio", out);
        put_program(out, &programs[i], "");
        put_ratio(out, busy);
    }
}

static void put_programs(FILE *out, const struct ctl_answer *answer)
{
    static const struct states states[] = {
        {"state", "Whether the program is in the state in the label (1) or not (0)", "state", 0,
         GS_CONDITION_COUNT, ctl_condition_name, present_condition},
        {"class",
         "Whether the scheduler treats the program as one of the class in the label (1) or not "
         "(0)",
         "class", GS_CLASS_INTERACTIVE, GS_CLASS_COUNT, lockd_class_name, present_class},
    };
    const size_t count =
        answer->client_count < PROGRAMS_MOST ? answer->client_count : PROGRAMS_MOST;
    struct program *programs = calloc(count + 1, sizeof *programs);

    if (programs == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        programs[i] = (struct program){&answer->clients[i], ctl_client_pod(answer, i),
                                       ctl_twin(answer, i)};
    put_figures(out, programs, count, answer);
    put_program_busy(out, answer, programs, count);
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        put_states(out, &states[i], programs, count, answer);
    free(programs);
}

void ctl_metrics_write(FILE *out, const struct ctl_answer *answer)
{
    put_head(out, "gpushare_", "up", "gauge", "Whether gpushare-lockd answers (1) or not (0)");
    fprintf(out, "gpushare_up %d\n", answer->running);
    if (!answer->running)
        return;
    put_daemon(out, &answer->daemon);
    put_devices(out, answer);
    put_device_busy(out, answer);
    put_totals(out, answer);
    for (const struct lockd_figure *at = lockd_histograms; at->help != NULL; at++) {
        put_head(out, "gpushare_device_", at->metric, "histogram", at->help);
        for (size_t i = 0; i < answer->total_count; i++)
            put_histogram(out, at, &answer->totals[i]);
    }
    put_programs(out, answer);
}

/* The lines of an answer that are not values. */
static void ctl_metrics_list(FILE *out)
{
    const struct ctl_answer nothing = {.running = true};
    char *text = NULL, *rest, *line;
    size_t size = 0;
    FILE *all = open_memstream(&text, &size);

    if (all == NULL)
        return;
    ctl_metrics_write(all, &nothing);
    if (fclose(all) == 0) {
        for (line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            if (line[0] == '#')
                fprintf(out, "%s\n", line);
        }
    }
    free(text);
}

/* `gpusharectl metrics`: prints the figures once, for example for a node
 * exporter's textfile collector. `gpusharectl serve` serves them. */

struct metrics_words {
    bool json, list;
};
_Static_assert(sizeof(struct metrics_words) <= CTL_WORDS_SIZE, "the words of a command");

static const struct gs_option metrics_options[] = {
    {"json", NULL, GS_OPTION_FLAG, NULL, 0, 0, "print the same as status --json", NULL, 0,
     offsetof(struct metrics_words, json)},
    {"list", NULL, GS_OPTION_FLAG, NULL, 0, 0,
     "print what each metric means, without values and without asking the daemon", NULL, 0,
     offsetof(struct metrics_words, list)},
    {0},
};

static void print_metrics(const struct ctl_answer *answer)
{
    ctl_metrics_write(stdout, answer);
}

static enum ctl_exit metrics_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct metrics_words *given = words;

    (void)count, (void)operands;
    if (!given->list)
        return ctl_status_show(ctl, given->json, true, print_metrics);
    ctl_metrics_list(stdout);
    return ctl_done(CTL_OK);
}

const struct ctl_command ctl_metrics = {
    "metrics",   "",   "print all figures in Prometheus' text format",
    metrics_run, NULL, metrics_options};
