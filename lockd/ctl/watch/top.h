/* SPDX-License-Identifier: Apache-2.0
 *
 * top.h: the state of `gpusharectl top`: the last two answers of the daemon, the user's choices,
 * and the drawn lines.
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
