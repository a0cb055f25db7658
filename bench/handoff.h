/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff.h: what the roles of handoff_bench share.
 *
 * The parent starts a daemon of its own, and itself again in other roles: "ceiling" measures
 * the bus without gpushare, "ballast" fills what the card has beyond the limit, "program" is
 * one of the two that share. They speak through one shared mapping.
 */
#ifndef GS_BENCH_HANDOFF_H
#define GS_BENCH_HANDOFF_H

#include <stdatomic.h>
#include <stdint.h>

#include "bench/card.h"

#define BLOCK_BYTES  (2ull << 20)
#define MAX_GAPS     8192
#define GAP_NS       60000u /* between two completions: longer means that it was not its turn */
#define CHECK_STRIDE 16     /* every so many blocks are read back */

struct gap { /* none of the program's work finished between these times (CLOCK_MONOTONIC, ns) */
    uint64_t from, to;
};

enum command {
    REST,     /* submit nothing */
    ALLOCATE, /* take board->bytes, and fill them */
    WORK,     /* small pieces of work one after the other; a new turn begins with writing */
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
    uint32_t dirty_of; /* in each turn every dirty_of-th block is written; 1: all of them */
    struct bus bus;    /* by "ceiling" */
    uint64_t free_bytes, total_bytes; /* of the card with one context, by "ceiling" */
    char card[64];
    int32_t driver;
    struct side side[2];
};

int role_ceiling(struct board *board, uint64_t bytes);
int role_ballast(const struct board *board, uint64_t leave);
int role_program(struct board *board, unsigned number);

#endif
