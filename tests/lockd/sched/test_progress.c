/* SPDX-License-Identifier: Apache-2.0
 *
 * test_progress.c: everybody with work gets on, and the scheduler does not go round in circles:
 * gangs on two devices beside programs of short bursts and others, which fit alone and not
 * together. Clients with even numbers are on device 0, those with odd numbers on device 1; 0
 * and 1 make a gang, 2 and 3 another; 4 to 7 are alone.
 */
#include "tests/lockd/harness.h"

#define STEP    (5 * MS)
#define SECONDS 120
#define TURNS   10 /* a second, on one device: twice what quanta of 200 ms make ... */
#define BEGUN   3  /* ... and for each burst its own and what it interrupts, on two devices */

struct actor {
    bool on;
    uint64_t burst, pause; /* ns; burst 0: it always has work */
    uint64_t demand;
    uint64_t left, idle_until; /* of the burst; 0: idle */
    uint64_t ran, bursts, waits, longest;
};

struct stage {
    struct harness *h;
    struct actor actor[HARNESS_CLIENTS];
};

static void begin_stage(struct stage *stage, struct harness *h, enum gs_policy policy)
{
    struct sched_settings settings = *sched_settings(h->sched);

    *stage = (struct stage){.h = h};
    settings.policy = policy;
    sched_set(h->sched, &settings, h->now);
    for (int who = 0; who < 8; who++)
        joins_group(h, who, who < 2 ? "a" : who < 4 ? "b" : "");
}

static void enter_actor(struct stage *stage, int who, uint64_t burst_ms, uint64_t pause_ms)
{
    stage->actor[who] = (struct actor){.on = true,
                                       .burst = burst_ms * MS,
                                       .pause = pause_ms * MS,
                                       .left = 1,
                                       .demand = 7 * GIB};
    say_state(stage->h, who, W, 7 * GIB, 0);
}

static void enter_gang(struct stage *stage, int first, uint64_t burst_ms, uint64_t pause_ms)
{
    enter_actor(stage, first, burst_ms, pause_ms);
    enter_actor(stage, first + 1, burst_ms, pause_ms);
}

/* A step of work, if it runs; its burst may end, or the next begin. */
static void step_work(struct stage *stage, int who)
{
    struct harness *h = stage->h;
    struct actor *actor = &stage->actor[who];
    const uint64_t has = h->client[who].state.resident;

    if (actor->left == 0 && h->now < actor->idle_until)
        return;
    if (actor->left == 0) {
        actor->left = actor->burst;
        say_state(h, who, is_running(h, who) ? R : W, actor->demand, has);
    }
    if (!is_running(h, who)) {
        actor->waits += STEP;
        actor->longest = sched_max(actor->longest, actor->waits);
        return;
    }
    actor->waits = 0;
    actor->ran += STEP;
    actor->left = actor->burst == 0 ? 1 : sched_less(actor->left, STEP);
    if (actor->left != 0)
        return;
    actor->bursts++;
    actor->idle_until = h->now + actor->pause;
    say_state(h, who, 0, actor->demand, has);
}

static void obeys_idle_too(struct stage *stage, int who)
{
    struct harness *h = stage->h;

    if (stage->actor[who].left != 0)
        obey_target(h, who);
    else if (!has_run(h, who))
        say_state(h, who, 0, stage->actor[who].demand,
                  sched_min(h->client[who].state.resident, h->client[who].target.budget));
}

static void perform_stage(struct stage *stage)
{
    struct harness *h = stage->h;

    for (uint64_t end = h->now + SECONDS * 1000ull * MS; h->now < end;) {
        for (int round = 0; round < 3; round++) {
            for (int who = 0; who < HARNESS_CLIENTS; who++) {
                if (stage->actor[who].on)
                    obeys_idle_too(stage, who);
            }
        }
        for (int who = 0; who < HARNESS_CLIENTS; who++) {
            if (stage->actor[who].on)
                step_work(stage, who);
        }
        pass_time(h, STEP);
    }
    assert_null(sched_check(h->sched));
}

