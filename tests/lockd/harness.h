/* SPDX-License-Identifier: Apache-2.0
 *
 * harness.h: a lock with a few hand-driven clients on one device, for scenarios. Each test has
 * its own (cmocka state).
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockd/sched/capacity.h"
#include "tests/lockd/check.h"
#include "lockd/sched/device.h"
#include "lockd/sched/policy.h"
#include "lockd/sched/quantum.h"

#include <stdlib.h>
#include <string.h>

#define HARNESS_CLIENTS 101
#define MS              NS_PER_MS

struct harness_client {
    struct sched_client *client;
    struct gs_wire_state state;
    struct gs_wire_target target; /* newest */
    uint32_t targets;             /* received */
    uint64_t most;     /* of the budgets it has not echoed, and the last one it has */
    uint64_t promised; /* ... of all */
    bool deaf;         /* does not echo */
};

struct harness {
    struct sched *sched;
    struct harness_client client[HARNESS_CLIENTS];
    uint64_t now, total, free_bytes;
    uint64_t step, since[HARNESS_CLIENTS]; /* for a scenario's own use */
    bool ran[HARNESS_CLIENTS];
    bool bears_out; /* the card shows what each program claims */
};

static inline int harness_setup(void **state)
{
    const struct sched_settings settings = {.quantum_ns = LOCKD_AUTO,
                                            .idle_ns = LOCKD_AUTO,
                                            .reserve = LOCKD_AUTO,
                                            .share_ppm = 50000};
    struct harness *h = calloc(1, sizeof *h);

    assert_non_null(h);
    h->now = 1000 * MS;
    h->total = 10 * GIB;
    h->free_bytes = UINT64_MAX;
    h->sched = sched_new(&settings, 0);
    *state = h;
    return 0;
}

static inline int harness_teardown(void **state)
{
    struct harness *h = *state;

    sched_free(h->sched);
    free(h);
    return 0;
}

static inline void harness_report(struct harness *h, struct harness_client *c)
{
    if (!c->deaf && c->targets != 0)
        c->state.target_seq = c->target.seq;
    if (!c->deaf)
        c->most = c->target.budget;
    assert_int_equal(sched_state(c->client, &c->state, h->now), 0);
}

/* Delivers all targets; a client that is not deaf echoes its own, and does nothing else. Must
 * come to an end. */
static inline void harness_take(struct harness *h)
{
    struct sched_send send;
    int patience = 100 * HARNESS_CLIENTS;
    uint64_t had;

    while (sched_next_send(h->sched, &send)) {
        struct harness_client *c = send.owner;

        /* what is handed over with it is no more than what it may have in addition (to what
         * it was ever promised: that it has more need not be believed) */
        had = sched_max(c->most, sched_min(c->state.resident, c->promised));
        assert_true(send.rise == 0 || send.rise + had <= send.target.budget);
        c->most = sched_max(c->most, send.target.budget);
        c->promised = sched_max(c->promised, send.target.budget);
        c->target = send.target;
        c->targets++;
        assert_true(patience-- > 0);
        if (c->state.device_free != UINT64_MAX)
            c->state.device_free = h->free_bytes;
        if (!c->deaf)
            harness_report(h, c);
    }
}

/* The client reports; echoes its newest target unless deaf. */
static inline void say_state(struct harness *h, int who, uint32_t flags, uint64_t demand,
                             uint64_t resident)
{
    struct harness_client *c = &h->client[who];

    if (c->client == NULL)
        c->client = sched_client_add(h->sched, c);
    c->state.device_total = h->total;
    c->state.device_free = h->free_bytes;
    c->state.flags = flags;
    c->state.demand = demand;
    c->state.resident = resident;
    harness_report(h, c);
    harness_take(h);
}

static inline void change_class(struct harness *h, int who, enum gs_wire_class class)
{
    struct sched_client_settings set = sched_client_info(h->client[who].client).set;

    set.class = class;
    sched_client_set(h->client[who].client, set, h->now);
}

static inline void change_priority(struct harness *h, int who, int32_t priority)
{
    struct sched_client_settings set = sched_client_info(h->client[who].client).set;

    set.priority = priority;
    sched_client_set(h->client[who].client, set, h->now);
}

static inline void change_weight(struct harness *h, int who, uint32_t weight)
{
    struct sched_client_settings set = sched_client_info(h->client[who].client).set;

    set.weight = weight;
    sched_client_set(h->client[who].client, set, h->now);
}

/* Programs below `count` do not go first when they are new: a turn lasts for a whole quantum. */
static inline void go_in_turn(struct harness *h, int count)
{
    for (int who = 0; who < count; who++) {
        if (h->client[who].client == NULL)
            h->client[who].client = sched_client_add(h->sched, &h->client[who]);
        change_class(h, who, GS_CLASS_BATCH);
    }
}

