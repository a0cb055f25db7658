/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c: makes JSON of the daemon's answer. The schema is in docs/protocol.md; fields are added,
 * never removed.
 */
#include "common/fd.h"
#include "lockd/base/text.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/words.h"

#include <jansson.h>
#include <string.h>

const struct gs_option ctl_json_option[] = {
    {.name = "json", .kind = GS_OPTION_FLAG, .help = "print JSON (docs/protocol.md)"},
    {0},
};

/* Bytes and nanoseconds as integers, which are signed here; automatic values as null. */
static json_t *number_json(uint64_t value)
{
    return value == UINT64_MAX
               ? json_null()
               : json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

/* A path may have any bytes; JSON needs UTF-8. */
json_t *ctl_json_text(const char *bytes)
{
    GS_FREE char *text = strdup(bytes);

    if (text == NULL)
        return NULL;
    lockd_text_clean(text, strlen(text) + 1);
    return json_string(text);
}

/* Adds the figures of a message to the object that shows it. */
static void add_figures(json_t *object, const struct lockd_figure *figures, const void *message)
{
    for (const struct lockd_figure *at = figures; at->help != NULL; at++) {
        const uint64_t value = lockd_figure_value(at, message);

        if (at->json[0] != '\0')
            json_object_set_new(object, at->json,
                                at->unit == LOCKD_FIGURE_FLAG ? json_boolean(value != 0)
                                                              : number_json(value));
    }
}

static json_t *number_or_null(int value)
{
    return value == NVML_UNKNOWN ? json_null() : json_integer(value);
}

static json_t *text_or_null(const char *text)
{
    return text[0] != '\0' ? ctl_json_text(text) : json_null();
}

static json_t *client_json(const struct ctl_answer *answer, size_t index)
{
    const struct gs_wire_client *client = &answer->clients[index];
    const struct ctl_pod *pod = ctl_client_pod(answer, index);
    char user[64], why[CTL_WHY_SIZE];
    json_t *object = json_pack(
        "{s:i, s:I, s:o, s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:i, s:o, s:b, s:s?, s:o, "
        "s:o, s:o, s:o, s:o, s:o}",
        "pid", client->pid, "uid", (json_int_t)client->uid, "name", ctl_json_text(client->name),
        "version", ctl_json_text(client->version), "state",
        ctl_condition_name(client->condition), "lease", (client->flags & GS_CLIENT_LEASE) != 0,
        "skipped", (client->flags & GS_CLIENT_SKIPPED) != 0, "paused",
        (client->flags & GS_CLIENT_PAUSED) != 0, "partial",
        (client->flags & GS_CLIENT_PARTIAL) != 0, "foreign_pid",
        (client->flags & GS_CLIENT_FOREIGN) != 0, "priority", client->priority, "group",
        ctl_json_text(client->group), "group_apart", (client->flags & GS_CLIENT_APART) != 0,
        "gang_why", lockd_kin_name(client->gang_why), "user",
        ctl_json_text(ctl_user_name(client->uid, user, sizeof user)), "container",
        text_or_null(client->container), "pod", text_or_null(client->pod), "pod_name",
        text_or_null(pod->name), "pod_namespace", text_or_null(pod->space), "container_name",
        text_or_null(pod->container));

    add_figures(object, lockd_program_figures, client);
    json_object_set_new(object, "why", text_or_null(ctl_why_text(answer, client, why)));
    json_object_set_new(object, "busy_percent", number_or_null(ctl_client_busy(answer, index)));
    return object;
}

static json_t *clients_json(const struct ctl_answer *answer, const char *uuid)
{
    json_t *array = json_array();
    char own[LOCKD_UUID_SIZE];

    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];
        const bool none = client->condition == GS_CONDITION_NO_DEVICE;

        if (uuid == NULL ? none
                         : (!none && strcmp(lockd_uuid_text(client->uuid, own), uuid) == 0))
            json_array_append_new(array, client_json(answer, i));
    }
    return array;
}

static json_t *device_json(const struct ctl_answer *answer, size_t index)
{
    const struct gs_wire_device *device = &answer->devices[index];
    char uuid[LOCKD_UUID_SIZE];
    json_t *object =
        json_pack("{s:s, s:o, s:s}", "uuid", lockd_uuid_text(device->uuid, uuid), "name",
                  ctl_json_text(device->name), "mode", device->leases != 0 ? "leases" : "open");

    add_figures(object, lockd_device_figures, device);
    json_object_set_new(object, "busy_percent", number_or_null(ctl_device_busy(answer, index)));
    json_object_set_new(object, "programs", clients_json(answer, uuid));
    return object;
}

/* "counts": the number of durations at most as long as each bound and longer than the bound
 * before; last, the number of those longer than all bounds. */
static json_t *histogram_json(const struct gs_wire_histogram *histogram)
{
    json_t *bounds = json_array(), *counts = json_array();

    for (size_t i = 0; i < GS_HISTOGRAM_BOUNDS; i++)
        json_array_append_new(bounds, json_real(strtod(lockd_histogram_bounds[i], NULL)));
    for (size_t i = 0; i <= GS_HISTOGRAM_BOUNDS; i++)
        json_array_append_new(counts, number_json(histogram->count[i]));
    return json_pack("{s:o, s:o, s:o}", "bounds_s", bounds, "counts", counts, "sum_ns",
                     number_json(histogram->sum_ns));
}

