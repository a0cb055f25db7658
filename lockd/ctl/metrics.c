/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: writes the daemon's answer in Prometheus' text format 0.0.4: a family for each figure
 * of figures.def that has a metric, and families for values that are one of several names. Programs
 * beyond a bound are summed. No state.
 */
#include "lockd/ctl/metrics.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/words.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/status_table.h"

#include <string.h>

#define NS_PER_S      1000000000u
#define PROGRAMS_MOST 500 /* with series of their own: about 5 MB of text */

/* One answer, as it is written. */
struct metrics {
    FILE *out;
    const struct ctl_answer *answer;
    /* Of each program: its number among programs that look the same, so that no two series have the
     * same labels. */
    const unsigned *twins;
};

/* Writes the labels of a series, and the label `more` behind them. */
typedef void put_labels(const struct metrics *metrics, size_t index, const char *more);

/* The states of a program exclude each other: one series for each, with a label of the metric's
 * name, 1 for the present state and 0 for the others. */
struct states {
    const char *metric, *help;
    uint32_t first, count;
    const char *(*name)(uint32_t state);
};

static bool is_in(const struct gs_wire_client *client, const struct states *states,
                  uint32_t state)
{
    return (states->name == lockd_class_name ? client->class : client->condition) == state;
}

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
static void put_value(FILE *out, enum lockd_figure_unit unit, uint64_t value)
{
    char digits[16];
    int length = 9;

    if (unit != LOCKD_FIGURE_NS) {
        fprintf(out, " %llu\n", (unsigned long long)value);
        return;
    }
    snprintf(digits, sizeof digits, "%09llu", (unsigned long long)(value % NS_PER_S));
    while (length > 0 && digits[length - 1] == '0')
        digits[--length] = '\0';
    fprintf(out, " %llu%s%s\n", (unsigned long long)(value / NS_PER_S), length > 0 ? "." : "",
            digits);
}

/* By Prometheus' rules a counter's name ends with _total, and no other name does. */
static bool is_counter(const char *metric)
{
    const size_t length = strlen(metric);

    return length > 6 && strcmp(metric + length - 6, "_total") == 0;
}

static void put_head(FILE *out, const char *prefix, const char *metric, const char *type,
                     const char *help)
{
    fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, metric, help, prefix, metric,
            type);
}

/* --- the labels of a series: of a device, of its totals, of a program --- */

static void put_device(FILE *out, const uint8_t *uuid, const char *name, const char *more)
{
    char text[LOCKD_UUID_SIZE];

    putc('{', out);
    put_label(out, "device", lockd_uuid_text(uuid, text));
    putc(',', out);
    put_label(out, "model", name);
    fprintf(out, "%s}", more);
}

static void label_device(const struct metrics *metrics, size_t index, const char *more)
{
    const struct gs_wire_device *device = &metrics->answer->devices[index];

    put_device(metrics->out, device->uuid, device->name, more);
}

static void label_totals(const struct metrics *metrics, size_t index, const char *more)
{
    const struct gs_wire_totals *totals = &metrics->answer->totals[index];

    put_device(metrics->out, totals->uuid, totals->name, more);
}

static void label_program(const struct metrics *metrics, size_t index, const char *more)
{
    const struct gs_wire_client *client = &metrics->answer->clients[index];
    const struct ctl_pod *pod = ctl_client_pod(metrics->answer, index);
    const struct {
        const char *name, *value;
    } known[] = {{"container", client->container},
                 {"container_name", pod->container},
                 {"pod", client->pod},
                 {"pod_name", pod->name},
                 {"pod_namespace", pod->space}};
    char uuid[LOCKD_UUID_SIZE], user[64];
    FILE *out = metrics->out;

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
    if (metrics->twins[index] != 0)
        fprintf(out, ",twin=\"%u\"", metrics->twins[index]);
    fprintf(out, "%s}", more);
}

/* --- families --- */

/* The programs without series of their own are summed, for each device: a figure of theirs, or
 * (NULL) how many are in that state. A counter may not fall, and a sum over programs that come and
 * go does: the device's counters have all of them. */
