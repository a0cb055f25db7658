/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c: the daemon's answer as JSON. The schema is in docs/protocol.md; fields are only
 * ever added.
 */
#include "common/fd.h"
#include "lockd/ctl/rates.h"
#include "lockd/base/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Bytes and nanoseconds as integers, which have a sign here; what is automatic as null. */
static json_t *number(uint64_t value)
{
    return value == UINT64_MAX
               ? json_null()
               : json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

/* A path is whatever bytes somebody chose; JSON wants UTF-8. */
json_t *ctl_json_text(const char *bytes)
{
    GS_FREE char *text = strdup(bytes);

    if (text == NULL)
        return NULL;
    lockd_text_clean(text, strlen(text) + 1);
    return json_string(text);
}

static json_t *client_json(const struct gs_wire_client *client)
{
    const uint64_t host =
        client->demand > client->resident ? client->demand - client->resident : 0;

    return json_pack(
        "{s:i, s:I, s:o, s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:i, s:o, s:b}",
        "pid", client->pid, "uid", (json_int_t)client->uid, "name", ctl_json_text(client->name),
        "version", ctl_json_text(client->version), "state",
        ctl_condition_name(client->condition), "lease", (client->flags & GS_CLIENT_LEASE) != 0,
        "skipped", (client->flags & GS_CLIENT_SKIPPED) != 0, "paused",
        (client->flags & GS_CLIENT_PAUSED) != 0, "partial",
        (client->flags & GS_CLIENT_PARTIAL) != 0, "checkpointed",
        (client->flags & GS_CLIENT_FROZEN) != 0, "foreign_pid",
        (client->flags & GS_CLIENT_FOREIGN) != 0, "demand", number(client->demand), "resident",
        number(client->resident), "on_host", number(host), "budget", number(client->budget),
        "moved_out", number(client->moved_out), "moved_in", number(client->moved_in), "calls",
        number(client->calls), "turns", number(client->turns), "switch_ns",
        number(client->switch_ns), "pinned", number(client->pinned), "limit",
        number(client->limit), "host_used", number(client->host_used), "host_budget",
        number(client->host_budget), "gpu_ns", number(client->gpu_ns), "wait_ns",
        number(client->wait_ns), "wait_longest_ns", number(client->wait_longest_ns), "weight",
        (json_int_t)client->weight, "priority", client->priority, "group",
        ctl_json_text(client->group), "group_apart", (client->flags & GS_CLIENT_APART) != 0);
}

static json_t *clients_json(const struct ctl_answer *answer, const char *uuid)
{
    json_t *array = json_array();
    char own[CTL_UUID_SIZE];

    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];
        const bool none = client->condition == GS_CONDITION_NO_DEVICE;

        if (uuid == NULL ? none : (!none && strcmp(ctl_uuid(client->uuid, own), uuid) == 0))
            json_array_append_new(array, client_json(client));
    }
    return array;
}

static json_t *device_json(const struct ctl_answer *answer, const struct gs_wire_device *device)
{
    char uuid[CTL_UUID_SIZE];

    ctl_uuid(device->uuid, uuid);
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:b, "
                     "s:o, s:o, s:o, s:o}",
                     "uuid", uuid, "name", ctl_json_text(device->name), "mode",
                     device->leases != 0 ? "leases" : "open", "total", number(device->total),
                     "capacity", number(device->capacity), "external", number(device->external),
                     "reserve", number(device->reserve), "short", number(device->short_bytes),
                     "demand", number(device->demand), "resident", number(device->resident),
                     "quantum_ns", number(device->quantum_ns), "switch_ns",
                     number(device->switch_ns), "waiting", (json_int_t)device->waiting,
                     "exclusive", device->exclusive != 0, "switches", number(device->switches),
                     "gpu_ns", number(device->gpu_ns), "pinned", number(device->pinned),
                     "programs", clients_json(answer, uuid));
}

