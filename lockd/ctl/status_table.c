/* SPDX-License-Identifier: Apache-2.0
 *
 * status_table.c: `gpusharectl status`, and its table: one row for each program on a device, and for
 * each other process on a GPU. A terminal too narrow for all columns shows the most important
 * columns, and the notes in lines of their own.
 */
#include "lockd/ctl/status_table.h"
#include "common/size.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/words.h"
#include "lockd/ctl/json.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INDENT        10         /* indentation of notes below their program */
#define YIELDED_LEAST 100000000u /* ns */
#define STATE_LEAST   8          /* "stopping" */

__attribute__((format(printf, 3, 4))) static void add_remark(char *buffer, size_t size,
                                                             const char *format, ...)
{
    size_t at = strlen(buffer);
    va_list ap;

    if (at != 0 && at + 2 < size)
        at += (size_t)snprintf(buffer + at, size - at, ", ");
    va_start(ap, format);
    vsnprintf(buffer + at, size - at, format, ap);
    va_end(ap);
}

void ctl_program_notes(const struct ctl_answer *answer, size_t index, char *buffer, size_t size)
{
    const struct gs_wire_client *client = &answer->clients[index];
    const struct ctl_pod *pod = ctl_client_pod(answer, index);
    const char *gang = lockd_kin_name(client->gang_why);
    char limit[24], container[CTL_CONTAINER_SIZE], why[CTL_WHY_SIZE];
    const struct {
        uint32_t flag;
        const char *text;
    } odd[] = {{GS_CLIENT_PAUSED, "paused"},
               {GS_CLIENT_PARTIAL, "partial"},
               {GS_CLIENT_SKIPPED, "skipped"},
               {GS_CLIENT_FOREIGN, "other pid namespace"}};

    buffer[0] = '\0';
    if (ctl_why_text(answer, client, why)[0] != '\0')
        add_remark(buffer, size, "%s", why);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        if ((client->flags & odd[i].flag) != 0)
            add_remark(buffer, size, "%s", odd[i].text);
    }
    if (pod->container[0] != '\0')
        add_remark(buffer, size, "container %s", pod->container);
    else if (client->container[0] != '\0')
        add_remark(buffer, size, "container %s", ctl_container_text(client, container));
    if (pod->name[0] != '\0')
        add_remark(buffer, size, "pod %s/%s", pod->space, pod->name);
    else if (client->pod[0] != '\0')
        add_remark(buffer, size, "pod %s", client->pod);
    if (client->class == GS_CLASS_BACKGROUND)
        add_remark(buffer, size, "background");
    if (client->yielded_ns >= YIELDED_LEAST)
        add_remark(buffer, size, "yielded %.1f s", (double)client->yielded_ns / 1e9);
    if (client->weight != 0 && client->weight != GS_WEIGHT_DEFAULT)
        add_remark(buffer, size, "weight %llu", (unsigned long long)client->weight);
    if (client->priority != 0)
        add_remark(buffer, size, "priority %d", client->priority);
    if (client->group[0] != '\0')
        add_remark(buffer, size, "group %s%s", client->group,
                   (client->flags & GS_CLIENT_APART) != 0 ? " (apart)" : "");
    else if (client->gang != 0)
        add_remark(buffer, size, "gang %llu (%s)%s", (unsigned long long)client->gang,
                   gang != NULL ? gang : "?",
                   (client->flags & GS_CLIENT_APART) != 0 ? " (apart)" : "");
    if (client->limit != UINT64_MAX)
        add_remark(buffer, size, "limit %s",
                   gs_size_format(client->limit, limit, sizeof limit));
    gs_each (remark, answer->remarks, answer->remark_count) {
        if (remark->pid == client->pid && remark->ended == 0)
            add_remark(buffer, size, "%s", ctl_note_kind(remark->kind));
    }
}

/* What is shown, and on which terminal. */
struct shown {
    const struct ctl_answer *answer;
    int columns; /* columns of the terminal; 0: lines may have any length */
    bool colour; /* with escape sequences */
    struct ctl_table table;
};

/* Where a column stands, in the order in which narrow terminals do without: the place of
 * the memory first, then what the program does. */
enum rank { ALWAYS, RESIDENT, EXTERNAL, ON_HOST, BUSY, PINNED, ALLOWED, OTHERS };

