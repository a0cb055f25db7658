/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c: writes the daemon's answer in Prometheus' text format 0.0.4: a family for each
 * figure, from two tables. No state.
 */
#include "lockd/ctl/metrics.h"
#include "common/fd.h"
#include "lockd/ctl/rates.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum scale { AS_IS, SECONDS };

struct family {
    const char *name, *type, *help;
    size_t offset; /* of a uint64_t, or of a uint32_t with `narrow` */
    enum scale scale;
    bool narrow;
};

#define OF(type, field) offsetof(struct gs_wire_##type, field)

static const struct family device_families[] = {
    {"total_bytes", "gauge", "Memory of the device", OF(device, total), AS_IS, false},
    {"capacity_bytes", "gauge", "What programs may have of it", OF(device, capacity), AS_IS,
     false},
    {"external_bytes", "gauge", "Used by others, or not movable", OF(device, external), AS_IS,
     false},
    {"demand_bytes", "gauge", "Movable memory of all programs, wherever it is",
     OF(device, demand), AS_IS, false},
    {"resident_bytes", "gauge", "... of that, on the device now", OF(device, resident), AS_IS,
     false},
    {"pinned_bytes", "gauge", "Memory of programs that cannot be moved", OF(device, pinned),
     AS_IS, false},
    {"programs", "gauge", "Programs on the device", OF(device, clients), AS_IS, true},
    {"waiting_programs", "gauge", "Programs that wait for their turn", OF(device, waiting),
     AS_IS, true},
    {"leases", "gauge", "1 while turns are taken", OF(device, leases), AS_IS, true},
    {"quantum_seconds", "gauge", "Length of a turn", OF(device, quantum_ns), SECONDS, false},
    {"switch_seconds", "gauge", "Measured cost of a switch", OF(device, switch_ns), SECONDS,
     false},
    {"switches_total", "counter", "Turns begun", OF(device, switches), AS_IS, false},
    {"gpu_seconds_total", "counter", "Time that programs ran, each counted by itself",
     OF(device, gpu_ns), SECONDS, false},
};

static const struct family program_families[] = {
    {"demand_bytes", "gauge", "Its movable memory, wherever it is", OF(client, demand), AS_IS,
     false},
    {"resident_bytes", "gauge", "... of that, on the device now", OF(client, resident), AS_IS,
     false},
    {"budget_bytes", "gauge", "What it may have there", OF(client, budget), AS_IS, false},
    {"pinned_bytes", "gauge", "Its memory that cannot be moved", OF(client, pinned), AS_IS,
     false},
    {"host_bytes", "gauge", "Host memory of the process for what is moved",
     OF(client, host_used), AS_IS, false},
    {"moved_out_bytes_total", "counter", "Copied to the host", OF(client, moved_out), AS_IS,
     false},
    {"moved_in_bytes_total", "counter", "Copied back", OF(client, moved_in), AS_IS, false},
    {"calls_total", "counter", "Gated driver calls", OF(client, calls), AS_IS, false},
    {"turns_total", "counter", "Turns it had", OF(client, turns), AS_IS, false},
    {"gpu_seconds_total", "counter", "Time that it ran", OF(client, gpu_ns), SECONDS, false},
    {"wait_seconds_total", "counter", "Time that it waited", OF(client, wait_ns), SECONDS,
     false},
    {"wait_longest_seconds", "gauge", "Its longest wait", OF(client, wait_longest_ns), SECONDS,
     false},
    {"weight", "gauge", "Its share against others", OF(client, weight), AS_IS, true},
};

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

static void put_value(FILE *out, const void *message, const struct family *family)
{
    uint32_t narrow;
    uint64_t value;

    if (family->narrow) {
        memcpy(&narrow, (const char *)message + family->offset, sizeof narrow);
        value = narrow;
    } else {
        memcpy(&value, (const char *)message + family->offset, sizeof value);
    }
    if (family->scale == SECONDS)
        fprintf(out, " %.9g\n", (double)value / 1e9);
    else
        fprintf(out, " %llu\n", (unsigned long long)value);
}

static void put_head(FILE *out, const char *prefix, const struct family *family)
{
    fprintf(out, "# HELP gpushare_%s_%s %s\n# TYPE gpushare_%s_%s %s\n", prefix, family->name,
            family->help, prefix, family->name, family->type);
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
    fputs("# HELP gpushare_info The daemon\n# TYPE gpushare_info gauge\ngpushare_info{", out);
    put_label(out, "version", daemon->version);
    fprintf(out,
            ",policy=\"%s\"} 1\n"
            "# HELP gpushare_uptime_seconds Since the daemon started\n"
            "# TYPE gpushare_uptime_seconds gauge\ngpushare_uptime_seconds %.3f\n"
            "# HELP gpushare_programs Programs connected\n"
            "# TYPE gpushare_programs gauge\ngpushare_programs %u\n"
            "# HELP gpushare_host_used_bytes Host memory that programs have for what is moved\n"
            "# TYPE gpushare_host_used_bytes gauge\ngpushare_host_used_bytes %llu\n",
            ctl_policy_name(daemon->policy), (double)daemon->uptime_ns / 1e9, daemon->programs,
            (unsigned long long)daemon->host_used);
    if (daemon->host_total != UINT64_MAX)
        fprintf(out,
                "# HELP gpushare_host_limit_bytes ... that they may have\n"
                "# TYPE gpushare_host_limit_bytes gauge\ngpushare_host_limit_bytes %llu\n",
                (unsigned long long)daemon->host_total);
}

static void put_programs(FILE *out, const struct ctl_answer *answer)
{
    GS_FREE unsigned *twins = calloc(answer->client_count + 1, sizeof *twins);

    if (twins == NULL)
        return;
    for (size_t i = 0; i < answer->client_count; i++)
        twins[i] = ctl_twin(answer, i);
    for (size_t f = 0; f < sizeof program_families / sizeof program_families[0]; f++) {
        put_head(out, "program", &program_families[f]);
        for (size_t i = 0; i < answer->client_count; i++) {
            fprintf(out, "gpushare_program_%s", program_families[f].name);
            put_program(out, &answer->clients[i], twins[i], "");
            put_value(out, &answer->clients[i], &program_families[f]);
        }
    }
    fputs("# HELP gpushare_program_state What it does: 1 for the state that it is in\n"
          "# TYPE gpushare_program_state gauge\n",
          out);
    for (size_t i = 0; i < answer->client_count; i++) {
        char state[64];

        snprintf(state, sizeof state, ",state=\"%s\"",
                 ctl_condition_name(answer->clients[i].condition));
        fputs("gpushare_program_state", out);
        put_program(out, &answer->clients[i], twins[i], state);
        fputs(" 1\n", out);
    }
}

void ctl_metrics_write(FILE *out, const struct ctl_answer *answer)
{
    fprintf(out,
            "# HELP gpushare_up Whether gpushare-lockd answers\n# TYPE gpushare_up gauge\n"
            "gpushare_up %d\n",
            answer->running);
    if (!answer->running)
        return;
    put_daemon(out, &answer->daemon);
    for (size_t f = 0; f < sizeof device_families / sizeof device_families[0]; f++) {
        put_head(out, "device", &device_families[f]);
        for (size_t i = 0; i < answer->device_count; i++) {
            fprintf(out, "gpushare_device_%s", device_families[f].name);
            put_device(out, &answer->devices[i]);
            put_value(out, &answer->devices[i], &device_families[f]);
        }
    }
    put_programs(out, answer);
}
