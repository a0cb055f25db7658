/* SPDX-License-Identifier: Apache-2.0
 *
 * status_command.c: `gpusharectl status`: devices, programs on them, remarks, as text or JSON.
 */
#include "common/size.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What is shown, as one piece for the functions below. */
struct shown {
    const struct ctl_answer *answer;
    struct ctl_layout layout;
    struct ctl_table table;
};

/* A GPU: its number where NVML knows it, name, UUID, memory; then temperature, power and
 * use. */
static void print_gpu(const struct shown *shown, const struct nvml_gpu *gpu, const char *name,
                      const char *uuid, uint64_t total)
{
    char number[24] = "", size[24], heat[CTL_HEAT_SIZE], line[256] = "";

    if (gpu != NULL)
        snprintf(number, sizeof number, "GPU %u  ", gpu->index);
    printf("\n%s%s  %s  %s\n", number, name, uuid, gs_size_format(total, size, sizeof size));
    if (gpu == NULL)
        return;
    ctl_heat_text(gpu, heat);
    if (gpu->busy != NVML_UNKNOWN)
        snprintf(line, sizeof line, "%s%sbusy %d %% of the last second", heat,
                 heat[0] != '\0' ? ", " : "", gpu->busy);
    else
        snprintf(line, sizeof line, "%s", heat);
    ctl_print_notes(&shown->layout, 2, line);
}

static void print_memory(const struct shown *shown, const struct gs_wire_device *device)
{
    char capacity[24], demand[24], resident[24], external[24], quantum[24], line[256];
    int at = snprintf(line, sizeof line, "%s: capacity %s, demand %s, resident %s",
                      device->exclusive != 0 ? "exclusive"
                      : device->leases != 0  ? "leases"
                                             : "open",
                      gs_size_format(device->capacity, capacity, sizeof capacity),
                      gs_size_format(device->demand, demand, sizeof demand),
                      gs_size_format(device->resident, resident, sizeof resident));

    if (device->external != 0)
        at += snprintf(line + at, sizeof line - (size_t)at, ", external %s",
                       gs_size_format(device->external, external, sizeof external));
    if (device->leases != 0)
        snprintf(line + at, sizeof line - (size_t)at, ", quantum %s, %llu waiting",
                 ctl_duration(device->quantum_ns, quantum, sizeof quantum),
                 (unsigned long long)device->waiting);
    ctl_print_notes(&shown->layout, 2, line);
}

static void print_programs(const struct shown *shown, const struct gs_wire_device *device)
{
    for (size_t i = 0; i < shown->answer->client_count; i++) {
        const struct gs_wire_client *client = &shown->answer->clients[i];

        if (client->condition != GS_CONDITION_NO_DEVICE &&
            memcmp(client->uuid, device->uuid, sizeof device->uuid) == 0)
            ctl_status_row(&shown->table, &shown->layout, shown->answer, i);
    }
}

static bool has_outsiders(const struct ctl_answer *answer, const struct ctl_place *place)
{
    for (size_t i = 0; i < answer->outsider_count; i++) {
        if (ctl_outsider_there(answer, &answer->outsiders[i], place))
            return true;
    }
    return false;
}

static void print_place(const struct shown *shown, const struct ctl_place *place)
{
    const struct ctl_answer *answer = shown->answer;
    const struct gs_wire_device *device = place->device;
    const struct nvml_gpu *gpu = place->gpu;
    char uuid[LOCKD_UUID_SIZE];

    if (device != NULL)
        print_gpu(shown, gpu, device->name, lockd_uuid_text(device->uuid, uuid), device->total);
    else
        print_gpu(shown, gpu, gpu->name, gpu->uuid, gpu->total);
    if (device != NULL)
        print_memory(shown, device);
    if (device != NULL || has_outsiders(answer, place))
        ctl_status_heading(&shown->table, &shown->layout);
    else
        puts("  no programs");
    if (device != NULL)
        print_programs(shown, device);
    for (size_t i = 0; i < answer->outsider_count; i++) {
        if (ctl_outsider_there(answer, &answer->outsiders[i], place))
            ctl_status_outsider(&shown->table, &shown->layout, answer, i);
    }
}

