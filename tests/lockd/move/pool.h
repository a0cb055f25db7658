/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h: a model of cards and of programs that take turns on them, for tests of balance.c.
 * Turns are of one second and cost nothing; what a program does is given or drawn at random.
 */
#pragma once

#include "lockd/move/balance.h"

#include <stdbool.h>
#include <stdint.h>

#define POOL_CARDS    8
#define POOL_PROGRAMS 24
#define POOL_MS       1000000ull
#define POOL_SECOND   1000000000ull
#define POOL_GB       1000000000ull
#define POOL_STEP     (50 * POOL_MS)

struct pool_program {
    struct balance_program *balance; /* NULL: it does not exist */
    uint32_t card;
    bool moves;          /* is on no card */
    uint64_t arrives_at; /* ... until then */
    uint32_t goes_to;
    bool fixed; /* it cannot be moved */
    uint32_t class;
    uint64_t memory;
    uint64_t work, rest; /* lengths of its phases, ns; rest 0: it always works */
    bool works;
    uint64_t phase_left;
    uint64_t run_ns, wait_ns, waits_since, longest_wait;
    uint32_t attempts, moved;
    uint64_t last_attempt;
};

struct pool {
    struct balance balance;
    struct pool_program programs[POOL_PROGRAMS];
    uint32_t cards;
    uint32_t holder[POOL_CARDS];
    uint64_t turn_ends[POOL_CARDS];
    uint64_t now, random;
    bool open;                   /* all run at the same time */
    uint64_t overhead;           /* of a move */
    enum lockd_move_end outcome; /* of all moves */
    uint32_t failing_ppm;        /* of moves, instead: at random */
    uint64_t hidden;             /* cards that newcomers do not see, one bit each */
    uint32_t attempts, moved, hidden_said;
    uint64_t last_move;
};

void pool_init(struct pool *pool, uint32_t cards, uint64_t seed);
void pool_deinit(struct pool *pool);
/* One that always works if rest is 0. Returns its number. */
uint32_t pool_add(struct pool *pool, uint32_t card, uint64_t memory, uint64_t work,
                  uint64_t rest);
void pool_remove(struct pool *pool, uint32_t number);
void pool_run(struct pool *pool, uint64_t ns);
uint64_t pool_random(struct pool *pool, uint64_t below);
uint32_t pool_count(const struct pool *pool, uint32_t card);
