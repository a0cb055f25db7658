/* SPDX-License-Identifier: Apache-2.0
 *
 * bursts.h: programs of several users that work in bursts, on the harness. Steps of 20 ms.
 */
#pragma once

#include "tests/lockd/harness.h"

#include "lockd/sched/shares.h"

#define SECOND (1000 * MS)

static inline const struct sched_party *party_of(const struct harness *h, int who)
{
    return sched_member_find(h->client[who].client, h->client[who].state.uuid)->party;
}

static inline bool is_found(const struct harness *h, int who)
{
    return sched_party_class(party_of(h, who), h->now) == GS_CLASS_INTERACTIVE;
}

static inline void begin_of_user(struct harness *h, int who, uint32_t user, uint64_t bytes)
{
    const struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};

    h->client[who].client = sched_client_add(h->sched, &h->client[who]);
    sched_describe(h->client[who].client, &hello, user);
    say_state(h, who, W, bytes, 0);
    obey_target(h, who);
}

/* A program that runs for so many steps, however long it waits for them, and rests for so many. */
struct bursts {
    int burst, rest, ran, rests;
    int waited, longest; /* steps that its burst waited; the longest */
};

/* A step of a program with bursts. */
static inline void step_bursts(struct harness *h, int who, struct bursts *its)
{
    if (its->rests > 0) {
        say_state(h, who, --its->rests > 0 ? 0 : W, h->client[who].state.demand,
                  has_run(h, who)
                      ? h->client[who].state.resident
                      : sched_min(h->client[who].state.resident, h->client[who].target.budget));
        return;
    }
    obey_target(h, who);
    obey_target(h, who);
    if (!is_running(h, who)) {
        its->waited++;
        its->longest = its->waited > its->longest ? its->waited : its->longest;
    } else if (++its->ran >= its->burst) {
        its->ran = its->waited = 0;
        its->rests = its->rest;
    }
}

/* A step of a program that always computes. */
static inline void step_training(struct harness *h, int who)
{
    obey_target(h, who);
    obey_target(h, who);
}
