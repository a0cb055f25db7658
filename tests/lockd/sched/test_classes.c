/* SPDX-License-Identifier: Apache-2.0
 *
 * test_classes.c: what the class of a program changes, and what programs lose to interactive
 * programs (bursts.c, shares.c, turns.c).
 */
#include "tests/lockd/harness.h"

#define STEP (10 * MS)

static void set_class(struct harness *h, int who, enum gs_wire_class class)
{
    change_class(h, who, class);
    harness_take(h);
}

/* Each of the first `count` does what it is told, for so long. wanting: who has work, one bit each.
 * Returns for how long each ran, ns. */
static void all_obey(struct harness *h, int count, unsigned wanting, uint64_t ns, uint64_t *ran)
{
    for (uint64_t done = 0; done < ns; done += STEP) {
        for (int who = 0; who < count; who++) {
            struct harness_client *c = &h->client[who];

            if ((wanting & (1u << who)) != 0)
                obey_target(h, who);
            else if (has_run(h, who))
                say_state(h, who, GS_STATE_RUNNING, c->state.demand, c->state.resident);
            else
                say_state(h, who, 0, c->state.demand,
                          sched_min(c->state.resident, c->target.budget));
        }
        for (int who = 0; who < count; who++)
            ran[who] += is_running(h, who) && (wanting & (1u << who)) != 0 ? STEP : 0;
        pass_time(h, STEP);
        assert_null(sched_check(h->sched));
    }
}

static uint64_t read_yielded(const struct harness *h, int who);

static void class_background_waits_while_another_program_wants(void **state)
{
    struct harness *h = *state;

    for (int fits = 0; fits < 2; fits++) {
        const uint64_t size = fits ? 2 * GIB : 6 * GIB;
        uint64_t ran[2] = {0};

        for (int who = 0; who < 2; who++)
            say_state(h, who, W, size, 0);
        set_class(h, 0, GS_CLASS_BACKGROUND);
        all_obey(h, 2, 3, 60000 * MS, ran);
        memset(ran, 0, sizeof ran);
        all_obey(h, 2, 3, 600000 * MS, ran);
        assert_int_equal(ran[0], 0);
        assert_int_equal(ran[1], 600000 * MS);
        all_obey(h, 2, 1, 60000 * MS, ran); /* the other one rests */
        assert_in_range(ran[0], 55000 * MS, 60000 * MS);
        assert_int_equal(read_yielded(h, 0), 0); /* it was nice by itself */
        end_client(h, 0);
        end_client(h, 1);
    }
}

/* The background program is told at once, and nothing but the time that it needs to stop passes
 * before the other runs. */
/* It cannot stop before it gets memory: the turn that it gets for that is not ended again at once. */
static void class_background_that_is_stuck_gets_one_turn(void **state)
{
    struct harness *h = *state;
    uint64_t turns;

    run_with(h, 0, 2 * GIB);
    set_class(h, 0, GS_CLASS_BACKGROUND);
    say_state(h, 1, W, 6 * GIB, 0);
    say_state(h, 2, W, 6 * GIB, 0);
    turns = device_of(h)->turns.switches;
    for (int step = 0; step < 100; step++) {
        say_state(h, 0, R | GS_STATE_STUCK, 5 * GIB, 2 * GIB);
        pass_time(h, 10 * MS);
    }
    assert_true(device_of(h)->turns.switches - turns <= 10);
    say_state(h, 0, R, 5 * GIB, 5 * GIB); /* it has got it */
    for (int step = 0; step < 100; step++) {
        for (int who = 0; who < 3; who++)
            obey_target(h, who);
        pass_time(h, 10 * MS);
    }
    assert_false(is_running(h, 0));
    assert_true(is_running(h, 1) || is_running(h, 2));
}

static void class_background_leaves_in_one_switch(void **state)
{
    struct harness *h = *state;

    for (int fits = 0; fits < 2; fits++) {
        const uint64_t size = fits ? 2 * GIB : 6 * GIB;

        for (int again = 0; again < 3; again++) {
            run_with(h, 0, size);
            set_class(h, 0, GS_CLASS_BACKGROUND);
            pass_time(h, 20 * MS); /* much less than a turn */
            say_state(h, 1, W, size, 0);
            assert_false(has_run(h, 0));
            say_state(h, 0, W, size, size);
            say_state(h, 0, W, size, sched_min(size, h->client[0].target.budget));
            assert_true(has_run(h, 1));
            assert_true(h->client[1].target.budget >= size);
            say_state(h, 1, R, size, size);
            pass_time(h, 100000 * MS);
            assert_false(has_run(h, 0));
            assert_true(has_run(h, 1));
            end_client(h, 0);
            end_client(h, 1);
        }
    }
}

static void class_background_alone_or_among_its_like_takes_turns(void **state)
{
    struct harness *h = *state;
    uint64_t ran[2] = {0};

    for (int who = 0; who < 2; who++) {
        say_state(h, who, W, 6 * GIB, 0);
        set_class(h, who, GS_CLASS_BACKGROUND);
    }
    all_obey(h, 2, 3, 300000 * MS, ran);
    assert_in_range(ran[0], 120000 * MS, 160000 * MS);
    assert_in_range(ran[1], 120000 * MS, 160000 * MS);
}

