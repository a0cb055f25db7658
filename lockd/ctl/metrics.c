/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: writes the daemon's answer in Prometheus' text format 0.0.4: a family for each
 * figure of figures.def that has a metric. No state.
 */
#include "lockd/ctl/metrics.h"
#include "lockd/ctl/rates.h"
#include "lockd/protocol/figures.h"

#include <stdlib.h>
#include <string.h>

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

static void put_value(FILE *out, const struct lockd_figure *figure, uint64_t value)
{
    if (figure->unit == LOCKD_FIGURE_NS)
        fprintf(out, " %.9g\n", (double)value / 1e9);
    else
        fprintf(out, " %llu\n", (unsigned long long)value);
}

/* By Prometheus' rules a counter's name ends with _total, and no other name does. */
static bool is_counter(const char *metric)
{
    const size_t length = strlen(metric);

    return length > 6 && strcmp(metric + length - 6, "_total") == 0;
}

static void put_head(FILE *out, const char *prefix, const char *metric, const char *help)
{
    fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, metric, help, prefix, metric,
            is_counter(metric) ? "counter" : "gauge");
}

static void put_device(FILE *out, const struct gs_wire_device *device)
{
    char uuid[CTL_UUID_SIZE];

    putc('{', out);
    put_label(out, "device", ctl_uuid(device->uuid, uuid));
    putc(',', out);
    put_label(out, "model", device->name);
    putc('}', out);
}

/* twin: of those that look the same, so that no two lines have the same labels. */
static void put_program(FILE *out, const struct gs_wire_client *client, unsigned twin,
                        const char *more)
{
    char uuid[CTL_UUID_SIZE];

    fprintf(out, "{pid=\"%d\",uid=\"%u\",", client->pid, client->uid);
    put_label(out, "name", client->name);
    putc(',', out);
    put_label(out, "device",
              client->condition != GS_CONDITION_NO_DEVICE ? ctl_uuid(client->uuid, uuid) : "");
    if (twin != 0)
        fprintf(out, ",twin=\"%u\"", twin);
    fprintf(out, "%s}", more);
}

static void put_daemon(FILE *out, const struct gs_wire_daemon *daemon)
{
    put_head(out, "gpushare_", "info", "Version and policy of the daemon as labels, always 1");
    fputs("gpushare_info{", out);
    put_label(out, "version", daemon->version);
    fprintf(out, ",policy=\"%s\"} 1\n", ctl_policy_name(daemon->policy));
    for (const struct lockd_figure *at = lockd_daemon_figures; at->help != NULL; at++) {
        const uint64_t value = lockd_figure_value(at, daemon);

        if (at->metric[0] == '\0' || value == UINT64_MAX)
            continue;
        put_head(out, "gpushare_", at->metric, at->help);
        fprintf(out, "gpushare_%s", at->metric);
        put_value(out, at, value);
    }
}

static void put_devices(FILE *out, const struct ctl_answer *answer)
{
    for (const struct lockd_figure *at = lockd_device_figures; at->help != NULL; at++) {
        if (at->metric[0] == '\0')
            continue;
        put_head(out, "gpushare_device_", at->metric, at->help);
        for (size_t i = 0; i < answer->device_count; i++) {
            fprintf(out, "gpushare_device_%s", at->metric);
            put_device(out, &answer->devices[i]);
            put_value(out, at, lockd_figure_value(at, &answer->devices[i]));
        }
    }
}

static void put_state(FILE *out, const struct ctl_answer *answer, const unsigned *twins)
{
    put_head(out, "gpushare_program_", "state",
             "State of the program as a label, 1 for its present state");
    for (size_t i = 0; i < answer->client_count; i++) {
        char state[64];

        snprintf(state, sizeof state, ",state=\"%s\"",
                 ctl_condition_name(answer->clients[i].condition));
        fputs("gpushare_program_state", out);
        put_program(out, &answer->clients[i], twins[i], state);
        fputs(" 1\n", out);
    }
}

static void put_programs(FILE *out, const struct ctl_answer *answer)
{
    unsigned *twins = calloc(answer->client_count + 1, sizeof *twins);

    if (twins == NULL)
        return;
    for (size_t i = 0; i < answer->client_count; i++)
        twins[i] = ctl_twin(answer, i);
    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (at->metric[0] == '\0')
            continue;
        put_head(out, "gpushare_program_", at->metric, at->help);
        for (size_t i = 0; i < answer->client_count; i++) {
            const uint64_t value = lockd_figure_value(at, &answer->clients[i]);

            if (value == UINT64_MAX) /* no limit */
                continue;
            fprintf(out, "gpushare_program_%s", at->metric);
            put_program(out, &answer->clients[i], twins[i], "");
            put_value(out, at, value);
        }
    }
    put_state(out, answer, twins);
    free(twins);
}

void ctl_metrics_write(FILE *out, const struct ctl_answer *answer)
{
    put_head(out, "gpushare_", "up", "Whether gpushare-lockd answers (1) or not (0)");
    fprintf(out, "gpushare_up %d\n", answer->running);
    if (!answer->running)
        return;
    put_daemon(out, &answer->daemon);
    put_devices(out, answer);
    put_programs(out, answer);
}