static int rank_of(const struct lockd_figure *figure)
{
    switch (figure->offset) {
    case offsetof(struct gs_wire_client, resident):
        return RESIDENT;
    case offsetof(struct gs_wire_client, on_host):
        return ON_HOST;
    case offsetof(struct gs_wire_client, pinned):
        return PINNED;
    default:
        return OTHERS;
    }
}

/* The columns before the figures; the cells have these numbers. */
enum { PID_CELL, USER_CELL, NAME_CELL, STATE_CELL, FIRST_FIGURE };

void ctl_put_bytes(uint64_t bytes, char *cell)
{
    if (bytes != NVML_BYTES_UNKNOWN)
        gs_size_format(bytes, cell, CTL_TABLE_CELL);
}

static void fill_program(const struct ctl_answer *answer, size_t index, struct ctl_row *row)
{
    const struct gs_wire_client *client = &answer->clients[index];
    size_t at = FIRST_FIGURE;

    snprintf(row->cell[PID_CELL], CTL_TABLE_CELL, "%d", client->pid);
    ctl_user_name(client->uid, row->cell[USER_CELL], CTL_TABLE_CELL);
    snprintf(row->cell[NAME_CELL], CTL_TABLE_CELL, "%s", client->name);
    snprintf(row->cell[STATE_CELL], CTL_TABLE_CELL, "%s",
             ctl_condition_name(client->condition));
    for (const struct lockd_figure *each = lockd_program_figures; each->help != NULL; each++) {
        const uint64_t value = lockd_figure_value(each, client);

        if (each->heading[0] == '\0')
            continue;
        if (value != 0 || rank_of(each) != PINNED)
            ctl_figure_text(each, value, row->cell[at], CTL_TABLE_CELL);
        at++;
    }
    ctl_put_bytes(ctl_client_external(answer, index), row->cell[at]);
    ctl_percent(ctl_allowed_percent(client), row->cell[at + 1], CTL_TABLE_CELL);
    ctl_percent(ctl_client_busy(answer, index), row->cell[at + 2], CTL_TABLE_CELL);
}

void ctl_outsider_fill(const struct ctl_outsider *outsider, struct ctl_row *row,
                       size_t external, size_t busy)
{
    snprintf(row->cell[PID_CELL], CTL_TABLE_CELL, "%d", outsider->pid);
    if (outsider->uid != CTL_NO_USER)
        ctl_user_name(outsider->uid, row->cell[USER_CELL], CTL_TABLE_CELL);
    snprintf(row->cell[NAME_CELL], CTL_TABLE_CELL, "%s", outsider->name);
    snprintf(row->cell[STATE_CELL], CTL_TABLE_CELL, "%s", ctl_why_name(outsider->why));
    ctl_put_bytes(outsider->memory, row->cell[external]);
    ctl_percent(outsider->busy, row->cell[busy], CTL_TABLE_CELL);
}

/* Makes the table of all programs and all other processes, of all devices, so that their columns
 * stand below each other. False: no memory. */
static bool fill_table(struct shown *shown)
{
    const struct ctl_answer *answer = shown->answer;
    struct ctl_table *table = &shown->table;

    ctl_table_column(table, (struct ctl_column){"PID", .least = 7});
    ctl_table_column(table, (struct ctl_column){"USER", .left = true});
    ctl_table_column(table, (struct ctl_column){"NAME", .left = true});
    ctl_table_column(table, (struct ctl_column){"STATE", .left = true, .least = STATE_LEAST});
    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (at->heading[0] != '\0')
            ctl_table_column(
                table,
                (struct ctl_column){at->heading, .rank = rank_of(at),
                                    .unit = at->unit == LOCKD_FIGURE_COUNT ? 0 : CTL_UNIT_WIDTH,
                                    .if_any = rank_of(at) == PINNED});
    }
    ctl_table_column(table, (struct ctl_column){"EXTERNAL", .rank = EXTERNAL,
                                                .unit = CTL_UNIT_WIDTH, .if_any = true});
    ctl_table_column(table, (struct ctl_column){"ALLOWED", .rank = ALLOWED, .unit = 1});
    ctl_table_column(table, (struct ctl_column){"BUSY", .rank = BUSY, .unit = 1, .least = 5});
    for (size_t i = 0; i < answer->client_count; i++) {
        struct ctl_row *row = ctl_table_row(table);

        if (row == NULL)
            return false;
        fill_program(answer, i, row);
    }
    for (size_t i = 0; i < answer->outsider_count; i++) {
        struct ctl_row *row = ctl_table_row(table);

        if (row == NULL)
            return false;
        ctl_outsider_fill(&answer->outsiders[i], row, table->column_count - 3,
                          table->column_count - 1);
    }
    ctl_table_fit(table, shown->columns, NAME_CELL);
    return true;
}

