/* SPDX-License-Identifier: Apache-2.0
 *
 * top_lines.c: the programs as lines: filtered by user, sorted within their device; and the chosen
 * line. The chosen program stays the same when its line moves.
 */
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/watch/top_lines.h"
#include "lockd/ctl/words.h"

#include <stdlib.h>
#include <string.h>

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

/* The number of lines before that one of the chosen process, which may have two connections. */
static unsigned twin_of(const struct top *top, size_t index)
{
    unsigned twin = 0;

    for (size_t i = 0; i < index; i++)
        twin += is_chosen(top, &top->now.clients[top->lines[i].index]);
    return twin;
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
    top->chosen.twin = twin_of(top, (size_t)to);
}
