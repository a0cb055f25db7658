/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h: programs that keep the client's promises of wire.h, with random delays, under a
 * virtual clock; and what must hold whatever they do. Drives lockd's lock unchanged. Used by
 * the random test and the bench.
 */
#pragma once

#include "lockd/sched/capacity.h"
#include "tests/lockd/check.h"
#include "lockd/sched/device.h"
#include "lockd/sched/policy.h"
#include "lockd/sched/quantum.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_DEVICES 3

struct model_options {
    uint64_t seed;
    uint32_t clients;
    uint32_t devices;     /* 1 to 3 */
    uint64_t total;       /* of each device, bytes */
    uint64_t hidden;      /* bytes of it that are not there (GS_STATE_SHORT comes of it) */
    uint64_t quantum_ns;  /* LOCKD_AUTO as in scheduler.h */
    uint64_t demand_most; /* of one client */
    uint64_t bandwidth;   /* bytes per second in and out */
    uint64_t change_ns;   /* mean time between changes of mind of one client */
    bool measured;        /* clients report device_free */
    bool stuck;           /* some do not stop for a while */
    bool unchecked;       /* for timing */
    bool keeps;           /* some of what is to leave has no place, and counts as pinned */
    bool pauses, kills, restarts, grows;
    bool classes;   /* some are background */
    uint32_t users; /* that the programs belong to; 0: one */
    bool mixed; /* programs on some of the devices, of groups, of short bursts, of priorities */
    enum gs_policy policy;
};

struct model;

struct model *model_new(const struct model_options *options);
void model_free(struct model *model);
/* Handles events until so many are done. NULL, or what went wrong (valid until model_free()).
 */
const char *model_run(struct model *model, uint64_t events);
/* No client changes its mind from now on; with work: all have something to run, without: none.
 * Runs for that long. */
const char *model_settle(struct model *model, bool work, uint64_t ns);
/* Brings every client's demand down until all fit together. */
void model_make_fit(struct model *model);
/* As model_settle() goes on; fails when the scheduler sends anything. */
const char *model_must_be_quiet(struct model *model, uint64_t ns);
/* ... that are not background. */
bool model_all_run(const struct model *model);

struct model_figures {
    uint64_t events, targets, states;
    uint64_t turns;                          /* times that a program came to run */
    uint64_t decision_ns, decision_worst_ns; /* real time spent inside the scheduler */
    uint64_t wait_worst_ns;                  /* virtual */
    uint64_t wait_part; /* the longest wait, in thousandths of what it may be */
    uint64_t rate_part; /* most turns in a second, likewise */
    uint64_t now_ns;
};
const struct model_figures *model_figures(const struct model *model);
/* So many of the scheduler's decisions (0 to 1) took at most so many ns of real time; in steps of
 * 100, and what took longer than a millisecond counts as that. */
uint64_t model_decision_quantile(const struct model *model, double part);