/* Everybody ran, nobody waited for longer than that, and turns were not for nothing. */
static void all_got_on(const struct stage *stage, uint64_t longest_ms)
{
    uint64_t bursts = 0;

    for (int who = 0; who < HARNESS_CLIENTS; who++) {
        const struct actor *actor = &stage->actor[who];

        if (!actor->on)
            continue;
        bursts += actor->bursts;
        assert_in_range(actor->longest, 0, longest_ms * MS);
        assert_true(actor->burst == 0 ? actor->ran > SECONDS * 1000ull * MS / 20
                                      : actor->bursts > SECONDS / 10);
    }
    lockd_each (const struct sched_device, device, &stage->h->sched->devices, link) {
        assert_in_range(device->turns.switches, 0,
                        (uint64_t)SECONDS * TURNS + (uint64_t)BEGUN * bursts);
    }
}

static const enum gs_policy in_turn[] = {GS_POLICY_FAIR, GS_POLICY_RR, GS_POLICY_PRIORITY};

#define each_policy(i) (int i = 0; i < 3; i++)

static void setup_again(void **state)
{
    harness_teardown(state);
    harness_setup(state);
}

/* The gang ends the turn of what is on device 1 alone; a burst ends the gang's. */
static void progress_gang_beside_bursts_both_run(void **state)
{
    static const uint64_t bursts[][2] = {{10, 150}, {40, 60}, {5, 1000}, {100, 20}};
    struct stage stage;

    for
        each_policy(i)
        {
            for (size_t k = 0; k < 4; k++) {
                setup_again(state);
                begin_stage(&stage, *state, in_turn[i]);
                enter_gang(&stage, 0, 0, 0);
                enter_actor(&stage, 5, bursts[k][0], bursts[k][1]);
                perform_stage(&stage);
                all_got_on(&stage, 5000);
            }
        }
}

static void progress_gang_of_bursts_beside_others_all_run(void **state)
{
    struct stage stage;

    for
        each_policy(i)
        {
            setup_again(state);
            begin_stage(&stage, *state, in_turn[i]);
            enter_gang(&stage, 0, 20, 100);
            enter_actor(&stage, 4, 0, 0);
            enter_actor(&stage, 5, 10, 150);
            enter_actor(&stage, 7, 0, 0);
            perform_stage(&stage);
            all_got_on(&stage, 10000);
        }
}

static void progress_two_gangs_beside_bursts_on_both_devices_all_run(void **state)
{
    struct stage stage;

    for
        each_policy(i)
        {
            setup_again(state);
            begin_stage(&stage, *state, in_turn[i]);
            enter_gang(&stage, 0, 0, 0);
            enter_gang(&stage, 2, 15, 90);
            enter_actor(&stage, 4, 10, 130);
            enter_actor(&stage, 5, 10, 150);
            enter_actor(&stage, 6, 0, 0);
            enter_actor(&stage, 7, 30, 70);
            perform_stage(&stage);
            all_got_on(&stage, 20000);
        }
}

/* A gang that waits gets another member, and with it another priority. */
static void progress_gang_becomes_more_important_while_it_waits_runs_at_once(void **state)
{
    struct harness *h = *state;
    struct stage stage;

    begin_stage(&stage, h, GS_POLICY_PRIORITY);
    change_priority(h, 5, 5);
    run_with(h, 5, 7 * GIB);
    change_priority(h, 7, 10);
    say_state(h, 1, W, 7 * GIB, 0);
    assert_false(has_run(h, 1));
    end_client(h, 3);
    joins_group(h, 3, "a");
    change_priority(h, 3, 50);
    say_state(h, 3, W, GIB, 0);
    assert_false(has_run(h, 5));
    say_state(h, 7, W, 7 * GIB, 0); /* above 5, and below them */
    obey_target(h, 5);
    assert_true(has_run(h, 1) && has_run(h, 3));
    sched_client_gone(h->client[3].client, h->now);
    memset(&h->client[3], 0, sizeof h->client[3]);
    harness_take(h);
    obey_target(h, 1);
    assert_true(has_run(h, 7) && !has_run(h, 1));
}

