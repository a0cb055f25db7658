/* SPDX-License-Identifier: Apache-2.0
 *
 * top_draw.c: draws the screen: for each device its holder and the waiting programs, for each
 * program the place of its memory and the bytes that move. The last line shows the keys, or a
 * question.
 */
#include "common/size.h"
#include "lockd/base/text.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/terminal.h"
#include "lockd/ctl/top/top_draw.h"
#include "lockd/ctl/top/top_graph.h"
#include "lockd/ctl/top/top_keys.h"
#include "lockd/ctl/top/top_lines.h"
#include "lockd/ctl/top/top_look.h"
#include "lockd/ctl/who.h"
#include "lockd/ctl/words.h"

#include <ncurses.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BAR_WIDTH   20
#define BAR_SMALL   8
#define WIDE        155 /* columns that all figures take; the subset for 80 columns is below */
#define GRAPH_LABEL 10
#define GRAPH_VALUE 14

void top_draw_colours(struct top *top)
{
    top->colour = ctl_colour_wanted() && has_colors();
    if (!top->colour)
        return;
    start_color();
    use_default_colors();
    init_pair(CTL_RUNS, COLOR_GREEN, -1);
    init_pair(CTL_WAITS, COLOR_YELLOW, -1);
    init_pair(CTL_MOVES, COLOR_CYAN, -1);
    init_pair(CTL_TROUBLE, COLOR_RED, -1);
    init_pair(CTL_HEAD, -1, -1); /* bold text is read on any background; dark blue is not */
}