static void put_rest(const struct metrics *metrics, const char *metric, const char *more,
                     const struct lockd_figure *figure, const struct states *states,
                     uint32_t state)
{
    const struct ctl_answer *answer = metrics->answer;
    char uuid[LOCKD_UUID_SIZE];

    if (answer->client_count <= PROGRAMS_MOST || is_counter(metric))
        return;
    for (size_t i = 0; i < answer->device_count; i++) {
        uint64_t sum = 0;

        for (size_t at = PROGRAMS_MOST; at < answer->client_count; at++) {
            const struct gs_wire_client *client = &answer->clients[at];
            uint64_t value;

            if (client->condition == GS_CONDITION_NO_DEVICE ||
                memcmp(client->uuid, answer->devices[i].uuid, sizeof client->uuid) != 0)
                continue;
            value = figure != NULL ? lockd_figure_value(figure, client)
                                   : is_in(client, states, state);
            sum += value != UINT64_MAX ? value : 0; /* no limit */
        }
        fprintf(metrics->out, "gpushare_program_%s{pid=\"0\",name=\"(others)\",", metric);
        put_label(metrics->out, "device", lockd_uuid_text(answer->devices[i].uuid, uuid));
        fprintf(metrics->out, "%s}", more);
        put_value(metrics->out, figure != NULL ? figure->unit : LOCKD_FIGURE_COUNT, sum);
    }
}

/* A family for each figure that has a metric, with a series for each of the messages. */
static void put_figures(const struct metrics *metrics, const char *prefix,
                        const struct lockd_figure *figures, put_labels *labels,
                        const void *messages, size_t size, size_t count)
{
    for (const struct lockd_figure *at = figures; at->help != NULL; at++) {
        if (at->metric[0] == '\0')
            continue;
        put_head(metrics->out, prefix, at->metric, is_counter(at->metric) ? "counter" : "gauge",
                 at->help);
        for (size_t i = 0; i < count; i++) {
            const uint64_t value = lockd_figure_value(at, (const char *)messages + i * size);

            if (value == UINT64_MAX) /* no limit */
                continue;
            fprintf(metrics->out, "%s%s", prefix, at->metric);
            if (labels != NULL)
                labels(metrics, i, "");
            put_value(metrics->out, at->unit, value);
        }
        if (figures == lockd_program_figures)
            put_rest(metrics, at->metric, "", at, NULL, 0);
    }
}

/* The figures of NVML; without it the families have no series. */
static void put_busy(const struct metrics *metrics, const char *prefix, const char *help,
                     int (*busy_of)(const struct ctl_answer *answer, size_t index),
                     put_labels *labels, size_t count)
{
    put_head(metrics->out, prefix, "busy_ratio", "gauge", help);
    for (size_t i = 0; i < count; i++) {
        const int busy = busy_of(metrics->answer, i);

        if (busy == CTL_BUSY_UNKNOWN)
            continue;
        fprintf(metrics->out, "%sbusy_ratio", prefix);
        labels(metrics, i, "");
        fprintf(metrics->out, " %d.%02d\n", busy / 100, busy % 100);
    }
}

static void put_histogram(const struct metrics *metrics, const struct lockd_figure *figure,
                          size_t index)
{
    const struct gs_wire_histogram *histogram =
        lockd_figure_histogram(figure, &metrics->answer->totals[index]);
    FILE *out = metrics->out;
    uint64_t count = 0;

    for (size_t i = 0; i <= GS_HISTOGRAM_BOUNDS; i++) {
        char bound[32];

        count += histogram->count[i];
        snprintf(bound, sizeof bound, ",le=\"%s\"",
                 i < GS_HISTOGRAM_BOUNDS ? lockd_histogram_bounds[i] : "+Inf");
        fprintf(out, "gpushare_device_%s_bucket", figure->metric);
        label_totals(metrics, index, bound);
        put_value(out, LOCKD_FIGURE_COUNT, count);
    }
    fprintf(out, "gpushare_device_%s_sum", figure->metric);
    label_totals(metrics, index, "");
    put_value(out, LOCKD_FIGURE_NS, histogram->sum_ns);
    fprintf(out, "gpushare_device_%s_count", figure->metric);
    label_totals(metrics, index, "");
    put_value(out, LOCKD_FIGURE_COUNT, count);
}