/* The program before it has its time; the program that it waits for has not. */
static void progress_higher_priority_keeps_its_turn_beyond_a_quantum(void **state)
{
    struct harness *h = *state;
    struct stage stage;
    uint64_t switches;

    begin_stage(&stage, h, GS_POLICY_PRIORITY);
    change_priority(h, 5, 5);
    run_with(h, 5, 7 * GIB);
    say_state(h, 7, W, 7 * GIB, 0);
    switches = device_of(h)->turns.switches;
    pass_time(h, 600 * 1000ull * MS);
    assert_true(has_run(h, 5) && !has_run(h, 7));
    assert_int_equal(device_of(h)->turns.switches, switches);
    say_state(h, 5, 0, 7 * GIB, 7 * GIB);
    assert_true(has_run(h, 7));
}

/* Its memory comes and goes a gigabyte at a time. */
static void obeys_slowly(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];
    const uint64_t has = c->state.resident, demand = c->state.demand;

    if (is_running(h, who) && !has_run(h, who))
        say_state(h, who, W, demand, has);
    else if (has > c->target.budget && !has_run(h, who))
        say_state(h, who, W, demand, sched_max(c->target.budget, sched_less(has, GIB)));
    else if (has_run(h, who) && has < sched_min(demand, c->target.budget))
        say_state(h, who, W, demand, sched_min(sched_min(demand, c->target.budget), has + GIB));
    else if (has_run(h, who) && has == demand && !is_running(h, who))
        say_state(h, who, R, demand, demand);
}

/* 1 runs long before 3 has its memory, or 0 before 1; a quantum is shorter than that. */
static void progress_gang_turn_counts_from_when_all_of_it_run(void **state)
{
    for (int other = 0; other < 2; other++) {
        const int first = other == 0 ? 0 : 1, last = other == 0 ? 1 : 3;
        struct sched_settings settings;
        uint64_t ran[HARNESS_CLIENTS] = {0};
        struct stage stage;
        struct harness *h;

        setup_again(state);
        h = *state;
        begin_stage(&stage, h, GS_POLICY_RR);
        settings = *sched_settings(h->sched);
        settings.quantum_ns = 100 * MS;
        sched_set(h->sched, &settings, h->now);
        end_client(h, 3);
        joins_group(h, 3, "a");
        say_state(h, first, W, GIB, 0);
        say_state(h, last, W, 6 * GIB, 0);
        say_state(h, 5, W, 8 * GIB, 0);
        for (int step = 0; step < 5000; step++) {
            obeys_slowly(h, first);
            obeys_slowly(h, last);
            obeys_slowly(h, 5);
            ran[first] += is_running(h, first);
            ran[last] += is_running(h, last);
            ran[5] += is_running(h, 5);
            pass_time(h, 20 * MS);
        }
        assert_true(ran[first] > 500 && ran[last] > 500 && ran[5] > 500);
    }
}

/* A program of the gang never comes to run: the others' time counts without it, and ends. */
static void progress_gang_member_does_not_come_to_run_the_turn_ends(void **state)
{
    for (int last = 1; last <= 3; last += 2) { /* on the other device, or on the same device */
        const int first = last == 1 ? 0 : 1;
        struct stage stage;
        struct harness *h;
        uint64_t ran[2] = {0};

        setup_again(state);
        h = *state;
        begin_stage(&stage, h, GS_POLICY_FAIR);
        end_client(h, 3);
        joins_group(h, 3, "a");
        say_state(h, first, W, GIB, 0);
        say_state(h, last, W, 6 * GIB, 0);
        say_state(h, 5, W, 7 * GIB, 0);
        for (int step = 0; step < 3000; step++) {
            obey_target(h, first);
            obey_target(h, 5);
            say_state(h, last, W, 6 * GIB, 0);
            ran[0] += is_running(h, first);
            ran[1] += is_running(h, 5);
            pass_time(h, 100 * MS);
        }
        assert_true(ran[0] > 300 && ran[1] > 300);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(progress_gang_beside_bursts_both_run),
        scenario(progress_gang_of_bursts_beside_others_all_run),
        scenario(progress_two_gangs_beside_bursts_on_both_devices_all_run),
        scenario(progress_gang_becomes_more_important_while_it_waits_runs_at_once),
        scenario(progress_gang_turn_counts_from_when_all_of_it_run),
        scenario(progress_gang_member_does_not_come_to_run_the_turn_ends),
        scenario(progress_higher_priority_keeps_its_turn_beyond_a_quantum),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
