/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h: what came of a simulation, in figures.
 */
#pragma once

#include "bench/sim/sim.h"

#include <stdio.h>

/* Everything counts from the end of the warm-up. A figure that does not apply is NAN. */
struct sim_totals {
    double seconds;      /* that passed */
    double throughput;   /* work done (solo time, GPU and CPU), over that time, for each card */
    double jain;         /* of GPU time per weight, over programs that were there all the time
                            and do not wait for requests */
    double weights;      /* the largest deviation of such a program's share from its weight's */
    double longest_wait; /* of such a program, over (N-1) (quantum + switch) */
    double wait_seconds, wait_bound_seconds; /* the two sides of that */
    double quantum_seconds,
        switch_seconds;              /* longest, as the scheduler had it; mean measured */
    double latency_p50, latency_p99; /* of requests, over that of a card of their own */
    double latency_p50_ms, latency_p99_ms;
    double finished;    /* programs that ended */
    double switch_cost; /* part of the time that nobody ran although somebody waited */
    double busy;        /* part of the time that somebody ran */
    double gpu_hours;
    double program_p50, program_p99; /* of the program for which it is worst, over its ideal */
    double training;          /* GPU time of programs without requests, of that of a card */
    double moves, moves_most; /* to other cards: of all programs, of one at most */
    double mistaken; /* part of the time in which one of those was found interactive, at most */
    uint64_t requests, events, states, targets, resident_most;
};

struct sim_totals sim_totals(struct sim_world *world);
/* The total of that name in a scenario's [expect]; NAN when there is none. */
double sim_totals_get(const struct sim_totals *totals, const char *name);
/* How many expectations are not met; says which on file (may be NULL). */
unsigned sim_expect_check(const struct sim_scenario *scenario, const struct sim_totals *totals,
                          FILE *file);

void sim_print(FILE *file, struct sim_world *world, const struct sim_totals *totals,
               double real_seconds, bool programs);
/* 0, or -ENOMEM. */
int sim_print_json(FILE *file, struct sim_world *world, const struct sim_totals *totals);
