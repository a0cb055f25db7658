/* SPDX-License-Identifier: Apache-2.0
 *
 * test_deaf.c: programs that are stopped with Ctrl-Z or do not leave, in whatever state,
 * and what the others get beside them.
 */
#include "tests/lockd/harness.h"

#define LARGE (6 * GIB) /* no two of them fit */

/* Idle, with so much memory; it leaves when it must. */
static void stay_idle(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];

    say_state(h, who, 0, c->state.demand,
              has_run(h, who) ? c->state.resident
                              : sched_min(c->state.resident, c->target.budget));
}

static void stopped_waiter_costs_the_others_one_turn(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    run_with(h, 3, LARGE);
    say_state(h, 0, W, LARGE, 0);
    h->client[0].deaf = true;
    say_state(h, 1, W, 3 * GIB, 0);
    say_state(h, 2, W, 3 * GIB, 0);
    obey_for(h, 600, 1, 4, ran);
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
    for (int i = 1; i < 4; i++)
        assert_true(ran[i] > 300);
}

static void stopped_holder_that_has_not_begun_is_skipped_while_others_run(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    run_with(h, 3, LARGE);
    say_state(h, 0, W, LARGE, 0);
    h->client[0].deaf = true;
    say_state(h, 1, W, LARGE, 0);
    end_client(h, 3);
    obey_for(h, 100, 1, 2, ran);
    assert_true(ran[1] > 80);
    h->client[0].deaf = false; /* it goes on */
    say_state(h, 0, W, LARGE, 0);
    obey_for(h, 100, 0, 2, ran);
    assert_true(ran[0] > 30 && ran[1] > 30);
}

/* The program was told to have less than it has and will never say so. */
static void stopped_idle_program_memory_of_other_idle_programs_leaves_instead(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    for (int i = 0; i < 2; i++) {
        run_with(h, i, 4 * GIB);
        say_state(h, i, 0, 4 * GIB, 4 * GIB);
        pass_time(h, 100 * MS);
    }
    h->client[0].deaf = true;
    say_state(h, 2, W, 5 * GIB, 0);
    for (int second = 0; second < 60; second++) {
        stay_idle(h, 1);
        obey_for(h, 1, 2, 3, ran);
    }
    assert_true(is_running(h, 2));
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
    say_state(h, 3, W, 100 * MIB, 0); /* fits */
    stay_idle(h, 1);
    obey_target(h, 3);
    assert_true(is_running(h, 3));
    assert_true(is_running(h, 2));
}

static void evicted_program_that_does_not_answer_is_shown(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    for (int i = 0; i < 2; i++) {
        run_with(h, i, 4 * GIB);
        say_state(h, i, 0, 4 * GIB, 4 * GIB);
        pass_time(h, 10 * MS);
    }
    say_state(h, 2, W, 3 * GIB, 0);
    for (int i = 0; i < 4; i++) {
        stay_idle(h, 0);
        stay_idle(h, 1);
        obey_target(h, 2);
    }
    assert_true(is_running(h, 2));
    assert_int_equal(h->client[0].state.resident, 3 * GIB);
    h->client[0].deaf = true; /* and it was not asked for anything */
    say_state(h, 3, W, 5 * GIB, 0);
    for (int second = 0; second < 60; second++) {
        say_state(h, 2, 0, 3 * GIB, h->client[2].state.resident);
        stay_idle(h, 1);
        stay_idle(h, 2);
        obey_for(h, 1, 3, 4, ran);
    }
    assert_true(is_running(h, 3));
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
}

static void stopped_idle_program_with_exclusive_turns_others_run(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);
    int ran[HARNESS_CLIENTS];

    settings.exclusive = true;
    sched_set(h->sched, &settings, h->now);
    run_with(h, 0, 100 * MIB);
    say_state(h, 0, 0, 100 * MIB, 100 * MIB);
    h->client[0].deaf = true;
    say_state(h, 1, W, GIB, 0);
    say_state(h, 2, W, GIB, 0);
    obey_for(h, 100, 1, 3, ran);
    assert_true(ran[1] > 35 && ran[2] > 35);
    assert_true(ran[1] + ran[2] <= 100); /* still one at a time */
}

static void head_that_does_not_fit_beside_a_stuck_program_others_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[2] = {0};

    run_with(h, 0, LARGE);
    say_state(h, 3, W, LARGE, 0);
    say_state(h, 1, W, 3 * GIB, 0);
    say_state(h, 2, W, 3 * GIB, 0);
    for (int step = 0; step < 6000; step++) { /* 0: a kernel that never ends */
        say_state(h, 0, R | (has_run(h, 0) ? 0 : GS_STATE_STUCK), LARGE, LARGE);
        for (int i = 1; i < 4; i++) {
            obey_target(h, i);
            obey_target(h, i);
        }
        pass_time(h, 100 * MS);
        ran[0] += is_running(h, 1);
        ran[1] += is_running(h, 2);
    }
    assert_true(ran[0] > 2000 && ran[1] > 2000);
    say_state(h, 0, W, LARGE, 0); /* at last: now it is the turn of the program that waited */
    for (int step = 0; step < 600 && !is_running(h, 3); step++) {
        for (int i = 0; i < 4; i++) {
            obey_target(h, i);
            obey_target(h, i);
        }
        pass_time(h, 100 * MS);
    }
    assert_true(is_running(h, 3));
}

