/* SPDX-License-Identifier: Apache-2.0
 *
 * test_why.c: what sched_client_why() says of random programs (model.h), compared with what then
 * happens: the bound of a wait never moves away and is kept, and the program that is said to come
 * next does. GPUSHARE_TEST_EVENTS=N: so many events instead of 2 million; GPUSHARE_TEST_SEED=N.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lockd/model_state.h"

#include <stdlib.h>

#define CLIENTS 12
#define SLACK   (10 * NS_PER_MS) /* the scheduler puts some looks off for so long */

/* The word on a program that waits on a device. */
struct said {
    enum gs_why why; /* GS_WHY_NONE: nothing that has a bound */
    const void *owner;
    uint64_t turn;   /* the count of the holder's turns */
    uint64_t until;  /* it has ended by then */
    uint64_t waited; /* one bit for each program that waited then, too */
    bool ended;      /* it has; the program is to run next */
};

struct story {
    struct model *model;
    struct said said[CLIENTS][MODEL_DEVICES];
    uint64_t bounds, next, another;
};

static const struct sched_party *party_of(const struct sched_client *client, uint32_t device)
{
    const uint8_t uuid[16] = {(uint8_t)(device + 1)};
    const struct sched_member *member = sched_member_find(client, uuid);

    return member != NULL ? member->party : NULL;
}

static uint64_t waiting_on(const struct model *model, uint32_t device)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < model->options.clients; i++) {
        const struct sched_client *client = model->programs[i].client;
        const struct sched_party *party = client != NULL ? party_of(client, device) : NULL;

        bits |= party != NULL && party->wait.queued.of != NULL ? 1ull << i : 0;
    }
    return bits;
}

static bool has_bound(enum gs_why why)
{
    return why == GS_WHY_TURN || why == GS_WHY_GOES_FIRST || why == GS_WHY_FLOOR;
}

/* The turn has ended: does the program run next, or another that waited then? A program that
 * has come since may be served before it. */
static void see_next(struct story *story, struct said *said, const struct sched_why *now,
                     const struct sched_party *waiter)
{
    const struct model_program *other = now->owner;
    const bool runs = waiter->turn.held || waiter->books.running_members != 0;

    if (!runs && (now->why == GS_WHY_STOPS || now->owner == said->owner))
        return;
    story->next += runs;
    story->another += !runs && now->why != GS_WHY_NONE && other != NULL &&
                      (said->waited >> other->index & 1) != 0;
    said->why = GS_WHY_NONE;
}

static void look_at(struct story *story, uint32_t index, uint32_t device)
{
    struct model *model = story->model;
    const struct sched_client *client = model->programs[index].client;
    const uint8_t uuid[16] = {(uint8_t)(device + 1)};
    struct said *said = &story->said[index][device];
    const struct model_program *other;
    const struct sched_party *holder;
    struct sched_why now;

    if (client == NULL || sched_member_find(client, uuid) == NULL) {
        said->why = GS_WHY_NONE;
        return;
    }
    now = sched_client_why(client, uuid, model->now);
    other = now.owner;
    holder = other != NULL ? party_of(other->client, device) : NULL;
    if (said->why != GS_WHY_NONE &&
        (now.owner != said->owner || holder == NULL || holder->turn.count != said->turn ||
         !holder->turn.held || !has_bound(now.why)))
        said->ended = true;
    if (said->why != GS_WHY_NONE && said->ended) {
        see_next(story, said, &now, party_of(client, device));
    } else if (said->why != GS_WHY_NONE) {
        if (model->now > said->until + SLACK)
            fail_msg("seed %llu: program %u on device %u waits for a turn that was to end "
                     "%.3f s ago",
                     (unsigned long long)model->options.seed, index, device,
                     (double)(model->now - said->until) / 1e9);
        if (now.most_ns == LOCKD_NEVER || model->now + now.most_ns > said->until + SLACK)
            fail_msg("seed %llu: program %u on device %u: the bound moved away at %.3f s",
                     (unsigned long long)model->options.seed, index, device,
                     (double)model->now / 1e9);
    } else if (has_bound(now.why) && holder != NULL && now.most_ns != LOCKD_NEVER) {
        *said = (struct said){.why = now.why,
                              .owner = now.owner,
                              .turn = holder->turn.count,
                              .waited = waiting_on(model, device),
                              .until = model->now + now.most_ns};
        story->bounds++;
    }
}

static void follow(struct story *story, const struct model_options *options, uint64_t events)
{
    *story = (struct story){.model = model_new(options),
                            .bounds = story->bounds,
                            .next = story->next,
                            .another = story->another};
    assert_non_null(story->model);
    for (uint64_t i = 0; i < events; i++) {
        if (!model_once(story->model, LOCKD_NEVER))
            fail_msg("seed %llu: %s", (unsigned long long)options->seed, story->model->failure);
        for (uint32_t index = 0; index < options->clients; index++) {
            for (uint32_t device = 0; device < options->devices; device++)
                look_at(story, index, device);
        }
    }
    model_free(story->model);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void follow_many(enum gs_policy policy, bool mixed)
{
    const uint64_t events = from_environment("GPUSHARE_TEST_EVENTS", 2000000) / 5,
                   seed = from_environment("GPUSHARE_TEST_SEED", 1) * 1000;
    struct story story = {0};

    for (uint64_t i = 0; i < events / 5000; i++) {
        const struct model_options options = {
            .seed = seed + i,
            .clients = 2 + (uint32_t)(i % (CLIENTS - 1)),
            .devices = 1 + (uint32_t)(i % 2),
            .total = 16 * GIB,
            .quantum_ns = LOCKD_AUTO,
            .bandwidth = 50000000000,
            .change_ns = (uint64_t[]){200, 1500, 20000}[i % 3] * NS_PER_MS,
            .demand_most = 16 * GIB / (1 + i % 3),
            .mixed = mixed,
            .policy = policy,
        };

        follow(&story, &options, 5000);
    }
    print_message("%llu bounds; then the program ran %llu times, another one %llu times\n",
                  (unsigned long long)story.bounds, (unsigned long long)story.next,
                  (unsigned long long)story.another);
    assert_true(story.bounds > 100);
    assert_true(story.next > 10 * story.another);
}

static void bounds_of_waits_are_kept_by_fair(void **state)
{
    (void)state;
    follow_many(GS_POLICY_FAIR, false);
    follow_many(GS_POLICY_FAIR, true);
}

static void bounds_of_waits_are_kept_by_rr(void **state)
{
    (void)state;
    follow_many(GS_POLICY_RR, false);
    follow_many(GS_POLICY_RR, true);
}

static void bounds_of_waits_are_kept_by_priority(void **state)
{
    (void)state;
    follow_many(GS_POLICY_PRIORITY, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_of_waits_are_kept_by_fair),
        cmocka_unit_test(bounds_of_waits_are_kept_by_rr),
        cmocka_unit_test(bounds_of_waits_are_kept_by_priority),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
