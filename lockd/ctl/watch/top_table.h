/* SPDX-License-Identifier: Apache-2.0
 *
 * top_table.h: the state of `gpusharectl top`: the last two answers of the daemon, the user's choices,
 * and the drawn lines; the programs as a table, and the keys that act on them.
 */
#pragma once

#include "lockd/ctl/gpus.h"
#include "lockd/ctl/program.h"
#include "lockd/ctl/table.h"

#define TOP_DEVICES 32  /* devices with a history */
#define TOP_SAMPLES 256 /* of each device: the most columns that a graph may have */

enum top_order {
    TOP_BY_PROCESS,
    TOP_BY_USER,
    TOP_BY_MEMORY,
    TOP_BY_MOVED,
    TOP_BY_ALLOWED,
    TOP_BY_BUSY,
    TOP_BY_WAIT,
    TOP_ORDERS,
};

enum top_mode {
    TOP_NORMAL,
    TOP_HELP,
    TOP_CONFIRM, /* a question in the last line waits for y */
    TOP_INPUT,   /* the name of a user is being typed there */
};

/* The state of a device in one answer. */
struct top_sample {
    int busy;     /* per cent, by NVML; CTL_BUSY_UNKNOWN */
    int allowed;  /* per cent of the time in which some program was allowed to run */
    double moved; /* bytes a second, out and in */
};

struct top_history {
    uint8_t uuid[16];
    struct top_sample samples[TOP_SAMPLES]; /* a ring */
    unsigned count;                         /* ever taken */
};

/* A program on a device, as a line. */
struct top_line {
    size_t index; /* in top->now.clients */
    struct ctl_rate rate;
};

/* The action that waits for the user's confirmation. */
struct top_pending {
    struct ctl_act act; /* op 0: a signal */
    int signal, pidfd;  /* -1: none is open */
    char question[160];
};

/* Which lines are shown, and how (top_table.c). */
struct top_view {
    enum top_order order;
    bool reverse, filtered, without_graph;
    uint32_t uid; /* the user whose programs are shown, if filtered */
};

/* The line that keys act on (top_table.c). */
struct top_chosen {
    int32_t pid; /* 0: the first line */
    uint8_t uuid[16];
    unsigned twin; /* of several lines with that process and device: the number from 0 */
};

struct top {
    struct ctl *ctl;
    struct nvml *nvml; /* NULL: there is none */
    struct ctl_answer now, before;
    uint64_t at, elapsed;
    struct top_history history[TOP_DEVICES];
    size_t history_count;

    struct top_view view;

    enum top_mode mode;
    struct top_pending pending;
    char input[33];

    struct top_line *lines; /* in the order in which they were drawn */
    size_t line_count;
    struct ctl_table table; /* their rows, then those of the outsiders (top_table.c) */
    struct top_chosen chosen;
    int row, chosen_row,
        skip; /* the line being written; the chosen one; lines above the screen */
    int help; /* the first line of the help that is on the screen */
    bool colour;
    bool lost; /* the last look failed; the message has the reason */
    char message[160];
};

/* The name of an order, for the footer. */
const char *top_lines_order(enum top_order order);
/* Makes the lines of all programs that are shown, device by device. False: no memory. */
bool top_lines_fill(struct top *top);
/* The line that keys act on: the program that was chosen, else the first; NULL: there is
 * none. */
const struct top_line *top_lines_chosen(const struct top *top);

/* Draws values from 0 to 1, one column each; below 0: unknown, a blank. Uses block elements if
 * the locale is UTF-8, else ASCII. size: of buffer, at least 3 bytes a column and 1. Returns
 * buffer. */
const char *top_graph_line(const double *values, size_t columns, char *buffer, size_t size);

/* "[######+++---.....]": of `total`: on the card, pinned there, on the host (what does not fit
 * into the bar is cut). buffer: width + 3 bytes. */
const char *top_graph_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
                          int width, char *buffer);

/* Fills top->table: a row for each of top->lines, then one for each outsider; for so many
 * columns of the terminal. False: no memory. */
bool top_table_fill(struct top *top, int columns);
/* "1.5 GiB/s" */
const char *top_table_rate(double bytes, char *buffer, size_t size);

/* Opens a descriptor of a program's process, to be closed by the caller. -errno: the
 * process has ended, cannot be seen from here, or another process has its number. */
int top_process_open(const struct gs_wire_client *client, struct gs_err *err);
/* Sends the signal. 0 or -errno. */
int top_process_signal(int pidfd, int number, struct gs_err *err);
/* A line of the help, in `buffer` or elsewhere; NULL: there are no more. */
const char *top_keys_help(size_t line, char *buffer, size_t size);
/* The key at that place of the footer, as "p pause"; NULL: there are no more. */
const char *top_keys_footer(size_t place);
/* Handles a key as getch() returns it; ERR: none came in time. False: the user wants to
 * quit. */
bool top_keys_take(struct top *top, int key);