static inline void pass_time(struct harness *h, uint64_t ns)
{
    const uint64_t until = h->now + ns;

    while (sched_deadline(h->sched) <= until) {
        h->now = sched_max(h->now, sched_deadline(h->sched));
        sched_tick(h->sched, h->now);
        harness_take(h);
        assert_true(sched_deadline(h->sched) > h->now); /* or a daemon would spin */
    }
    h->now = until;
}

/* A client that says hello, with the name of its group. An even number is on the first device, an
 * odd one on the second. */
static inline void joins_group(struct harness *h, int who, const char *group)
{
    struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};
    struct harness_client *c = &h->client[who];

    c->client = sched_client_add(h->sched, c);
    strncpy(hello.group, group, sizeof hello.group - 1);
    sched_describe(c->client, &hello, 1);
    c->state.uuid[0] = (uint8_t)(who % 2);
}

static inline void end_client(struct harness *h, int who)
{
    sched_client_gone(h->client[who].client, h->now);
    memset(&h->client[who], 0, sizeof h->client[who]);
    harness_take(h);
}

static inline void pause_all(struct harness *h, bool paused)
{
    for (int who = 0; who < HARNESS_CLIENTS; who++) {
        if (h->client[who].client != NULL)
            sched_pause(h->client[who].client, paused, h->now);
    }
}

static inline bool has_run(const struct harness *h, int who)
{
    return (h->client[who].target.flags & GS_TARGET_RUN) != 0;
}

static inline bool has_waiters(const struct harness *h, int who)
{
    return (h->client[who].target.flags & GS_TARGET_WAITERS) != 0;
}

/* Brings who to run with so much memory (everybody fits, or it has its turn). */
static inline void run_with(struct harness *h, int who, uint64_t demand)
{
    say_state(h, who, GS_STATE_WANT, demand, 0);
    assert_true(has_run(h, who));
    assert_true(h->client[who].target.budget >= demand);
    say_state(h, who, GS_STATE_WANT | GS_STATE_RUNNING, demand, demand);
}

static inline struct sched_device *device_of(const struct harness *h)
{
    return lockd_entry(h->sched->devices.next, struct sched_device, link);
}

static inline uint64_t quantum_of(const struct harness *h)
{
    return sched_device_quantum(device_of(h));
}

static inline enum gs_condition condition_of(const struct harness *h, int who);

static inline void is_of_user(struct harness *h, int who, uint32_t user)
{
    const struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};

    h->client[who].client = sched_client_add(h->sched, &h->client[who]);
    sched_describe(h->client[who].client, &hello, user);
}

/* Takes the next program whose reports are not used. */
static inline bool is_named(struct harness *h, void **owner)
{
    struct sched_remark remark = {0};

    while (sched_next_remark(h->sched, &remark)) {
        *owner = remark.owner;
        if (remark.contradicted)
            return true;
    }
    return false;
}

struct harness_look {
    const void *owner;
    enum gs_condition condition;
    bool skipped;
};

static inline void harness_ignore(void *context, const struct gs_wire_device *info)
{
    (void)context;
    (void)info;
}

static inline void harness_member(void *context, void *owner, const struct gs_wire_client *info)
{
    struct harness_look *look = context;

    if (owner != look->owner)
        return;
    look->condition = (enum gs_condition)info->condition;
    look->skipped = (info->flags & GS_CLIENT_SKIPPED) != 0;
}

static inline enum gs_condition condition_of(const struct harness *h, int who)
{
    struct harness_look look = {.owner = &h->client[who]};

    sched_visit(h->sched, harness_ignore, harness_member, &look, h->now);
    return look.condition;
}

#define R (GS_STATE_RUNNING | GS_STATE_WANT)
#define W GS_STATE_WANT

/* Does what its newest target says, in one step. */
static inline void obey_target(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];
    const uint64_t demand = c->state.demand, budget = c->target.budget;

    if (!has_run(h, who))
        say_state(h, who, W, demand, sched_min(c->state.resident, budget));
    else
        say_state(h, who, budget >= demand ? R : W, demand,
                  sched_min(demand, sched_max(budget, c->state.resident)));
}

static inline bool is_running(const struct harness *h, int who)
{
    return (h->client[who].state.flags & GS_STATE_RUNNING) != 0;
}

/* Those from..to-1 obey for so many seconds. Returns how long each of them ran, s. */
static inline void obey_for(struct harness *h, int seconds, int from, int to, int *ran)
{
    memset(ran, 0, HARNESS_CLIENTS * sizeof *ran);
    for (int second = 0; second < seconds; second++) {
        for (int step = 0; step < 10; step++) {
            for (int i = from; i < to; i++) {
                obey_target(h, i);
                obey_target(h, i);
            }
            pass_time(h, 100 * MS);
        }
        for (int i = from; i < to; i++)
            ran[i] += is_running(h, i);
    }
}

#define scenario(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

/* Says that the device has so many bytes. */
static inline void says_total(struct harness *h, int who, uint64_t total)
{
    const uint64_t before = h->total;

    h->total = total;
    say_state(h, who, h->client[who].state.flags, h->client[who].state.demand,
              h->client[who].state.resident);
    h->total = before;
}