static json_t *remark_json(const struct gs_wire_remark *remark)
{
    return json_pack("{s:i, s:o, s:s, s:o, s:b, s:I, s:o}", "pid", remark->pid, "name",
                     ctl_json_text(remark->name), "kind", ctl_note_kind(remark->kind), "age_ns",
                     number(remark->age_ns), "ended", remark->ended != 0, "count",
                     (json_int_t)remark->count, "text", ctl_json_text(remark->text));
}

static json_t *daemon_json(const struct gs_wire_daemon *daemon)
{
    return json_pack(
        "{s:o, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:o, s:o, s:I, s:o, s:o, "
        "s:o, s:b}",
        "version", ctl_json_text(daemon->version), "pid", daemon->pid, "programs",
        (json_int_t)daemon->programs, "uptime_ns", number(daemon->uptime_ns), "quantum_ns",
        number(daemon->quantum_ns), "idle_ns", number(daemon->idle_ns), "reserve",
        number(daemon->reserve), "idle_exit_ns", number(daemon->idle_exit_ns), "policy",
        ctl_policy_name(daemon->policy), "exclusive", daemon->exclusive != 0, "quantum_min_ns",
        number(daemon->quantum_min_ns), "quantum_max_ns", number(daemon->quantum_max_ns),
        "switch_share_ppm", (json_int_t)daemon->share_ppm, "host_limit",
        number(daemon->host_limit), "host_total", number(daemon->host_total), "host_used",
        number(daemon->host_used), "hand_over", daemon->hand_over != 0);
}

static json_t *answer_json(const struct ctl *ctl, const struct ctl_answer *answer)
{
    json_t *root =
        json_pack("{s:b, s:o}", "running", answer->running, "socket", ctl_json_text(ctl->path));
    json_t *devices = json_array(), *remarks = json_array();

    for (size_t i = 0; i < answer->device_count; i++)
        json_array_append_new(devices, device_json(answer, &answer->devices[i]));
    for (size_t i = 0; i < answer->remark_count; i++)
        json_array_append_new(remarks, remark_json(&answer->remarks[i]));
    if (answer->running) {
        json_object_set_new(root, "daemon", daemon_json(&answer->daemon));
        json_object_set_new(root, "devices", devices);
        json_object_set_new(root, "programs_without_device", clients_json(answer, NULL));
        json_object_set_new(root, "notes", remarks);
    } else {
        json_decref(devices);
        json_decref(remarks);
    }
    return root;
}

int ctl_json_print(const struct ctl *ctl, const struct ctl_answer *answer)
{
    json_t *root = answer_json(ctl, answer);
    const int code =
        root == NULL || json_dumpf(root, stdout, JSON_INDENT(2)) != 0 ? -ENOMEM : 0;

    putchar('\n');
    json_decref(root);
    return code;
}

/* "rates": one object for each program on each device. */
int ctl_json_top(const struct ctl *ctl, const struct ctl_answer *now,
                 const struct ctl_answer *before, uint64_t elapsed_ns)
{
    json_t *root = answer_json(ctl, now), *rates = json_array();
    int code;

    for (size_t i = 0; i < now->client_count; i++) {
        const struct gs_wire_client *client = &now->clients[i];
        const struct ctl_rate rate = ctl_rate_of(before, now, i, elapsed_ns);
        char uuid[CTL_UUID_SIZE];

        if (client->condition == GS_CONDITION_NO_DEVICE)
            continue;
        json_array_append_new(
            rates, json_pack("{s:i, s:s, s:f, s:f, s:f, s:f, s:I}", "pid", client->pid,
                             "device", ctl_uuid(client->uuid, uuid), "moved_out_per_s",
                             rate.out, "moved_in_per_s", rate.in, "gpu_share", rate.gpu,
                             "calls_per_s", rate.calls, "turns", (json_int_t)rate.turns));
    }
    json_object_set_new(root, "interval_ns", number(elapsed_ns));
    json_object_set_new(root, "rates", rates);
    code = root == NULL || json_dumpf(root, stdout, JSON_COMPACT) != 0 ? -ENOMEM : 0;
    putchar('\n');
    json_decref(root);
    return code;
}
