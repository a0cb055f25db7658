/* SPDX-License-Identifier: Apache-2.0
 *
 * top_table.c: makes the rows of the programs, and of the processes that are not programs. No
 * state.
 */
#include "lockd/ctl/watch/top_table.h"
#include "common/size.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/table.h"
#include "lockd/ctl/words.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The programs as lines: filtered by user, sorted within their device; and the chosen line.
 * The chosen program stays the same when its line moves. */

const char *top_lines_order(enum top_order order)
{
    static const char *const names[TOP_ORDERS] = {
        [TOP_BY_PROCESS] = "process", [TOP_BY_USER] = "user",       [TOP_BY_MEMORY] = "memory",
        [TOP_BY_MOVED] = "moved",     [TOP_BY_ALLOWED] = "allowed", [TOP_BY_BUSY] = "busy",
        [TOP_BY_WAIT] = "wait",
    };

    return names[order];
}

/* Smaller keys come first: figures are negated, numbers of users and processes are not. */
static double key_of(const struct top *top, const struct top_line *line)
{
    const struct gs_wire_client *client = &top->now.clients[line->index];

    switch (top->view.order) {
    case TOP_BY_USER:
        return client->uid;
    case TOP_BY_MEMORY:
        return -(double)client->demand;
    case TOP_BY_MOVED:
        return -(line->rate.out + line->rate.in);
    case TOP_BY_ALLOWED:
        return -line->rate.gpu;
    case TOP_BY_BUSY:
        return -(double)ctl_client_busy(&top->now, line->index);
    case TOP_BY_WAIT:
        return -(double)client->wait_longest_ns;
    default:
        return client->pid;
    }
}

static void sort_lines(const struct top *top, struct top_line *lines, size_t count)
{
    const double sign = top->view.reverse ? -1 : 1;

    for (size_t i = 1; i < count; i++) { /* equal ones keep their order */
        const struct top_line line = lines[i];
        const double key = sign * key_of(top, &line);
        size_t at = i;

        for (; at > 0 && sign * key_of(top, &lines[at - 1]) > key; at--)
            lines[at] = lines[at - 1];
        lines[at] = line;
    }
}

static void add_device(struct top *top, const struct gs_wire_device *device)
{
    const size_t first = top->line_count;

    for (size_t i = 0; i < top->now.client_count; i++) {
        const struct gs_wire_client *client = &top->now.clients[i];

        if (client->condition == GS_CONDITION_NO_DEVICE ||
            memcmp(client->uuid, device->uuid, sizeof device->uuid) != 0 ||
            (top->view.filtered && client->uid != top->view.uid) ||
            top->line_count == top->now.client_count)
            continue;
        top->lines[top->line_count++] =
            (struct top_line){i, ctl_rate_of(&top->before, &top->now, i, top->elapsed)};
    }
    sort_lines(top, top->lines + first, top->line_count - first);
}

bool top_lines_fill(struct top *top)
{
    struct top_line *lines =
        realloc(top->lines, (top->now.client_count + 1) * sizeof *top->lines);
    struct ctl_place place;

    top->line_count = 0;
    if (lines == NULL)
        return false;
    top->lines = lines;
    for (size_t i = 0; ctl_place_at(&top->now, i, &place); i++) {
        if (place.device != NULL)
            add_device(top, place.device);
    }
    return true;
}

static bool is_chosen(const struct top *top, const struct gs_wire_client *client)
{
    return client->pid == top->chosen.pid &&
           memcmp(client->uuid, top->chosen.uuid, sizeof client->uuid) == 0;
}

static size_t chosen_index(const struct top *top)
{
    unsigned twin = top->chosen.twin;

    for (size_t i = 0; i < top->line_count; i++) {
        if (is_chosen(top, &top->now.clients[top->lines[i].index]) && twin-- == 0)
            return i;
    }
    return 0;
}

const struct top_line *top_lines_chosen(const struct top *top)
{
    return top->line_count != 0 ? &top->lines[chosen_index(top)] : NULL;
}

void top_lines_move(struct top *top, int by)
{
    const struct gs_wire_client *client;
    long to = (long)chosen_index(top) + by;

    if (top->line_count == 0)
        return;
    to = to < 0 ? 0 : to >= (long)top->line_count ? (long)top->line_count - 1 : to;
    client = &top->now.clients[top->lines[to].index];
    top->chosen.pid = client->pid;
    memcpy(top->chosen.uuid, client->uuid, sizeof top->chosen.uuid);
    top->chosen.twin = 0; /* a process may have two connections */
    for (long i = 0; i < to; i++)
        top->chosen.twin += is_chosen(top, &top->now.clients[top->lines[i].index]);
}

#define STEPS 8

const char *top_graph_line(const double *values, size_t columns, char *buffer, size_t size)
{
    static const char *const blocks[STEPS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[STEPS] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    const char *const *marks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? blocks : plain;
    size_t at = 0;

    for (size_t i = 0; i < columns; i++) {
        const double value = values[i] > 1 ? 1 : values[i];
        const char *mark = value < 0 ? " " : marks[(int)(value * (STEPS - 1) + 0.5)];

        if (at + strlen(mark) + 1 > size)
            break;
        at += (size_t)snprintf(buffer + at, size - at, "%s", mark);
    }
    buffer[at] = '\0';
    return buffer;
}

const char *top_graph_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
                          int width, char *buffer)
{
    const struct {
        uint64_t bytes;
        char mark;
    } parts[] = {{resident, '#'}, {pinned, '+'}, {host, '-'}};
    uint64_t sum = 0;
    int at = 0;

    buffer[0] = '[';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int end;

        sum += parts[i].bytes;
        end = total == 0 ? 0 : (int)((double)sum * width / (double)total + 0.5);
        if (parts[i].bytes != 0 && end == at)
            end = at + 1; /* a small value is visible */
        for (; at < end && at < width; at++)
            buffer[1 + at] = parts[i].mark;
    }
    for (; at < width; at++)
        buffer[1 + at] = '.';
    buffer[1 + width] = ']';
    buffer[2 + width] = '\0';
    return buffer;
}

