/* SPDX-License-Identifier: Apache-2.0
 *
 * status_command.c: `gpusharectl status`: devices, programs on them, remarks, as text or JSON.
 */
#include "lockd/ctl/ctl.h"
#include "common/size.h"
#include "lockd/base/text.h"
#include "lockd/protocol/names.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add_remark(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_remark(char *buffer, size_t size, const char *format, ...)
{
    size_t at = strlen(buffer);
    va_list ap;

    if (at != 0 && at + 2 < size)
        at += (size_t)snprintf(buffer + at, size - at, ", ");
    va_start(ap, format);
    vsnprintf(buffer + at, size - at, format, ap);
    va_end(ap);
}

static const char *gang_why(const struct gs_wire_client *client)
{
    const char *why = lockd_kin_name(client->gang_why);

    return why != NULL ? why : "?";
}

/* What this program said, and what is odd about it, in a few words. */
static void remarks_of(const struct ctl_answer *answer, const struct gs_wire_client *client,
                       char *buffer, size_t size)
{
    char limit[24];
    const struct {
        uint32_t flag;
        const char *text;
    } odd[] = {{GS_CLIENT_PAUSED, "paused"},
               {GS_CLIENT_FROZEN, "checkpointed"},
               {GS_CLIENT_PARTIAL, "partial"},
               {GS_CLIENT_SKIPPED, "skipped"},
               {GS_CLIENT_FOREIGN, "other pid namespace"}};

    buffer[0] = '\0';
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        if ((client->flags & odd[i].flag) != 0)
            add_remark(buffer, size, "%s", odd[i].text);
    }
    if (client->class == GS_CLASS_BACKGROUND)
        add_remark(buffer, size, "background");
    if (client->weight != 0 && client->weight != GS_WEIGHT_DEFAULT)
        add_remark(buffer, size, "weight %llu", (unsigned long long)client->weight);
    if (client->priority != 0)
        add_remark(buffer, size, "priority %d", client->priority);
    if (client->group[0] != '\0')
        add_remark(buffer, size, "group %s%s", client->group,
                   (client->flags & GS_CLIENT_APART) != 0 ? " (apart)" : "");
    else if (client->gang != 0)
        add_remark(buffer, size, "gang %llu (%s)%s", (unsigned long long)client->gang,
                   gang_why(client), (client->flags & GS_CLIENT_APART) != 0 ? " (apart)" : "");
    if (client->limit != UINT64_MAX)
        add_remark(buffer, size, "limit %s",
                   gs_size_format(client->limit, limit, sizeof limit));
    for (size_t i = 0; i < answer->remark_count; i++) {
        const struct gs_wire_remark *remark = &answer->remarks[i];

        if (remark->pid == client->pid && remark->ended == 0)
            add_remark(buffer, size, "%s", ctl_note_kind(remark->kind));
    }
}

static int column_width(const struct lockd_figure *figure)
{
    return figure->unit == LOCKD_FIGURE_COUNT ? 6 : 10;
}

static void print_client(const struct ctl_answer *answer, const struct gs_wire_client *client)
{
    char remarks[256], name[128], text[24];

    remarks_of(answer, client, remarks, sizeof remarks);
    printf("  %8d  %s %-12s", client->pid, lockd_text_fit(client->name, 20, name, sizeof name),
           ctl_condition_name(client->condition));
    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (at->heading[0] != '\0')
            printf(" %*s", column_width(at),
                   ctl_figure_text(at, lockd_figure_value(at, client), text, sizeof text));
    }
    printf("  %s\n", remarks);
}

static void print_heading(void)
{
    printf("  %8s  %-20s %-12s", "PID", "NAME", "STATE");
    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (at->heading[0] != '\0')
            printf(" %*s", column_width(at), at->heading);
    }
    puts("  NOTES");
}

static void print_device(const struct ctl_answer *answer, const struct gs_wire_device *device)
{
    char uuid[CTL_UUID_SIZE], total[24], capacity[24], demand[24], resident[24], quantum[24];

    printf("\n%s  %s  %s\n", device->name, ctl_uuid(device->uuid, uuid),
           gs_size_format(device->total, total, sizeof total));
    printf("  %s: capacity %s, demand %s, resident %s",
           device->exclusive != 0 ? "exclusive"
           : device->leases != 0  ? "leases"
                                  : "open",
           gs_size_format(device->capacity, capacity, sizeof capacity),
           gs_size_format(device->demand, demand, sizeof demand),
           gs_size_format(device->resident, resident, sizeof resident));
    if (device->leases != 0)
        printf(", quantum %s, %llu waiting",
               ctl_duration(device->quantum_ns, quantum, sizeof quantum),
               (unsigned long long)device->waiting);
    putchar('\n');
    print_heading();
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];

        if (client->condition != GS_CONDITION_NO_DEVICE &&
            memcmp(client->uuid, device->uuid, sizeof device->uuid) == 0)
            print_client(answer, client);
    }
}

static void print_deviceless(const struct ctl_answer *answer)
{
    bool headed = false;

    for (size_t i = 0; i < answer->client_count; i++) {
        if (answer->clients[i].condition != GS_CONDITION_NO_DEVICE)
            continue;
        if (!headed)
            puts("\nprograms that have not used a device");
        headed = true;
        print_client(answer, &answer->clients[i]);
    }
}

static void print_text(const struct ctl_answer *answer)
{
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
        print_device(answer, &answer->devices[i]);
    print_deviceless(answer);
    if (answer->remark_count != 0)
        puts("\nnotes");
    for (size_t i = 0; i < answer->remark_count; i++) {
        const struct gs_wire_remark *remark = &answer->remarks[i];

        printf("  %s (process %d%s), %s ago: %s\n", remark->name, remark->pid,
               remark->ended != 0 ? ", ended" : "",
               ctl_duration(remark->age_ns, text, sizeof text), remark->text);
    }
}

static enum ctl_exit show_status(struct ctl *ctl, bool json)
{
    struct ctl_answer answer;
    enum ctl_exit exit_code = CTL_OK;
    int code = ctl_ask_status(ctl, &answer);

    if (code != 0 && !(json && code == -ENOENT))
        return ctl_fail(ctl);
    if (!json)
        print_text(&answer);
    else if (ctl_json_print(ctl, &answer) != 0)
        exit_code = CTL_FAILED;
    ctl_answer_deinit(&answer);
    return ctl_done(exit_code);
}

static enum ctl_exit status_run(struct ctl *ctl, int argc, char **argv)
{
    bool json = false;
    const struct lockd_option table[] = {
        {.name = "json", .kind = LOCKD_OPTION_FLAG, .value = &json},
        {0},
    };
    int index = 1;

    if (lockd_options_parse(table, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_status, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_status, "takes no arguments");
    return show_status(ctl, json);
}

const struct ctl_command ctl_status = {
    "status", "[--json]", "show the devices and the programs on them", status_run, NULL};
