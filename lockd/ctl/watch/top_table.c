/* SPDX-License-Identifier: Apache-2.0
 *
 * top_table.c: makes the rows of the programs, and of the processes that are not programs. No
 * state.
 */
#include "lockd/ctl/watch/top_table.h"

#include "common/size.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/terminal.h"
#include "lockd/ctl/watch/top_graph.h"
#include "lockd/ctl/who.h"
#include "lockd/ctl/words.h"

#include <stdio.h>
#include <string.h>

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

static void put_bytes(uint64_t bytes, char *cell)
{
    if (bytes != NVML_BYTES_UNKNOWN)
        gs_size_format(bytes, cell, CTL_TABLE_CELL);
}

static uint64_t total_of(const struct top *top, const uint8_t *uuid)
{
    for (size_t i = 0; i < top->now.device_count; i++) {
        if (memcmp(top->now.devices[i].uuid, uuid, sizeof top->now.devices[i].uuid) == 0)
            return top->now.devices[i].total;
    }
    return 0;
}

static void fill_line(const struct top *top, const struct top_line *line, struct ctl_row *row)
{
    const struct gs_wire_client *client = &top->now.clients[line->index];

    snprintf(row->cell[PID], CTL_TABLE_CELL, "%d", client->pid);
    ctl_user_name(client->uid, row->cell[USER], CTL_TABLE_CELL);
    snprintf(row->cell[NAME], CTL_TABLE_CELL, "%s", client->name);
    snprintf(row->cell[STATE], CTL_TABLE_CELL, "%s", ctl_condition_name(client->condition));
    top_graph_bar(client->resident, client->pinned, client->on_host,
                  total_of(top, client->uuid), BAR_WIDTH, row->cell[BAR]);
    put_bytes(client->resident, row->cell[CARD]);
    put_bytes(client->on_host, row->cell[HOST]);
    if (client->pinned != 0)
        put_bytes(client->pinned, row->cell[PINNED]);
    put_bytes(ctl_client_external(&top->now, line->index), row->cell[EXTERNAL]);
    top_table_rate(line->rate.out, row->cell[OUT], CTL_TABLE_CELL);
    top_table_rate(line->rate.in, row->cell[IN], CTL_TABLE_CELL);
    ctl_percent((int)(line->rate.gpu * 100 + 0.5), row->cell[ALLOWED], CTL_TABLE_CELL);
    ctl_percent(ctl_client_busy(&top->now, line->index), row->cell[BUSY], CTL_TABLE_CELL);
    snprintf(row->cell[TURNS], CTL_TABLE_CELL, "%llu", (unsigned long long)client->turns);
    ctl_duration(client->wait_longest_ns, row->cell[LONGEST], CTL_TABLE_CELL);
}

static void fill_outsider(const struct ctl_outsider *outsider, struct ctl_row *row)
{
    snprintf(row->cell[PID], CTL_TABLE_CELL, "%d", outsider->pid);
    if (outsider->uid != CTL_NO_USER)
        ctl_user_name(outsider->uid, row->cell[USER], CTL_TABLE_CELL);
    snprintf(row->cell[NAME], CTL_TABLE_CELL, "%s", outsider->name);
    snprintf(row->cell[STATE], CTL_TABLE_CELL, "%s", ctl_why_name(outsider->why));
    put_bytes(outsider->memory, row->cell[EXTERNAL]);
    ctl_percent(outsider->busy, row->cell[BUSY], CTL_TABLE_CELL);
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
            fill_outsider(&top->now.outsiders[i - top->line_count], row);
    }
    ctl_table_fit(&top->table, width, NAME);
    return true;
}
