/* SPDX-License-Identifier: Apache-2.0
 *
 * trial_world.h: jobs of ranks on one to four devices, with a scheduler, under a virtual clock.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lockd/programs/kin.h"
#include "lockd/sched/constants.h"

#define TRIAL_DEVICES 4
#define TRIAL_JOBS    6
#define TRIAL_STEP    (5 * NS_PER_MS)

struct trial_side {
    uint64_t demand, resident, budget;
    uint64_t later; /* its demand from the round grows_at on; 0: it does not grow */
    uint32_t grows_at;
    uint64_t grows_when; /* ... and from that time on */
    uint64_t beyond;     /* what lies beyond the card: not in its demand until its turn ends */
    uint32_t seq, flags;
    bool used, fresh; /* fresh: a target came that is not answered */
};

struct trial_rank {
    struct trial_job *job;
    struct sched_client *client; /* NULL: not there */
    struct kin_program *program;
    struct lockd_identity identity;
    struct trial_side side[TRIAL_DEVICES];
    bool running, collective, ended;
    bool on_host; /* it waits for ranks that have not come */
    uint32_t round;
    uint64_t left; /* ns of the computation at hand */
    uint64_t calls, stop_since;
    uint64_t back_at;  /* it connects then; LOCKD_NEVER */
    uint64_t knows_at; /* it says then that it is of the job; 0: at once, or it has */
};

struct trial_job {
    struct trial_rank rank[TRIAL_DEVICES];
    unsigned ranks, number;
    uint32_t rounds;
    uint64_t compute, dies_at;
    uint32_t user;
    bool evidence, dead;
    bool says_ranks; /* ... with it, how many there are */
};

struct trial_world {
    struct sched *sched;
    struct kin kin;
    struct trial_job job[TRIAL_JOBS];
    unsigned jobs, devices, said, beyond; /* beyond: times that memory went there */
    uint64_t now, random, work, events, restart_at;
    enum gs_policy policy;
    uint64_t quantum;
    bool
        late; /* ranks compute as soon as they are there, come late, and need more memory later */
    /* the same, but all jobs have ranks on the same devices and fit together until most of their
     * ranks need more memory, around grow_at */
    bool grown;
    uint64_t grow_at;
    bool unaware; /* late, and ranks say after they have begun that they are of a job */
    bool grouped; /* late, and the jobs name groups instead of having evidence */
};

/* Below that, from the world's own seed. */
uint64_t trial_world_random(struct trial_world *world, uint64_t below);

/* A scheduler with the world's policy and quantum, that knows of nobody. */
void trial_world_begin(struct trial_world *world);

/* A random job. */
void trial_world_add_job(struct trial_world *world, unsigned number);

/* All ranks do what they do in TRIAL_STEP, and the scheduler hears of it. */
void trial_world_step(struct trial_world *world);
bool trial_world_is_done(const struct trial_world *world);
void trial_world_print(const struct trial_world *world);