/* 0 needs 24 MiB of 192 and has spare bytes; it no longer answers when it is to have fewer. Returns
 * what it keeps. */
static uint64_t stops_with_spare_bytes(struct harness *h)
{
    h->total = 192 * MIB;
    run_with(h, 0, 24 * MIB);
    pass_time(h, 2 * TELL_PAUSE);
    assert_true(h->client[0].target.budget >= 80 * MIB);
    h->client[0].deaf = true;
    return h->client[0].target.budget;
}

/* All of them fit, so no turns are taken; the other program has to spare as much as 0 does not
 * give back. */
static void stopped_program_keeps_spare_bytes_others_give_theirs(void **state)
{
    struct harness *h = *state;

    for (uint64_t room = 0, last = 32 * MIB; room == 0 || last <= room; last += 2 * MIB) {
        room = 192 * MIB - stops_with_spare_bytes(h) - 24 * MIB;
        run_with(h, 1, 24 * MIB);
        for (uint64_t demand = 8 * MIB; demand <= last; demand += 2 * MIB) { /* it grows */
            say_state(h, 2, W, demand, h->client[2].state.resident);
            obey_target(h, 2);
            obey_target(h, 1);
            pass_time(h, 2 * TELL_PAUSE);
            obey_target(h, 1);
        }
        for (int second = 0; second < 5; second++) {
            obey_target(h, 1);
            obey_target(h, 2);
            pass_time(h, 1000 * MS);
        }
        assert_true(is_running(h, 1));
        assert_true(is_running(h, 2));
        assert_false(device_of(h)->turns.leases);
        for (int who = 0; who < 3; who++)
            end_client(h, who);
    }
}

/* All needs fit, but not beside the memory that 0 keeps: the others take turns. */
static void stopped_program_keeps_spare_bytes_others_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    stops_with_spare_bytes(h);
    run_with(h, 1, 80 * MIB);
    say_state(h, 2, W, 80 * MIB, 0);
    obey_for(h, 100, 1, 3, ran);
    assert_true(ran[1] > 35 && ran[2] > 35);
}

/* All needs fit, but not beside the memory that 0 keeps: the memory of an idle program
 * leaves. */
static void stopped_program_keeps_spare_bytes_idle_memory_leaves(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    stops_with_spare_bytes(h);
    run_with(h, 1, 80 * MIB);
    say_state(h, 1, 0, 80 * MIB, 80 * MIB);
    say_state(h, 2, W, 80 * MIB, 0);
    for (int second = 0; second < 60; second++) {
        stay_idle(h, 1);
        obey_for(h, 1, 2, 3, ran);
    }
    assert_true(is_running(h, 2));
    h->client[0].deaf = false; /* it goes on, and all fit again */
    for (int second = 0; second < 3; second++) {
        obey_target(h, 0);
        say_state(h, 1, W, 80 * MIB, h->client[1].state.resident);
        obey_for(h, 1, 0, 3, ran);
    }
    assert_false(device_of(h)->turns.leases);
    assert_true(is_running(h, 0) && is_running(h, 1) && is_running(h, 2));
}

/* 0 has 20 MiB and may have 4 GiB. Program 0 stops, and 1 needs all that 0 does not have. */
static void stopped_program_budget_beyond_holdings_ends(void **state)
{
    for (int unread = 0; unread < 2; unread++) { /* its socket is full of targets, or not */
        struct harness *h = *state;
        const uint64_t small = 20 * MIB, large = 9 * GIB;

        run_with(h, 0, small);
        pass_time(h, 100 * MS);
        say_state(h, 0, 0, small, small);
        assert_true(h->client[0].target.budget > 2 * GIB);
        h->client[0].deaf = true;
        for (int i = 0; unread && i < 10; i++) {
            pause_all(h, i % 2 == 0);
            pass_time(h, 10 * MS);
        }
        pause_all(h, false);
        say_state(h, 1, W, large, 0);
        obey_target(h, 1);
        assert_false(is_running(h, 1)); /* 0 may be about to take memory */
        pass_time(h, unread ? 0 : SILENT);
        obey_target(h, 1);
        pass_time(h, unread ? SILENT : 0);
        obey_target(h, 1);
        assert_true(is_running(h, 1));
        assert_true(h->client[0].target.budget <=
                    small); /* it will read that before it goes on */
        assert_true(device_of(h)->books.sum.hold <= 10 * GIB);
        h->client[0].deaf = false;
        say_state(h, 0, W, small, small);
        obey_target(h, 0);
        assert_true(is_running(h, 0) && is_running(h, 1));
        for (int who = 0; who < 2; who++)
            end_client(h, who);
    }
}