static void put_states(const struct metrics *metrics, const struct states *states, size_t count)
{
    put_head(metrics->out, "gpushare_program_", states->metric, "gauge", states->help);
    for (uint32_t state = states->first; state < states->count; state++) {
        char label[64];

        snprintf(label, sizeof label, ",%s=\"%s\"", states->metric, states->name(state));
        for (size_t i = 0; i < count; i++) {
            fprintf(metrics->out, "gpushare_program_%s", states->metric);
            label_program(metrics, i, label);
            fprintf(metrics->out, " %d\n", is_in(&metrics->answer->clients[i], states, state));
        }
        put_rest(metrics, states->metric, label, NULL, states, state);
    }
}

static void put_programs(struct metrics *metrics)
{
    static const struct states states[] = {
        {"state", "Whether the program is in the state in the label (1) or not (0)", 0,
         GS_CONDITION_COUNT, ctl_condition_name},
        {"class",
         "Whether the scheduler treats the program as one of the class in the label (1) or not "
         "(0)",
         GS_CLASS_INTERACTIVE, GS_CLASS_COUNT, lockd_class_name},
    };
    const struct ctl_answer *answer = metrics->answer;
    const size_t count =
        answer->client_count < PROGRAMS_MOST ? answer->client_count : PROGRAMS_MOST;
    unsigned twins[PROGRAMS_MOST];

    for (size_t i = 0; i < count; i++)
        twins[i] = ctl_twin(answer, i);
    metrics->twins = twins;
    put_figures(metrics, "gpushare_program_", lockd_program_figures, label_program,
                answer->clients, sizeof *answer->clients, count);
    put_busy(
        metrics, "gpushare_program_",
        "Share of the last second in which a kernel of the program ran, by NVML, from 0 to 1",
        ctl_client_busy, label_program, count);
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        put_states(metrics, &states[i], count);
}

void ctl_metrics_write(FILE *out, const struct ctl_answer *answer)
{
    struct metrics metrics = {.out = out, .answer = answer};
    const char *name;

    put_head(out, "gpushare_", "up", "gauge", "Whether gpushare-lockd answers (1) or not (0)");
    fprintf(out, "gpushare_up %d\n", answer->running);
    put_head(out, "gpushare_", "build_info", "gauge",
             "Version of the daemon in a label, always 1");
    if (answer->running) {
        fputs("gpushare_build_info{", out);
        put_label(out, "version", answer->daemon.version);
        fputs("} 1\n", out);
    }
    put_head(out, "gpushare_", "policy", "gauge",
             "Whether the daemon schedules by the policy in the label (1) or not (0)");
    for (uint32_t i = 0; answer->running && (name = lockd_policy_name(i)) != NULL; i++)
        fprintf(out, "gpushare_policy{policy=\"%s\"} %d\n", name, i == answer->daemon.policy);
    put_figures(&metrics, "gpushare_", lockd_daemon_figures, NULL, &answer->daemon, 0,
                answer->running);
    put_figures(&metrics, "gpushare_device_", lockd_device_figures, label_device,
                answer->devices, sizeof *answer->devices, answer->device_count);
    put_busy(
        &metrics, "gpushare_device_",
        "Share of the last second in which a kernel ran on the device, by NVML, from 0 to 1",
        ctl_device_busy, label_device, answer->device_count);
    put_figures(&metrics, "gpushare_device_", lockd_total_figures, label_totals, answer->totals,
                sizeof *answer->totals, answer->total_count);
    for (const struct lockd_figure *at = lockd_histograms; at->help != NULL; at++) {
        put_head(out, "gpushare_device_", at->metric, "histogram", at->help);
        for (size_t i = 0; i < answer->total_count; i++)
            put_histogram(&metrics, at, i);
    }
    put_programs(&metrics);
}

/* `gpusharectl metrics`: prints the figures once, for example for a node exporter's textfile
 * collector. `gpusharectl serve` serves them. */

static void print_metrics(const struct ctl_answer *answer)
{
    ctl_metrics_write(stdout, answer);
}

static enum ctl_exit metrics_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    (void)count, (void)operands;
    return ctl_status_show(ctl, *(const bool *)words, true, print_metrics);
}

const struct ctl_command ctl_metrics = {
    "metrics",   "",   "print all figures in Prometheus' text format",
    metrics_run, NULL, ctl_json_option};
