/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h: a table whose columns fit the terminal: each column is as wide as what it holds, columns
 * with a rank are left out where there is no room, and only then are names cut, with a mark.
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stddef.h>

/* The colours of a program's conditions; the numbers are those of ncurses' colour pairs in
 * top. */
enum ctl_colour {
    CTL_PLAIN = 0,
    CTL_RUNS,
    CTL_WAITS,
    CTL_MOVES,
    CTL_TROUBLE,
    CTL_HEAD,
    CTL_GREY, /* what is not under control */
};

enum ctl_colour ctl_condition_colour(uint32_t condition);

/* The columns of the terminal at standard output; 0: it is no terminal, so lines may have any
 * length. */
int ctl_terminal_columns(void);
/* Whether colours are wanted: a terminal, which is not dumb, and no NO_COLOR in the
 * environment. */
bool ctl_terminal_colour(void);
/* The same, for a terminal that is known to be a terminal. */
bool ctl_colour_wanted(void);
/* A grey that is read on black (4.6 : 1) and on white (4.5 : 1); of 256 colours. */
#define CTL_GREY_NUMBER 243
/* The escape sequence that begins that colour; "" for CTL_PLAIN. */
const char *ctl_colour_start(enum ctl_colour colour);
#define CTL_COLOUR_END "\x1b[0m"

#define CTL_UNIT_WIDTH 3 /* of "GiB" and "min" */

#define CTL_TABLE_COLUMNS 24
#define CTL_TABLE_CELL    96
#define CTL_TABLE_HEADING ((size_t)-1) /* as a row */

struct ctl_column {
    const char *heading;
    int rank;    /* 0: is always shown; else the lower, the sooner it gets room */
    int least;   /* columns of the terminal, also if what it holds is shorter */
    int unit;    /* of a figure: columns of its longest unit; 0: it has none */
    bool left;   /* a text, which begins at the left end; figures end at the right end */
    bool if_any; /* is left out where no row has anything in it */
};

struct ctl_row {
    char cell[CTL_TABLE_COLUMNS][CTL_TABLE_CELL]; /* "": does not apply */
};

struct ctl_table {
    struct ctl_column columns[CTL_TABLE_COLUMNS];
    size_t column_count;
    struct ctl_row *rows;
    size_t row_count, room;
    int width[CTL_TABLE_COLUMNS]; /* 0: not shown */
};

/* Adds a column. Its number. */
size_t ctl_table_column(struct ctl_table *table, struct ctl_column column);
/* Adds a row without contents; valid until the next is added. NULL: no memory. */
struct ctl_row *ctl_table_row(struct ctl_table *table);
/* Removes all rows and columns. */
void ctl_table_clear(struct ctl_table *table);

/* Chooses the columns that fit; 0: lines may have any length. The name, which is the column
 * with that number, is cut last, to no less than eight columns. Returns the width of the
 * lines. */
int ctl_table_fit(struct ctl_table *table, int columns, size_t name);

/* Writes a line, or the headings. before, behind: bytes put around the cell of `coloured`,
 * which take no columns. Returns buffer. */
const char *ctl_table_line(const struct ctl_table *table, size_t row, size_t coloured,
                           const char *before, const char *behind, char *buffer, size_t size);