#define PROGRAMS 5

/* Programs at random: for some time they want more or less memory, have nothing to do, are
 * stopped. */
struct at_random {
    uint64_t number;
    bool idle[PROGRAMS];
};

static uint64_t random_below(struct at_random *r, uint64_t limit)
{
    r->number = r->number * 6364136223846793005ull + 1442695040888963407ull;
    return (r->number >> 33) % limit;
}

static void live_on(struct harness *h, struct at_random *r, uint64_t ns)
{
    for (int who = 0; who < PROGRAMS; who++) {
        for (int i = 0; i < 2 && !h->client[who].deaf; i++) {
            if (r->idle[who])
                stay_idle(h, who);
            else
                obey_target(h, who);
            assert_null(sched_check(h->sched));
        }
    }
    pass_time(h, ns);
    assert_null(sched_check(h->sched));
}

static void do_anything(struct harness *h, struct at_random *r)
{
    const int who = (int)random_below(r, PROGRAMS);
    struct harness_client *c = &h->client[who];

    if (c->deaf)
        return;
    r->idle[who] = random_below(r, 3) == 0;
    if (random_below(r, 2) == 0 && (c->state.flags & GS_STATE_RUNNING) != 0) {
        c->state.demand = sched_max(c->state.resident, (1 + random_below(r, 40)) * 2 * MIB);
        say_state(h, who, W | GS_STATE_RUNNING, c->state.demand, c->state.resident);
    }
    live_on(h, r, random_below(r, 200) * 10 * MS);
    if (who < 2 && random_below(r, 8) == 0)
        c->deaf = true;
}

/* All want to run, and all have memory that fits beside the bytes that stopped programs may
 * hold in the end. */
static void assert_all_run(struct harness *h, struct at_random *r)
{
    uint64_t room = h->total;
    bool ran[PROGRAMS] = {false};

    for (int second = 0; second < 500; second++) { /* what others had before is made up for */
        for (int who = 0; who < PROGRAMS; who++) {
            r->idle[who] = false;
            ran[who] = ran[who] || is_running(h, who);
        }
        live_on(h, r, 1000 * MS);
    }
    for (int who = 0; who < PROGRAMS; who++)
        if (h->client[who].deaf)
            room -= sched_max(h->client[who].state.resident, h->client[who].most);
    for (int who = 0; who < PROGRAMS; who++)
        assert_true(ran[who] || h->client[who].deaf || h->client[who].state.demand > room);
}

/* Nobody is short of memory: the other program waits for the turn alone. */
static void stopped_program_whose_turn_is_over_is_named(void **state)
{
    struct harness *h = *state;
    struct sched_remark remark = {0};

    run_with(h, 0, LARGE);
    h->client[0].deaf = true;
    say_state(h, 1, W, LARGE, 0);
    pass_time(h, quantum_of(h) + 2 * SILENT);
    assert_true(sched_next_remark(h->sched, &remark));
    assert_true(remark.silent && remark.owner == &h->client[0]);
}

static void stopped_programs_at_random_the_others_run(void **state)
{
    struct harness *h = *state;

    h->total = 192 * MIB;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct at_random r = {.number = seed};

        for (int who = 0; who < PROGRAMS; who++)
            say_state(h, who, W, (1 + random_below(&r, 30)) * 2 * MIB, 0);
        for (int i = 0; i < 30; i++)
            do_anything(h, &r);
        assert_all_run(h, &r);
        for (int who = 0; who < PROGRAMS; who++)
            h->client[who].deaf = false;
        assert_all_run(h, &r);
        for (int who = 0; who < PROGRAMS; who++)
            end_client(h, who);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(stopped_waiter_costs_the_others_one_turn),
        scenario(stopped_holder_that_has_not_begun_is_skipped_while_others_run),
        scenario(stopped_idle_program_memory_of_other_idle_programs_leaves_instead),
        scenario(evicted_program_that_does_not_answer_is_shown),
        scenario(stopped_idle_program_with_exclusive_turns_others_run),
        scenario(stopped_program_keeps_spare_bytes_others_give_theirs),
        scenario(stopped_program_keeps_spare_bytes_others_take_turns),
        scenario(stopped_program_keeps_spare_bytes_idle_memory_leaves),
        scenario(stopped_program_budget_beyond_holdings_ends),
        scenario(stopped_program_whose_turn_is_over_is_named),
        scenario(stopped_programs_at_random_the_others_run),
        scenario(head_that_does_not_fit_beside_a_stuck_program_others_take_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