/* ... also where another program of one of their users had the device for long. */
static void class_background_of_several_users_takes_turns(void **state)
{
    struct harness *h = *state;
    uint64_t ran[4] = {0};

    for (int who = 0; who < 4; who++) {
        is_of_user(h, who, who < 2 ? 1 : 2);
        say_state(h, who, W, 6 * GIB, 0);
        if (who > 0)
            set_class(h, who, GS_CLASS_BACKGROUND);
    }
    all_obey(h, 4, 15, 60000 * MS, ran);
    assert_true(ran[0] >= 55000 * MS);
    say_state(h, 0, 0, 6 * GIB, 0);
    memset(ran, 0, sizeof ran);
    all_obey(h, 4, 14, 300000 * MS, ran);
    for (int who = 1; who < 4; who++)
        assert_in_range(ran[who], 80000 * MS, 110000 * MS);
}

/* The former head of the queue would have ended the holder's turn; the program behind it does
 * not, so no time is left at which there is anything to do. */
static void class_background_that_stays_behind_wakes_nobody(void **state)
{
    struct harness *h = *state;

    for (int leaves = 0; leaves < 2; leaves++) {
        run_with(h, 0, 6 * GIB);
        say_state(h, 1, W, 6 * GIB, 0);
        say_state(h, 2, W, 6 * GIB, 0);
        set_class(h, 2, GS_CLASS_BACKGROUND);
        assert_true(sched_deadline(h->sched) !=
                    LOCKD_NEVER); /* the turn's end is such a time */
        if (leaves)
            end_client(h, 1);
        else
            say_state(h, 1, 0, 6 * GIB, 0);
        pass_time(h, 600000 * MS); /* looks at the times by itself */
        assert_true(sched_deadline(h->sched) > h->now + 10000 * MS);
        assert_true(has_run(h, 0));
        assert_false(has_run(h, 2));
        say_state(h, 0, 0, 6 * GIB, 6 * GIB);
        say_state(h, 0, 0, 6 * GIB, 0);
        assert_true(has_run(h, 2));
        for (int who = 0; who < 3; who++) {
            if (h->client[who].client != NULL)
                end_client(h, who);
        }
    }
}

static void class_taken_back_it_has_its_share_again(void **state)
{
    struct harness *h = *state;
    uint64_t ran[2] = {0};

    for (int who = 0; who < 2; who++)
        say_state(h, who, W, 2 * GIB, 0);
    set_class(h, 0, GS_CLASS_BACKGROUND);
    all_obey(h, 2, 3, 10000 * MS, ran);
    assert_false(has_run(h, 0));
    set_class(h, 0, GS_CLASS_AUTO); /* both fit: both run */
    memset(ran, 0, sizeof ran);
    all_obey(h, 2, 3, 10000 * MS, ran);
    assert_in_range(ran[0], 9900 * MS, 10000 * MS);
    assert_in_range(ran[1], 9900 * MS, 10000 * MS);
    assert_false(device_of(h)->turns.leases);
}

/* --- what it costs the others --- */

struct yielded_look {
    const void *owner;
    uint64_t ns;
};

static void look_at_yielded(void *context, void *owner, const struct gs_wire_client *info)
{
    struct yielded_look *look = context;

    if (owner == look->owner)
        look->ns = info->yielded_ns;
}

static uint64_t read_yielded(const struct harness *h, int who)
{
    struct yielded_look look = {.owner = &h->client[who]};

    sched_visit(h->sched, harness_ignore, look_at_yielded, &look, h->now);
    return look.ns;
}

/* Client 0 computes all the time; client 1 has work for a moment, now and then. Returns for how long
 * the former could not run. */
static uint64_t serve_bursts(struct harness *h, int bursts, uint64_t burst, uint64_t rest)
{
    uint64_t lost = 0;

    for (int i = 0; i < bursts; i++) {
        uint64_t ran[2] = {0};

        for (uint64_t left = burst; left != 0;) {
            uint64_t now[2] = {0};

            all_obey(h, 2, 3, STEP, now);
            lost += now[0] == 0 ? STEP : 0;
            left -= now[1] != 0 ? STEP : 0;
        }
        all_obey(h, 2, 1, rest, ran);
        lost += rest - ran[0];
    }
    return lost;
}

static void yielded_is_the_time_that_bursts_took(void **state)
{
    struct harness *h = *state;
    uint64_t before, lost;

    say_state(h, 0, W, 8 * GIB, 0);
    say_state(h, 1, W, 6 * GIB, 0);
    serve_bursts(h, 10, 500 * MS, 8000 * MS); /* that is how it comes to be known */
    before = read_yielded(h, 0);
    lost = serve_bursts(h, 30, 500 * MS, 8000 * MS);
    assert_true(lost >= 30ull * 500 * MS);
    assert_in_range(read_yielded(h, 0) - before, lost * 95 / 100, lost * 105 / 100);
    assert_int_equal(read_yielded(h, 1), 0);
}

static void yielded_without_interactive_programs_is_nothing(void **state)
{
    struct harness *h = *state;
    uint64_t ran[2] = {0};

    for (int who = 0; who < 2; who++) {
        say_state(h, who, W, 6 * GIB, 0);
        set_class(h, who, GS_CLASS_BATCH);
    }
    all_obey(h, 2, 3, 100000 * MS, ran);
    assert_true(ran[0] != 0 && ran[1] != 0);
    assert_int_equal(read_yielded(h, 0) + read_yielded(h, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(class_background_waits_while_another_program_wants),
        scenario(class_background_that_is_stuck_gets_one_turn),
        scenario(class_background_leaves_in_one_switch),
        scenario(class_background_alone_or_among_its_like_takes_turns),
        scenario(class_background_of_several_users_takes_turns),
        scenario(class_background_that_stays_behind_wakes_nobody),
        scenario(class_taken_back_it_has_its_share_again),
        scenario(yielded_is_the_time_that_bursts_took),
        scenario(yielded_without_interactive_programs_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