#define BAR_WIDTH   10
#define STATE_LEAST 8 /* "stopping": the columns behind it do not jump */
#define BYTES_LEAST 9
#define RATE_LEAST  11
#define RATE_UNIT   5 /* "MiB/s" */

/* The columns from left to right. */
enum cell {
    PID,
    USER,
    NAME,
    STATE,
    BAR,
    CARD,
    HOST,
    PINNED,
    EXTERNAL,
    OUT,
    IN,
    ALLOWED,
    BUSY,
    TURNS,
    LONGEST
};

/* Ranks: the place of the memory comes first, then what the program does. */
static const struct ctl_column columns[] = {
    [PID] = {"PID", .least = 7},
    [USER] = {"USER", .left = true},
    [NAME] = {"NAME", .left = true},
    [STATE] = {"STATE", .left = true, .least = STATE_LEAST},
    [BAR] = {"MEMORY", .rank = 7, .left = true},
    [CARD] = {"CARD", .rank = 1, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH},
    [HOST] = {"HOST", .rank = 3, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH},
    [PINNED] = {"PINNED", .rank = 6, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH,
                .if_any = true},
    [EXTERNAL] = {"EXTERNAL", .rank = 2, .least = BYTES_LEAST, .unit = CTL_UNIT_WIDTH,
                  .if_any = true},
    [OUT] = {"OUT", .rank = 8, .least = RATE_LEAST, .unit = RATE_UNIT},
    [IN] = {"IN", .rank = 8, .least = RATE_LEAST, .unit = RATE_UNIT},
    [ALLOWED] = {"ALLOWED", .rank = 5, .unit = 1},
    [BUSY] = {"BUSY", .rank = 4, .least = 5, .unit = 1},
    [TURNS] = {"TURNS", .rank = 10},
    [LONGEST] = {"LONGEST", .rank = 9, .least = 8, .unit = CTL_UNIT_WIDTH},
};

const char *top_table_rate(double bytes, char *buffer, size_t size)
{
    char text[24];

    snprintf(buffer, size, "%s/s", gs_size_format((uint64_t)bytes, text, sizeof text));
    return buffer;
}

static void fill_line(const struct top *top, const struct top_line *line, struct ctl_row *row)
{
    const struct gs_wire_client *client = &top->now.clients[line->index];
    uint64_t total = 0;

    for (size_t i = 0; i < top->now.device_count; i++) {
        if (memcmp(top->now.devices[i].uuid, client->uuid, sizeof client->uuid) == 0)
            total = top->now.devices[i].total;
    }
    snprintf(row->cell[PID], CTL_TABLE_CELL, "%d", client->pid);
    ctl_user_name(client->uid, row->cell[USER], CTL_TABLE_CELL);
    snprintf(row->cell[NAME], CTL_TABLE_CELL, "%s", client->name);
    snprintf(row->cell[STATE], CTL_TABLE_CELL, "%s", ctl_condition_name(client->condition));
    top_graph_bar(client->resident, client->pinned, client->on_host, total, BAR_WIDTH,
                  row->cell[BAR]);
    ctl_put_bytes(client->resident, row->cell[CARD]);
    ctl_put_bytes(client->on_host, row->cell[HOST]);
    if (client->pinned != 0)
        ctl_put_bytes(client->pinned, row->cell[PINNED]);
    ctl_put_bytes(ctl_client_external(&top->now, line->index), row->cell[EXTERNAL]);
    top_table_rate(line->rate.out, row->cell[OUT], CTL_TABLE_CELL);
    top_table_rate(line->rate.in, row->cell[IN], CTL_TABLE_CELL);
    ctl_percent((int)(line->rate.gpu * 100 + 0.5), row->cell[ALLOWED], CTL_TABLE_CELL);
    ctl_percent(ctl_client_busy(&top->now, line->index), row->cell[BUSY], CTL_TABLE_CELL);
    snprintf(row->cell[TURNS], CTL_TABLE_CELL, "%llu", (unsigned long long)client->turns);
    ctl_duration(client->wait_longest_ns, row->cell[LONGEST], CTL_TABLE_CELL);
}

bool top_table_fill(struct top *top, int width)
{
    ctl_table_clear(&top->table);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        ctl_table_column(&top->table, columns[i]);
    for (size_t i = 0; i < top->line_count + top->now.outsider_count; i++) {
        struct ctl_row *row = ctl_table_row(&top->table);

        if (row == NULL)
            return false;
        if (i < top->line_count)
            fill_line(top, &top->lines[i], row);
        else
            ctl_outsider_fill(&top->now.outsiders[i - top->line_count], row, EXTERNAL, BUSY);
    }
    ctl_table_fit(&top->table, width, NAME);
    return true;
}
