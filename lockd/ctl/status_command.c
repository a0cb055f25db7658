/* SPDX-License-Identifier: Apache-2.0
 *
 * status_command.c: `gpusharectl status`: devices, programs on them, remarks, as text or JSON.
 */
#include "common/size.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/who.h"
#include "lockd/ctl/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void print_device(const struct ctl_layout *layout, const struct ctl_answer *answer,
                         size_t index)
{
    const struct gs_wire_device *device = &answer->devices[index];
    char uuid[LOCKD_UUID_SIZE], total[24], capacity[24], demand[24], resident[24], quantum[24];
    const int busy = ctl_device_busy(answer, index);

    printf("\n%s  %s  %s\n", device->name, lockd_uuid_text(device->uuid, uuid),
           gs_size_format(device->total, total, sizeof total));
    printf("  %s: capacity %s, demand %s, resident %s",
           device->exclusive != 0 ? "exclusive"
           : device->leases != 0  ? "leases"
                                  : "open",
           gs_size_format(device->capacity, capacity, sizeof capacity),
           gs_size_format(device->demand, demand, sizeof demand),
           gs_size_format(device->resident, resident, sizeof resident));
    if (device->leases != 0)
        printf("%s quantum %s, %llu waiting", layout->wide ? "," : "\n ",
               ctl_duration(device->quantum_ns, quantum, sizeof quantum),
               (unsigned long long)device->waiting);
    putchar('\n');
    if (busy != CTL_BUSY_UNKNOWN)
        printf("  busy %d %% of the last second, as NVML measured it\n", busy);
    ctl_table_heading(layout);
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];

        if (client->condition != GS_CONDITION_NO_DEVICE &&
            memcmp(client->uuid, device->uuid, sizeof device->uuid) == 0)
            ctl_table_row(layout, answer, i);
    }
}

static void print_deviceless(const struct ctl_layout *layout, const struct ctl_answer *answer)
{
    bool headed = false;

    for (size_t i = 0; i < answer->client_count; i++) {
        if (answer->clients[i].condition != GS_CONDITION_NO_DEVICE)
            continue;
        if (!headed)
            puts("\nprograms that have not used a device");
        headed = true;
        ctl_table_row(layout, answer, i);
    }
}

static void print_text(const struct ctl_answer *answer)
{
    const struct ctl_layout layout = ctl_layout_find();
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
    for (size_t i = 0; i < answer->device_count; i++)
        print_device(&layout, answer, i);
    print_deviceless(&layout, answer);
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
