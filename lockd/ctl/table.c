/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c: tables whose columns fit the terminal. No state of its own.
 */
#include "lockd/ctl/table.h"
#include "lockd/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_MAX  1000
#define USUAL_COLUMN 80

enum ctl_colour ctl_condition_colour(uint32_t condition)
{
    switch (condition) {
    case GS_CONDITION_RUNS:
        return CTL_RUNS;
    case GS_CONDITION_WAITS:
        return CTL_WAITS;
    case GS_CONDITION_MOVING:
    case GS_CONDITION_STOPPING:
        return CTL_MOVES;
    case GS_CONDITION_STUCK:
    case GS_CONDITION_DOES_NOT_FIT:
    case GS_CONDITION_STOPPED:
    case GS_CONDITION_TRACED:
    case GS_CONDITION_FROZEN:
        return CTL_TROUBLE;
    default:
        return CTL_PLAIN;
    }
}

int ctl_terminal_columns(void)
{
    const char *text = getenv("COLUMNS");
    const long wanted = text != NULL ? strtol(text, NULL, 10) : 0;
    struct winsize size = {0};

    if (wanted > 0 && wanted <= COLUMNS_MAX)
        return (int)wanted;
    if (isatty(STDOUT_FILENO) == 0)
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return USUAL_COLUMN;
}

bool ctl_colour_wanted(void)
{
    const char *without = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return (without == NULL || *without == '\0') && terminal != NULL && *terminal != '\0' &&
           strcmp(terminal, "dumb") != 0;
}

bool ctl_terminal_colour(void)
{
    return isatty(STDOUT_FILENO) != 0 && ctl_colour_wanted();
}

const char *ctl_colour_start(enum ctl_colour colour)
{
    const char *terminal = getenv("TERM");

    if (colour == CTL_GREY)
        return terminal != NULL && strstr(terminal, "256") != NULL ? "\x1b[38;5;243m"
                                                                   : "\x1b[2m";
    static const char *const starts[] = {
        [CTL_PLAIN] = "",         [CTL_RUNS] = "\x1b[32m",    [CTL_WAITS] = "\x1b[33m",
        [CTL_MOVES] = "\x1b[36m", [CTL_TROUBLE] = "\x1b[31m", [CTL_HEAD] = "\x1b[1m",
    };

    return starts[colour];
}

/* Writes a figure such as "7.0 GiB" or "1.5 s" at the right end of `width` columns, so that
 * numbers end and units begin in the same column. unit_width: of the longest unit. */
static void align_figure(const char *text, int width, int unit_width, char *buffer, size_t size)
{
    const char *unit = strchr(text, ' ');
    const int number = unit != NULL ? (int)(unit - text) : (int)strlen(text);
    const int room = width - unit_width - 1;

    if (unit == NULL || number > room)
        snprintf(buffer, size, "%*s", width, text);
    else
        snprintf(buffer, size, "%*.*s %-*s", room, number, text, unit_width, unit + 1);
}

#define NAME_LEAST 8
#define ROWS_AT    32 /* rows for which room is made at a time */

size_t ctl_table_column(struct ctl_table *table, struct ctl_column column)
{
    if (table->column_count == CTL_TABLE_COLUMNS)
        return CTL_TABLE_COLUMNS - 1;
    table->columns[table->column_count] = column;
    return table->column_count++;
}

struct ctl_row *ctl_table_row(struct ctl_table *table)
{
    struct ctl_row *row;

    if (table->row_count == table->room) {
        row = realloc(table->rows, (table->room + ROWS_AT) * sizeof *row);
        if (row == NULL)
            return NULL;
        table->rows = row;
        table->room += ROWS_AT;
    }
    row = &table->rows[table->row_count++];
    memset(row, 0, sizeof *row);
    return row;
}

void ctl_table_clear(struct ctl_table *table)
{
    free(table->rows);
    *table = (struct ctl_table){0};
}

/* The width that holds all of the column; 0: it is to be left out. */
static int measure_column(const struct ctl_table *table, size_t index)
{
    const struct ctl_column *column = &table->columns[index];
    int width = (int)lockd_text_width(column->heading);
    bool any = false;

    width = width < column->least ? column->least : width;
    for (size_t i = 0; i < table->row_count; i++) {
        const char *text = table->rows[i].cell[index];
        const char *unit = column->unit != 0 ? strchr(text, ' ') : NULL;
        /* as if its unit was as long as the longest of the column */
        const int needs =
            unit == NULL ? (int)lockd_text_width(text) : (int)(unit - text) + 1 + column->unit;

        any |= text[0] != '\0';
        width = needs > width ? needs : width;
    }
    return column->if_any && !any ? 0 : width;
}

/* The column with the lowest rank above that; columns of the same rank from the left. -1:
 * none. */
static int next_rank(const struct ctl_table *table, int rank, int after)
{
    int found = -1;

    for (int i = 0; i < (int)table->column_count; i++) {
        const int own = table->columns[i].rank;

        if (own != 0 && (own > rank || (own == rank && i > after)) &&
            (found < 0 || own < table->columns[found].rank))
            found = i;
    }
    return found;
}

int ctl_table_fit(struct ctl_table *table, int columns, size_t name)
{
    int used = 0, rank = 0;

    for (size_t i = 0; i < table->column_count; i++) {
        table->width[i] = table->columns[i].rank == 0 ? measure_column(table, i) : 0;
        used += table->width[i] != 0 ? table->width[i] + 1 : 0;
    }
    columns = columns == 0 ? INT_MAX : columns;
    for (int i = next_rank(table, 0, -1); i >= 0; i = next_rank(table, rank, i)) {
        const int width = measure_column(table, (size_t)i);

        rank = table->columns[i].rank;
        if (width == 0 || used + width + 1 > columns)
            continue;
        table->width[i] = width;
        used += width + 1;
    }
    if (used > columns) {
        const int left = table->width[name] - (used - columns);
        const int width = left < NAME_LEAST ? NAME_LEAST : left;

        used -= table->width[name] - width;
        table->width[name] = width;
    }
    return used;
}

const char *ctl_table_line(const struct ctl_table *table, size_t row, size_t coloured,
                           const char *before, const char *behind, char *buffer, size_t size)
{
    size_t at = 0;

    buffer[0] = '\0';
    for (size_t i = 0; i < table->column_count; i++) {
        const struct ctl_column *column = &table->columns[i];
        const char *text =
            row == CTL_TABLE_HEADING ? column->heading : table->rows[row].cell[i];
        char cell[4 * CTL_TABLE_CELL];

        if (table->width[i] == 0)
            continue;
        if (column->left)
            lockd_text_cut(text, (size_t)table->width[i], cell, sizeof cell);
        else if (row == CTL_TABLE_HEADING || text[0] == '\0')
            snprintf(cell, sizeof cell, "%*s", table->width[i], text[0] != '\0' ? text : "-");
        else
            align_figure(text, table->width[i], column->unit, cell, sizeof cell);
        at += (size_t)snprintf(buffer + at, size - at, " %s%s%s", i == coloured ? before : "",
                               cell, i == coloured ? behind : "");
        if (at >= size)
            at = size - 1;
    }
    while (at > 0 && buffer[at - 1] == ' ')
        buffer[--at] = '\0';
    return buffer;
}