static const char *start_colour(const struct shown *shown, enum ctl_colour which)
{
    return shown->colour ? ctl_colour_start(which) : "";
}

static const char *colour_end(const struct shown *shown)
{
    return shown->colour ? CTL_COLOUR_END : "";
}

/* Prints a row, or the headings, as a whole in that colour. */
static void print_row(const struct shown *shown, size_t row, enum ctl_colour colour,
                      const char *behind)
{
    char line[2048];

    ctl_table_line(&shown->table, row, CTL_TABLE_COLUMNS, "", "", line, sizeof line);
    printf("%s%s%s%s\n", start_colour(shown, colour), line, behind, colour_end(shown));
}

/* The length of the notes that fit into a line: whole notes, at least one. */
static size_t measure_line(const char *notes, size_t room)
{
    const size_t all = strlen(notes);
    size_t length = all;

    if (all <= room)
        return all;
    for (const char *at = strstr(notes, ", "); at != NULL; at = strstr(at + 1, ", ")) {
        const size_t end = (size_t)(at - notes) + 1; /* with its comma */

        if (length == all || end <= room)
            length = end;
    }
    return length;
}

/* Prints notes in lines of their own, broken between two notes. */
static void print_notes(const struct shown *shown, int indent, const char *notes)
{
    const int columns = shown->columns == 0           ? INT_MAX
                        : shown->columns > 2 * indent ? shown->columns
                                                      : 2 * indent;

    while (*notes != '\0') {
        const size_t length = measure_line(notes, (size_t)(columns - indent));

        printf("%*s%.*s\n", indent, "", (int)length, notes);
        notes += length;
        notes += strspn(notes, " ");
    }
}

/* Prints the program at that index, with its notes. */
static void print_program(const struct shown *shown, size_t index)
{
    const uint32_t condition = shown->answer->clients[index].condition;
    char line[2048], notes[1024];

    ctl_program_notes(shown->answer, index, notes, sizeof notes);
    ctl_table_line(&shown->table, index, STATE_CELL,
                   start_colour(shown, ctl_condition_colour(condition)), colour_end(shown),
                   line, sizeof line);
    if (shown->columns == 0 && notes[0] != '\0') {
        printf("%s  %s\n", line, notes);
        return;
    }
    puts(line);
    print_notes(shown, INDENT, notes);
}

/* A GPU: its number where NVML knows it, name, UUID, memory; then temperature, power and
 * use. */
static void print_gpu(const struct shown *shown, const struct nvml_gpu *gpu, const char *name,
                      const char *uuid, uint64_t total)
{
    char number[24] = "", size[24], line[256] = "";

    if (gpu != NULL)
        snprintf(number, sizeof number, "GPU %u  ", gpu->index);
    printf("\n%s%s  %s  %s\n", number, name, uuid, gs_size_format(total, size, sizeof size));
    if (gpu == NULL)
        return;
    ctl_heat_text(gpu, line);
    if (gpu->busy != NVML_UNKNOWN)
        add_remark(line, sizeof line, "busy %d %% of the last second", gpu->busy);
    print_notes(shown, 2, line);
}

static void print_memory(const struct shown *shown, const struct gs_wire_device *device)
{
    char capacity[24], demand[24], resident[24], external[24], quantum[24], line[256];

    snprintf(line, sizeof line, "%s: capacity %s, demand %s, resident %s",
             ctl_mode_name(device), gs_size_format(device->capacity, capacity, sizeof capacity),
             gs_size_format(device->demand, demand, sizeof demand),
             gs_size_format(device->resident, resident, sizeof resident));
    if (device->external != 0)
        add_remark(line, sizeof line, "external %s",
                   gs_size_format(device->external, external, sizeof external));
    if (device->leases != 0)
        add_remark(line, sizeof line, "quantum %s, %llu waiting",
                   ctl_duration(device->quantum_ns, quantum, sizeof quantum),
                   (unsigned long long)device->waiting);
    print_notes(shown, 2, line);
}