static json_t *totals_json(const struct gs_wire_totals *totals)
{
    char uuid[LOCKD_UUID_SIZE];
    json_t *object = json_pack("{s:s, s:o}", "uuid", lockd_uuid_text(totals->uuid, uuid),
                               "name", ctl_json_text(totals->name));

    add_figures(object, lockd_total_figures, totals);
    for (const struct lockd_figure *at = lockd_histograms; at->help != NULL; at++)
        json_object_set_new(object, at->json,
                            histogram_json(lockd_figure_histogram(at, totals)));
    return object;
}

static json_t *outsider_json(const struct ctl_outsider *outsider)
{
    char user[64] = "";

    if (outsider->uid != CTL_NO_USER)
        ctl_user_name(outsider->uid, user, sizeof user);
    return json_pack("{s:i, s:o, s:o, s:o, s:s, s:o, s:o}", "pid", outsider->pid, "uid",
                     outsider->uid != CTL_NO_USER ? json_integer(outsider->uid) : json_null(),
                     "user", text_or_null(user), "name", text_or_null(outsider->name), "why",
                     ctl_why_name(outsider->why), "memory", number_json(outsider->memory),
                     "busy_percent", number_or_null(outsider->busy));
}

/* A GPU of the machine, whether programs have used it or not; with the processes on it that
 * are not programs of the daemon. */
static json_t *gpu_json(const struct ctl_answer *answer, uint32_t index)
{
    const struct nvml_gpu *gpu = &answer->gpus.gpus[index];
    json_t *others = json_array();

    for (size_t i = 0; i < answer->outsider_count; i++) {
        if (answer->outsiders[i].gpu == index)
            json_array_append_new(others, outsider_json(&answer->outsiders[i]));
    }
    return json_pack(
        "{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "index", (int)gpu->index, "uuid",
        gpu->uuid, "name", gpu->name, "total", number_json(gpu->total), "used",
        number_json(gpu->used), "busy_percent", number_or_null(gpu->busy), "temperature_c",
        number_or_null(gpu->temperature), "power_w", number_or_null(gpu->power),
        "power_limit_w", number_or_null(gpu->power_limit), "other_processes", others);
}

json_t *ctl_json_status(const struct ctl *ctl, const struct ctl_answer *answer)
{
    json_t *root =
        json_pack("{s:b, s:o}", "running", answer->running, "socket", ctl_json_text(ctl->path));
    json_t *devices = json_array(), *totals = json_array(), *remarks = json_array();
    json_t *gpus = json_array();

    for (size_t i = 0; i < answer->device_count; i++)
        json_array_append_new(devices, device_json(answer, i));
    for (uint32_t i = 0; i < answer->gpus.gpu_count; i++)
        json_array_append_new(gpus, gpu_json(answer, i));
    json_object_set_new(root, "gpus", gpus);
    for (size_t i = 0; i < answer->total_count; i++)
        json_array_append_new(totals, totals_json(&answer->totals[i]));
    for (size_t i = 0; i < answer->remark_count; i++) {
        const struct gs_wire_remark *remark = &answer->remarks[i];

        json_array_append_new(
            remarks,
            json_pack("{s:i, s:o, s:s, s:o, s:b, s:I, s:o}", "pid", remark->pid, "name",
                      ctl_json_text(remark->name), "kind", ctl_note_kind(remark->kind),
                      "age_ns", number_json(remark->age_ns), "ended", remark->ended != 0,
                      "count", (json_int_t)remark->count, "text", ctl_json_text(remark->text)));
    }
    if (answer->running) {
        json_t *daemon = json_pack(
            "{s:o, s:i, s:s}", "version", ctl_json_text(answer->daemon.version), "pid",
            answer->daemon.pid, "policy", ctl_policy_name(answer->daemon.policy));

        add_figures(daemon, lockd_daemon_figures, &answer->daemon);
        json_object_set_new(root, "daemon", daemon);
        json_object_set_new(root, "devices", devices);
        json_object_set_new(root, "programs_without_device", clients_json(answer, NULL));
        json_object_set_new(root, "totals", totals);
        json_object_set_new(root, "notes", remarks);
    } else {
        json_decref(devices);
        json_decref(totals);
        json_decref(remarks);
    }
    return root;
}

int ctl_json_put(json_t *root, size_t flags)
{
    const int code = root == NULL || json_dumpf(root, stdout, flags) != 0 ? -ENOMEM : 0;

    putchar('\n');
    json_decref(root);
    return code;
}

/* "rates": one object for each program on each device. */
int ctl_json_top(const struct ctl *ctl, const struct ctl_answer *now,
                 const struct ctl_answer *before, uint64_t elapsed_ns)
{
    json_t *root = ctl_json_status(ctl, now), *rates = json_array();

    for (size_t i = 0; i < now->client_count; i++) {
        const struct gs_wire_client *client = &now->clients[i];
        const struct ctl_rate rate = ctl_rate_of(before, now, i, elapsed_ns);
        char uuid[LOCKD_UUID_SIZE];

        if (client->condition == GS_CONDITION_NO_DEVICE)
            continue;
        json_array_append_new(
            rates, json_pack("{s:i, s:s, s:f, s:f, s:f, s:f, s:I}", "pid", client->pid,
                             "device", lockd_uuid_text(client->uuid, uuid), "moved_out_per_s",
                             rate.out, "moved_in_per_s", rate.in, "gpu_share", rate.gpu,
                             "calls_per_s", rate.calls, "turns", (json_int_t)rate.turns));
    }
    json_object_set_new(root, "interval_ns", number_json(elapsed_ns));
    json_object_set_new(root, "rates", rates);
    return ctl_json_put(root, JSON_COMPACT);
}