static void print_deviceless(const struct shown *shown)
{
    bool headed = false;

    for (size_t i = 0; i < shown->answer->client_count; i++) {
        if (shown->answer->clients[i].condition != GS_CONDITION_NO_DEVICE)
            continue;
        if (!headed)
            puts("\nprograms that have not used a device");
        headed = true;
        ctl_status_row(&shown->table, &shown->layout, shown->answer, i);
    }
}

static void print_text(const struct ctl_answer *answer)
{
    struct shown shown = {.answer = answer, .layout = ctl_layout_find()};
    struct ctl_place place;
    char text[24], total[24];

    printf("gpushare-lockd %s (process %d), up %s, %llu %s\n", answer->daemon.version,
           answer->daemon.pid, ctl_duration(answer->daemon.uptime_ns, text, sizeof text),
           (unsigned long long)answer->daemon.programs,
           answer->daemon.programs == 1 ? "program" : "programs");
    if (answer->daemon.policy != GS_POLICY_FAIR)
        printf("  policy %s\n", ctl_policy_name(answer->daemon.policy));
    if (answer->daemon.hand_over == 0)
        puts("  memory is released between programs (hand-over is off)");
    if (answer->daemon.host_total != UINT64_MAX)
        printf("  host memory: %s of %s used for memory that was moved out\n",
               gs_size_format(answer->daemon.host_used, text, sizeof text),
               gs_size_format(answer->daemon.host_total, total, sizeof total));
    if (ctl_status_table(&shown.table, &shown.layout, answer) == 0) {
        for (size_t i = 0; ctl_place_at(answer, i, &place); i++)
            print_place(&shown, &place);
        print_deviceless(&shown);
    }
    ctl_table_clear(&shown.table);
    if (answer->remark_count != 0)
        puts("\nnotes");
    for (size_t i = 0; i < answer->remark_count; i++) {
        const struct gs_wire_remark *remark = &answer->remarks[i];

        printf("  %s (process %d%s), %s ago: %s\n", remark->name, remark->pid,
               remark->ended != 0 ? ", ended" : "",
               ctl_duration(remark->age_ns, text, sizeof text), remark->text);
    }
}

struct status_arguments {
    bool json, watch;
};

static const struct lockd_option status_options[] = {
    {"json", NULL, LOCKD_OPTION_FLAG, NULL, 0, 0, "print JSON (docs/protocol.md)", NULL, 0,
     offsetof(struct status_arguments, json)},
    {"watch", NULL, LOCKD_OPTION_FLAG, NULL, 0, 0, "print it again each second, until Ctrl-C",
     NULL, 'w', offsetof(struct status_arguments, watch)},
    {0},
};

static enum ctl_exit show_status(struct ctl *ctl, bool json)
{
    struct ctl_answer answer;
    enum ctl_exit exit_code = CTL_OK;
    int code = ctl_ask_status(ctl, &answer);

    if (code != 0 && !(json && code == -ENOENT))
        return ctl_fail(ctl);
    ctl_gpus_look_once(&answer);
    ctl_pods_look(&answer);
    if (!json)
        print_text(&answer);
    else if (ctl_json_print(ctl, &answer) != 0)
        exit_code = CTL_FAILED;
    ctl_answer_deinit(&answer);
    return ctl_done(exit_code);
}

static enum ctl_exit status_run(struct ctl *ctl, int argc, char **argv)
{
    const struct timespec second = {.tv_sec = 1};
    struct status_arguments arguments = {0};
    enum ctl_exit exit_code;
    int index = 1;

    if (lockd_options_read(status_options, &arguments, false, argc, argv, &index, &ctl->err) !=
        0)
        return ctl_usage(&ctl_status, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_status, "takes no arguments");
    if (arguments.watch && arguments.json)
        return ctl_usage(&ctl_status, "--watch prints no JSON; `top --json` does");
    for (;;) {
        if (arguments.watch && isatty(STDOUT_FILENO))
            fputs("\033[H\033[2J", stdout); /* the cursor to the top, and an empty screen */
        exit_code = show_status(ctl, arguments.json);
        if (!arguments.watch || exit_code != CTL_OK)
            return exit_code;
        putchar('\n');
        nanosleep(&second, NULL);
    }
}

const struct ctl_command ctl_status = {
    "status",   "",   "show the devices and the programs on them",
    status_run, NULL, status_options};
