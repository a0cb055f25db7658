/* SPDX-License-Identifier: Apache-2.0
 *
 * share.h: something that several programs use at the same time, each at the same speed: the
 * computing part of a card, one direction of its bus.
 */
#pragma once

#include "bench/sim/clock.h"

struct sim_job {
    struct sim_node node; /* first; its key is where the share's position will be at the end */
    double load;          /* what it takes of the share when alone, 0 to 1 */
    void (*done)(void *owner);
    void *owner;
};

struct sim_share {
    struct sim_clock *clock;
    struct sim_heap jobs;
    struct sim_timer timer;
    double position; /* work that a job present from the beginning would have done */
    double speed;    /* of every job: units of work per nanosecond */
    double load;     /* sum over the jobs */
    uint64_t at;     /* when position was true */
    /* How fast every job gets on, from the jobs there are. */
    double (*speed_of)(const struct sim_share *share);
    /* Called when the first job has come or the last one gone; may be NULL. */
    void (*changed)(struct sim_share *share);
    void *owner;
};

void sim_share_init(struct sim_share *share, struct sim_clock *clock,
                    double (*speed_of)(const struct sim_share *share), void *owner);
void sim_share_deinit(struct sim_share *share);
/* Starts so much work (ns or bytes) for the job; its done() is called at the end. */
void sim_share_add(struct sim_share *share, struct sim_job *job, double work);
/* Takes the job away and returns what was left to be done; 0 when it is not there. */
double sim_share_remove(struct sim_share *share, struct sim_job *job);
/* The work that the job has left now. */
double sim_share_left(struct sim_share *share, const struct sim_job *job);
/* Something else that speed_of() looks at has changed. */
void sim_share_update(struct sim_share *share);