static void print_place(const struct shown *shown, const struct ctl_place *place)
{
    const struct ctl_answer *answer = shown->answer;
    const struct gs_wire_device *device = place->device;
    const struct nvml_gpu *gpu = place->gpu;
    bool any = device != NULL;
    char uuid[LOCKD_UUID_SIZE];

    for (size_t i = 0; i < answer->outsider_count; i++)
        any = any || ctl_outsider_there(answer, &answer->outsiders[i], place);
    if (device != NULL)
        print_gpu(shown, gpu, device->name, lockd_uuid_text(device->uuid, uuid), device->total);
    else
        print_gpu(shown, gpu, gpu->name, gpu->uuid, gpu->total);
    if (device != NULL)
        print_memory(shown, device);
    if (any)
        print_row(shown, CTL_TABLE_HEADING, CTL_HEAD, shown->columns == 0 ? "  NOTES" : "");
    else
        puts("  no programs");
    for (size_t i = 0; device != NULL && i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];

        if (client->condition != GS_CONDITION_NO_DEVICE &&
            memcmp(client->uuid, device->uuid, sizeof device->uuid) == 0)
            print_program(shown, i);
    }
    for (size_t i = 0; i < answer->outsider_count; i++) {
        if (ctl_outsider_there(answer, &answer->outsiders[i], place))
            print_row(shown, answer->client_count + i, CTL_GREY, "");
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
        print_program(shown, i);
    }
}

static void print_text(const struct ctl_answer *answer)
{
    struct shown shown = {
        .answer = answer, .columns = ctl_terminal_columns(), .colour = ctl_terminal_colour()};
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
    if (fill_table(&shown)) {
        for (size_t i = 0; ctl_place_at(answer, i, &place); i++)
            print_place(&shown, &place);
        print_deviceless(&shown);
    }
    ctl_table_clear(&shown.table);
    if (answer->remark_count != 0)
        puts("\nnotes");
    gs_each (remark, answer->remarks, answer->remark_count) {
        printf("  %s (process %d%s), %s ago: %s\n", remark->name, remark->pid,
               remark->ended != 0 ? ", ended" : "",
               ctl_duration(remark->age_ns, text, sizeof text), remark->text);
    }
}

struct status_arguments {
    bool json, watch;
};

static const struct gs_option status_options[] = {
    {"json", NULL, GS_OPTION_FLAG, NULL, 0, 0, "print JSON (docs/protocol.md)", NULL, 0,
     offsetof(struct status_arguments, json)},
    {"watch", NULL, GS_OPTION_FLAG, NULL, 0, 0, "print it again each second, until Ctrl-C",
     NULL, 'w', offsetof(struct status_arguments, watch)},
    {0},
};

enum ctl_exit ctl_status_show(struct ctl *ctl, bool json, bool without,
                              void (*print)(const struct ctl_answer *answer))
{
    struct ctl_answer answer;
    enum ctl_exit exit_code = CTL_OK;
    int code = ctl_ask_status(ctl, &answer);

    if (code != 0 && !(without && code == -ENOENT))
        return ctl_fail(ctl);
    ctl_gpus_look_once(&answer);
    ctl_pods_look(&answer);
    if (!json)
        print(&answer);
    else if (ctl_json_put(ctl_json_status(ctl, &answer), JSON_INDENT(2)) != 0)
        exit_code = CTL_FAILED;
    ctl_answer_deinit(&answer);
    return ctl_done(exit_code);
}

static enum ctl_exit status_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct timespec second = {.tv_sec = 1};
    const struct status_arguments *given = words;
    enum ctl_exit exit_code;

    (void)count, (void)operands;
    if (given->watch && given->json)
        return ctl_usage(ctl, "--watch prints no JSON; `top --json` does");
    for (;;) {
        if (given->watch && isatty(STDOUT_FILENO))
            fputs("\033[H\033[2J", stdout); /* the cursor to the top, and an empty screen */
        exit_code = ctl_status_show(ctl, given->json, given->json, print_text);
        if (!given->watch || exit_code != CTL_OK)
            return exit_code;
        putchar('\n');
        nanosleep(&second, NULL);
    }
}

const struct ctl_command ctl_status = {
    "status",   "",   "show the devices and the programs on them",
    status_run, NULL, status_options};
