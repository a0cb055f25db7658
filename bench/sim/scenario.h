/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario.h: what is simulated, as read from a scenario file (README.md beside this file has
 * all keys). Times are nanoseconds, sizes bytes, rates bytes per second.
 */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SIM_CLASSES       64
#define SIM_EXPECTS       32
#define SIM_PROGRAMS_MOST 1000000
#define SIM_TURNS         8

enum sim_spread_kind { SIM_FIXED, SIM_EXPONENTIAL, SIM_UNIFORM, SIM_TURN };

/* A duration that varies: "50ms", "exp 50ms" (the mean), "uniform 10ms 90ms", "turn 8s 8s 50s" (one
 * after the other, again and again). */
struct sim_spread {
    enum sim_spread_kind kind;
    double a, b; /* turn: a is the mean */
    double turns[SIM_TURNS];
    uint64_t turn_count;
};

struct sim_burst { /* of a recorded program */
    uint64_t cpu_ns, gpu_ns;
};

/* A kind of program: one section of the file. */
struct sim_class {
    char name[32];
    uint64_t copies, card,
        spread; /* spread: on so many cards from `card` on, one after the other */
    uint64_t memory;
    uint64_t start_ns;
    struct sim_spread spacing; /* between the starts of its copies */
    struct sim_spread cpu, gpu;
    uint64_t cycles;           /* of cpu and gpu; 0: without end */
    struct sim_spread request; /* between arrivals; a == 0: it works without waiting for any */
    uint64_t cluster;          /* requests that arrive together */
    uint64_t ahead_ns;         /* of submitted work, which hides as much of its cpu */
    uint64_t pause_every;      /* cycles, after which it pauses for `pause`; 0: never */
    struct sim_spread pause;
    struct sim_spread stop;    /* submitted work goes on for so long */
    double busy;               /* part of a GPU phase in which the card really computes */
    double dirty, zero, saved; /* parts of the memory, see README.md */
    double hot;
    uint64_t pass_ns;
    uint64_t weight, user;
    uint64_t kind;    /* enum gs_wire_class */
    uint64_t kernels; /* cycles of a request */
    uint64_t hidden;  /* it sees no card but its own */
    int64_t priority;
    char group[32];
    struct sim_burst *bursts; /* from a trace; then cpu, gpu and cycles do not count */
    size_t burst_count, burst_room;
};

enum sim_way_name { SIM_WAY_GPUSHARE, SIM_WAY_UNIFIED, SIM_WAY_UNLOCKED };

struct sim_expect {
    char name[32];
    bool at_least;
    double bound;
};

struct sim_scenario {
    char path[256];
    /* [run] */
    uint64_t for_ns, warmup_ns, seed, way;
    uint64_t latency_ns; /* of a message, at most */
    /* [card] */
    uint64_t cards, memory, bus_in, bus_out, bus_both, map_ns;
    double slicing;
    uint64_t checkpoint_ns, restore_ns; /* of a program without memory, by the driver */
    double move_fails;
    uint64_t fault;           /* rate of faulting in */
    double thrash;            /* of it, when two fault against each other */
    uint64_t idle_release_ns; /* the old lock is given back after so long without work */
    /* [scheduler] */
    uint64_t quantum_ns, idle_ns, reserve, policy, exclusive, quantum_min_ns, quantum_max_ns;
    double cost, floor;
    uint64_t balance;

    struct sim_class classes[SIM_CLASSES];
    size_t class_count;
    struct sim_expect expects[SIM_EXPECTS];
    size_t expect_count;
};

void sim_scenario_init(struct sim_scenario *scenario);
void sim_scenario_deinit(struct sim_scenario *scenario);
/* 0, or a negative errno with a text that names file, line and what is allowed. */
int sim_scenario_read(struct sim_scenario *scenario, const char *path, struct gs_err *err);
/* One "section.key=value", as from the command line; "program.key" goes for all programs. */
int sim_scenario_set(struct sim_scenario *scenario, const char *assignment, struct gs_err *err);
/* Checks that need more than one line. To be called after all of the above. */
int sim_scenario_check(const struct sim_scenario *scenario, struct gs_err *err);
struct sim_class *sim_scenario_class(struct sim_scenario *scenario, const char *name,
                                     struct gs_err *err);
/* Every section and key, for --help. */
void sim_scenario_help(FILE *file);
double sim_spread_mean(const struct sim_spread *spread);

/* replay.c: adds a program for each track of a recorded trace. */
int sim_replay(struct sim_scenario *scenario, const char *path, uint64_t memory,
               struct gs_err *err);

/* A sum with its largest part. */
struct sim_sum {
    uint64_t total, most, count;
};

struct sim_samples {
    double *values;
    size_t count, room;
};

void sim_samples_add(struct sim_samples *samples, double value);
/* Sorts; 0 when there are none. */
double sim_samples_quantile(struct sim_samples *samples, double part);
void sim_samples_deinit(struct sim_samples *samples);
