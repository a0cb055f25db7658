/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff.h: what the files of handoff_bench share.
 *
 * The parent starts a daemon for each case, and itself again in other roles: "ceiling" measures
 * the bus without gpushare, "ballast" fills what the card has beyond the limit, "program" is
 * one of the two that share. They speak through one shared mapping.
 */
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/card.h"

#define BLOCK_BYTES  (2ull << 20)
#define MAX_GAPS     8192
#define GAP_NS       60000u /* between two completions: longer means that it was not its turn */
#define CHECK_STRIDE 16     /* every so many blocks are read back */
#define MAX_COPIES   256

struct gap { /* none of the program's work finished between these times (CLOCK_MONOTONIC, ns) */
    uint64_t from, to;
};

enum command {
    REST,     /* submit nothing */
    ALLOCATE, /* take board->bytes, and fill them */
    WORK,     /* small pieces of work one after the other; a new turn begins with writing */
    WRITE,    /* all of it */
    RELEASE,  /* free them */
    QUIT
};

/* one of the programs */
struct side {
    _Atomic(uint32_t) command; /* enum command; by the parent */
    _Atomic(uint32_t) order;   /* rises with each command */
    _Atomic(uint32_t) done;    /* the newest order that has been carried out, or begun (WORK) */
    _Atomic(uint64_t) turns;
    _Atomic(uint64_t) finished; /* ns: when that was */
    _Atomic(uint32_t) gap_count;
    _Atomic(uint32_t) wrong; /* blocks that did not hold what was written */
    struct gap gaps[MAX_GAPS];
};

struct board {
    uint64_t bytes;    /* of device memory in each program, a multiple of BLOCK_BYTES */
    uint64_t turn_gap; /* ns: a longer gap is another's turn */
    uint32_t
        dirty_of; /* in each turn every dirty_of-th block is written; 1: all of them, 0: none */
    bool equal;   /* both programs write the same bytes */
    bool own;     /* the memory is of cuMemCreate, in pieces */
    struct bus bus; /* by "ceiling" */
    /* with --repeat, plain copies timed by "ceiling": bytes each way, how many, the rest before each */
    uint64_t copy_bytes;
    unsigned copy_count, copy_rest_ms;
    double copies_s[MAX_COPIES];
    uint64_t free_bytes, total_bytes; /* of the card with one context, by "ceiling" */
    char card[64];
    int32_t driver;
    struct side side[2];
};

struct spec { /* one case */
    const char *name;
    double gib;        /* of device memory in each program */
    double share;      /* of the card (the limit) that each program has; 1: all must move */
    unsigned dirty_of; /* in a turn every so many blocks are written; 0: none */
    bool equal, own;   /* as on the board */
    unsigned turns, quantum_ms;
    bool repeat;           /* each hand-off has its own rate, and the worst counts */
    bool exclusive;        /* both fit, and take turns all the same: nothing moves */
    bool one_way;          /* each direction alone as well */
    const char *hand_over; /* the daemon's setting */
};

struct hand_off {
    uint64_t at; /* when the last work before it was done, ns */
    double seconds;
};

struct result {
    struct spec spec;
    double overflow;            /* bytes that each switch must move, each way */
    double median_s, slowest_s; /* of the hand-offs */
    double out_s, in_s;         /* one way, with one_way */
    double in_freed_s;          /* in, while the other's memory is being freed */
    double moved_out,
        found; /* bytes a turn; found: not copied, since the other program had them */
    unsigned switches, wrong;   /* hand-offs; blocks that were not what had been written */
    struct hand_off *hand_offs; /* in the order in which they were; until the end */
};

struct stage { /* the one object of the parent */
    struct board *board;
    char folder[PATH_MAX - 64]; /* of logs, and the daemon's socket */
    char self[PATH_MAX];        /* this executable */
    const char *lockd, *host;   /* path; its --host, or NULL */
    bool full;                  /* ballast */
    pid_t lockd_pid, ballast, program[2];
};
extern struct stage stage;

/* Ends the benchmark with a message; the parts' own are in the folder. */
_Noreturn void fail(const char *what);

/* handoff_parts.c: processes, what they are told, and what the daemon says. */
void measure_ceiling(uint64_t bytes);
void start_parts(const struct spec *spec, uint64_t usable);
void end_parts(void);
void remove_folder(void);
void order(unsigned number, enum command command);
void await_done(unsigned number);
uint64_t await_finished(unsigned number); /* ns: when the order was carried out */
void await_turns(uint64_t turns);
uint64_t turns_so_far(void);
double moved_out(void);        /* bytes, both programs */
double found_equal(void);      /* as well */
void suspend(unsigned number); /* returns when nothing of it is on the card */
void resume(unsigned number);

/* handoff_figures.c */
void judge(struct result *result);
void print(const struct result *result);
int write_json(const char *path, const struct result *results, unsigned count);

/* handoff_roles.c */
int role_ceiling(struct board *board, uint64_t bytes);
int role_ballast(const struct board *board, uint64_t leave);
int role_program(struct board *board, unsigned number);
