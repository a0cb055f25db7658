/* SPDX-License-Identifier: Apache-2.0
 *
 * status_table.c: the rows of `gpusharectl status`: one row for each program on a device. A terminal
 * too narrow for all columns shows the most important columns, and the notes in lines of their own.
 */
#include "common/size.h"
#include "lockd/base/text.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/status_table.h"
#include "lockd/ctl/terminal.h"
#include "lockd/ctl/who.h"
#include "lockd/ctl/why.h"
#include "lockd/ctl/words.h"
#include "lockd/protocol/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WIDE          144        /* width of the whole table, without notes */
#define INDENT        10         /* indentation of notes below their program */
#define YIELDED_LEAST 100000000u /* ns */
#define USER_WIDTH    10
#define STATE_WIDTH   12
#define BYTES_WIDTH   10
#define COUNT_WIDTH   6
#define SHARE_WIDTH   7

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

/* The notes of a program: its unusual properties and remarks, in a few words. */
static void remarks_of(const struct ctl_answer *answer, size_t index, bool wide, char *buffer,
                       size_t size)
{
    const struct gs_wire_client *client = &answer->clients[index];
    const struct ctl_pod *pod = ctl_client_pod(answer, index);
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
    if (!wide &&
        client->yielded_ns >= YIELDED_LEAST) /* in a column, where there is room for it */
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

struct ctl_layout ctl_layout_find(void)
{
    const int columns = ctl_terminal_columns();

    return (struct ctl_layout){.columns = columns,
                               .wide = columns == 0 || columns >= WIDE,
                               .colour = ctl_terminal_colour()};
}

static int column_width(const struct ctl_layout *layout, const struct lockd_figure *figure)
{
    return figure->unit == LOCKD_FIGURE_COUNT ? COUNT_WIDTH
           : layout->wide                     ? BYTES_WIDTH
                                              : BYTES_WIDTH - 1;
}

/* The figures with a heading: a narrow table shows only the place of the memory. */
static bool is_shown(const struct ctl_layout *layout, const struct lockd_figure *figure)
{
    return figure->heading[0] != '\0' &&
           (layout->wide || figure->offset == offsetof(struct gs_wire_client, resident) ||
            figure->offset == offsetof(struct gs_wire_client, on_host));
}

static int name_width(const struct ctl_layout *layout)
{
    return layout->wide ? 20 : 12;
}

static const char *start_colour(const struct ctl_layout *layout, enum ctl_colour which)
{
    return layout->colour ? ctl_colour_start(which) : "";
}

static const char *colour_end(const struct ctl_layout *layout)
{
    return layout->colour ? CTL_COLOUR_END : "";
}

void ctl_table_heading(const struct ctl_layout *layout)
{
    printf("%s %7s %-*s %-*s %-*s", start_colour(layout, CTL_HEAD), "PID", USER_WIDTH, "USER",
           name_width(layout), "NAME", STATE_WIDTH, "STATE");
    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (is_shown(layout, at))
            printf(" %*s", column_width(layout, at), at->heading);
    }
    printf(" %*s %*s%s%s\n", SHARE_WIDTH, "ALLOWED", SHARE_WIDTH - 1, "BUSY",
           layout->wide ? "  NOTES" : "", colour_end(layout));
}

static void print_figures(const struct ctl_layout *layout, const struct gs_wire_client *client)
{
    char text[24], aligned[32];

    for (const struct lockd_figure *at = lockd_program_figures; at->help != NULL; at++) {
        if (!is_shown(layout, at))
            continue;
        ctl_figure_text(at, lockd_figure_value(at, client), text, sizeof text);
        printf(" %s", ctl_align(text, column_width(layout, at), CTL_UNIT_WIDTH, aligned,
                                sizeof aligned));
    }
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

/* Prints the notes in lines of their own, broken between two notes. */
static void print_notes(const struct ctl_layout *layout, const char *notes)
{
    const int columns = layout->columns > 2 * INDENT ? layout->columns : 2 * INDENT;

    while (*notes != '\0') {
        const size_t length = measure_line(notes, (size_t)(columns - INDENT));

        printf("%*s%.*s\n", INDENT, "", (int)length, notes);
        notes += length;
        notes += strspn(notes, " ");
    }
}

void ctl_table_row(const struct ctl_layout *layout, const struct ctl_answer *answer,
                   size_t index)
{
    const struct gs_wire_client *client = &answer->clients[index];
    const size_t columns = (size_t)name_width(layout);
    char remarks[1024], name[128], user[64], fitted[64], allowed[24], busy[24];

    remarks_of(answer, index, layout->wide, remarks, sizeof remarks);
    ctl_user_name(client->uid, user, sizeof user);
    printf(" %7d %s %s %s%-*s%s", client->pid,
           lockd_text_fit(user, USER_WIDTH, fitted, sizeof fitted),
           lockd_text_fit(client->name, columns, name, sizeof name),
           start_colour(layout, ctl_condition_colour(client->condition)), STATE_WIDTH,
           ctl_condition_name(client->condition), colour_end(layout));
    print_figures(layout, client);
    printf(" %*s %*s", SHARE_WIDTH,
           ctl_percent(ctl_allowed_percent(client), allowed, sizeof allowed), SHARE_WIDTH - 1,
           ctl_percent(ctl_client_busy(answer, index), busy, sizeof busy));
    if (layout->wide && remarks[0] != '\0')
        printf("  %s", remarks);
    putchar('\n');
    if (!layout->wide)
        print_notes(layout, remarks);
}