/* attributes: of ncurses, in addition to the colour. */
static void put_text(struct top *top, enum ctl_colour colour, attr_t attributes,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

static void put_text(struct top *top, enum ctl_colour colour, attr_t attributes,
                     const char *format, ...)
{
    const int y = top->row++ - top->skip;
    char text[1024], line[2048];
    va_list ap;

    if (y < 0 || y >= LINES - 1)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (colour != CTL_PLAIN && top->colour)
        attributes |= (attr_t)COLOR_PAIR(colour);
    attron(attributes);
    mvaddstr(y, 0, lockd_text_fit(text, (size_t)COLS, line, sizeof line));
    attroff(attributes);
}

static void put_heading(struct top *top)
{
    if (COLS >= WIDE)
        put_text(top, CTL_HEAD, A_BOLD,
                 " %7s %-10s %-15s %-12s %-*s %9s %9s %9s %11s %11s %7s %5s %6s %8s", "PID",
                 "USER", "NAME", "STATE", BAR_WIDTH + 2, "[#card +pinned -host]", "CARD",
                 "HOST", "PINNED", "OUT", "IN", "ALLOWED", "BUSY", "TURNS", "LONGEST");
    else
        put_text(top, CTL_HEAD, A_BOLD, " %7s %-8s %-8s %-8s %-*s %9s %9s %7s %5s", "PID",
                 "USER", "NAME", "STATE", BAR_SMALL + 2, "[#card -ho", "OUT/s", "IN/s",
                 "ALLOWED", "BUSY");
}

/* Aligns the text by its unit; a rate is followed by /s. */
static const char *put_aligned(uint64_t bytes, int width, const char *behind, char *buffer,
                               size_t size)
{
    char text[24], whole[32];

    snprintf(whole, sizeof whole, "%s%s", gs_size_format(bytes, text, sizeof text), behind);
    return ctl_align(whole, width + (int)strlen(behind), CTL_UNIT_WIDTH + (int)strlen(behind),
                     buffer, size);
}

struct shown { /* the texts of a line */
    char user[64], name[80], state[32], memory[BAR_WIDTH + 3];
    char out[40], in[40], allowed[16], busy[16];
};

static void put_wide(struct top *top, const struct gs_wire_client *client,
                     const struct shown *shown, attr_t attributes)
{
    char card[32], host[32], pinned[32], wait[24], aligned[32];

    put_text(top, ctl_condition_colour(client->condition), attributes,
             " %7d %s %s %s %s %s %s %s %s %s %7s %5s %6llu %s", client->pid, shown->user,
             shown->name, shown->state, shown->memory,
             put_aligned(client->resident, 9, "", card, sizeof card),
             put_aligned(client->on_host, 9, "", host, sizeof host),
             put_aligned(client->pinned, 9, "", pinned, sizeof pinned), shown->out, shown->in,
             shown->allowed, shown->busy, (unsigned long long)client->turns,
             ctl_align(ctl_duration(client->wait_longest_ns, wait, sizeof wait), 8,
                       CTL_UNIT_WIDTH, aligned, sizeof aligned));
}

static void put_line(struct top *top, const struct top_line *line,
                     const struct gs_wire_device *device)
{
    const struct gs_wire_client *client = &top->now.clients[line->index];
    const bool wide = COLS >= WIDE;
    const bool chosen = line == top_lines_chosen(top);
    const attr_t attributes = chosen ? A_REVERSE : A_NORMAL;
    const char *behind = wide ? "/s" : "";
    struct shown shown;
    char user[64];

    if (chosen)
        top->chosen_row = top->row;
    top_graph_bar(client->resident, client->pinned, client->on_host, device->total,
                  wide ? BAR_WIDTH : BAR_SMALL, shown.memory);
    lockd_text_fit(ctl_user_name(client->uid, user, sizeof user), wide ? 10 : 8, shown.user,
                   sizeof shown.user);
    lockd_text_fit(client->name, wide ? 15 : 8, shown.name, sizeof shown.name);
    lockd_text_fit(ctl_condition_name(client->condition), wide ? 12 : 8, shown.state,
                   sizeof shown.state);
    put_aligned((uint64_t)line->rate.out, 9, behind, shown.out, sizeof shown.out);
    put_aligned((uint64_t)line->rate.in, 9, behind, shown.in, sizeof shown.in);
    ctl_percent((int)(line->rate.gpu * 100 + 0.5), shown.allowed, sizeof shown.allowed);
    ctl_percent(ctl_client_busy(&top->now, line->index), shown.busy, sizeof shown.busy);
    if (wide)
        put_wide(top, client, &shown, attributes);
    else
        put_text(top, ctl_condition_colour(client->condition), attributes,
                 " %7d %s %s %s %s %s %s %7s %5s", client->pid, shown.user, shown.name,
                 shown.state, shown.memory, shown.out, shown.in, shown.allowed, shown.busy);
}

enum graph { GRAPH_BUSY, GRAPH_ALLOWED, GRAPH_MOVED };

static double value_of(const struct top_sample *sample, enum graph which)
{
    return which == GRAPH_MOVED     ? sample->moved
           : which == GRAPH_ALLOWED ? sample->allowed
                                    : sample->busy;
}

/* The newest sample at the right end. full: what the highest mark means. */
static void put_graph(struct top *top, const struct top_history *history, enum graph which,
                      const char *label)
{
    const int room = COLS - GRAPH_LABEL - GRAPH_VALUE;
    const unsigned columns = room < 1 ? 0 : room < TOP_SAMPLES ? (unsigned)room : TOP_SAMPLES;
    const struct top_sample *last = &history->samples[(history->count - 1) % TOP_SAMPLES];
    double values[TOP_SAMPLES], full = which == GRAPH_MOVED ? 0 : 100;
    char line[3 * TOP_SAMPLES + 1], value[40];

    for (unsigned i = 0; i < columns; i++) {
        const unsigned back = columns - i; /* 1: the newest */

        values[i] =
            back > history->count
                ? -1
                : value_of(&history->samples[(history->count - back) % TOP_SAMPLES], which);
        if (which == GRAPH_MOVED && values[i] > full)
            full = values[i];
    }
    for (unsigned i = 0; i < columns; i++)
        values[i] = values[i] < 0 || full == 0 ? (values[i] < 0 ? -1 : 0) : values[i] / full;
    if (which == GRAPH_MOVED)
        put_aligned((uint64_t)last->moved, 10, "/s", value, sizeof value);
    else
        ctl_percent((int)value_of(last, which), value, sizeof value);
    put_text(top, CTL_PLAIN, A_NORMAL, "  %-*s%s %*s", GRAPH_LABEL - 2, label,
             top_graph_line(values, columns, line, sizeof line), GRAPH_VALUE - 1, value);
}

static void put_history(struct top *top, const struct gs_wire_device *device)
{
    const struct top_history *history = top_look_history(top, device->uuid);

    if (top->view.without_graph || history == NULL || history->count == 0)
        return;
    if (history->samples[(history->count - 1) % TOP_SAMPLES].busy != CTL_BUSY_UNKNOWN)
        put_graph(top, history, GRAPH_BUSY, "busy");
    put_graph(top, history, GRAPH_ALLOWED, "allowed");
    put_graph(top, history, GRAPH_MOVED, "moved");
}

static void put_device(struct top *top, const struct gs_wire_device *device)
{
    char uuid[LOCKD_UUID_SIZE], bytes[4][24], memory[BAR_WIDTH + 3], time[24];

    put_text(top, CTL_PLAIN, A_NORMAL, "%s", "");
    put_text(top, CTL_PLAIN, A_BOLD, "%s  %s", device->name,
             lockd_uuid_text(device->uuid, uuid));
    put_text(
        top, CTL_PLAIN, A_NORMAL, "  %s %s of %s on the card, %s wanted",
        top_graph_bar(device->resident, device->pinned, 0, device->total, BAR_WIDTH, memory),
        gs_size_format(device->resident, bytes[0], sizeof bytes[0]),
        gs_size_format(device->total, bytes[1], sizeof bytes[1]),
        gs_size_format(device->demand, bytes[2], sizeof bytes[2]));
    put_text(top, CTL_PLAIN, A_NORMAL,
             "  %s used by other programs; %s, quantum %s, %llu waiting, %llu switches",
             gs_size_format(device->external, bytes[3], sizeof bytes[3]),
             device->exclusive != 0 ? "exclusive"
             : device->leases != 0  ? "leases"
                                    : "open",
             ctl_duration(device->quantum_ns, time, sizeof time),
             (unsigned long long)device->waiting, (unsigned long long)device->switches);
    put_history(top, device);
    put_heading(top);
    for (size_t i = 0; i < top->line_count; i++) {
        if (memcmp(top->now.clients[top->lines[i].index].uuid, device->uuid,
                   sizeof device->uuid) == 0)
            put_line(top, &top->lines[i], device);
    }
}

static void put_all(struct top *top)
{
    size_t without = 0;
    char time[24], user[64];

    top->row = top->chosen_row = 0;
    put_text(top, CTL_PLAIN, A_NORMAL,
             "gpushare-lockd %s (process %d), up %s, %llu programs, policy %s",
             top->now.daemon.version, top->now.daemon.pid,
             ctl_duration(top->now.daemon.uptime_ns, time, sizeof time),
             (unsigned long long)top->now.daemon.programs,
             ctl_policy_name(top->now.daemon.policy));
    if (top->view.filtered)
        put_text(top, CTL_HEAD, A_NORMAL, "only programs of %s (u: another user, or all)",
                 ctl_user_name(top->view.uid, user, sizeof user));
    for (size_t i = 0; i < top->now.device_count; i++)
        put_device(top, &top->now.devices[i]);
    for (size_t i = 0; i < top->now.client_count; i++)
        without += top->now.clients[i].condition == GS_CONDITION_NO_DEVICE;
    if (without != 0)
        put_text(top, CTL_PLAIN, A_NORMAL, "%zu programs have not used a device", without);
}

static void put_footer(const struct top *top)
{
    char text[512], line[1024];

    switch (top->mode) {
    case TOP_CONFIRM:
        snprintf(text, sizeof text, " %s (y: yes, other keys: no)", top->pending.question);
        break;
    case TOP_INPUT:
        snprintf(text, sizeof text, " user, by name or number (none: all): %s_", top->input);
        break;
    case TOP_HELP:
        snprintf(text, sizeof text, " any key: back");
        break;
    default:
        if (top->message[0] != '\0') /* the question needs the line */
            snprintf(text, sizeof text, " ? help  %.150s", top->message);
        else
            snprintf(text, sizeof text, " q quit  ? help  o order (%s%s)",
                     top_lines_order(top->view.order), top->view.reverse ? ", reversed" : "");
    }
    attron(A_REVERSE);
    mvaddstr(LINES - 1, 0, lockd_text_fit(text, (size_t)COLS, line, sizeof line));
    attroff(A_REVERSE);
}

/* Scrolls so that the chosen line is visible. False: it already was. */
static bool follow_chosen(struct top *top)
{
    const int before = top->skip, last = LINES - 2;

    if (top->chosen_row <= last) /* on the first screen, which shows the totals too */
        top->skip = 0;
    else if (top->chosen_row - top->skip > last)
        top->skip = top->chosen_row - last;
    else if (top->chosen_row < top->skip)
        top->skip = top->chosen_row;
    return top->skip != before;
}

static void put_help(void)
{
    const char *text;

    for (int i = 0; i < LINES - 1 && (text = top_keys_help((size_t)i)) != NULL; i++)
        mvaddnstr(i, 0, text, COLS);
}

void top_draw(struct top *top)
{
    erase();
    if (top->mode == TOP_HELP) {
        put_help();
    } else if (top_lines_fill(top)) {
        put_all(top);
        if (follow_chosen(top)) {
            erase();
            put_all(top);
        }
    }
    put_footer(top);
    refresh();
}
