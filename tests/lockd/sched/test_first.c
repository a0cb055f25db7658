/* SPDX-License-Identifier: Apache-2.0
 *
 * test_first.c: which programs go first (bursts.c), and for how long the others let them
 * (shares.c). Client 0 computes all the time; client 1 works in bursts. The device holds one of
 * them.
 */
#include "tests/lockd/sched/bursts.h"

#define STEP    (10 * MS)
#define STOPPED 3 /* steps that a hand-off takes here, at most */

/* One step; both do what they are told, and 1 has work or not. Returns who ran, one bit each. 0
 * takes part once it has connected. */
static unsigned step_both(struct harness *h, bool works)
{
    unsigned ran = 0;

    if (h->client[0].client != NULL)
        obey_target(h, 0);
    if (works)
        obey_target(h, 1);
    else if (has_run(h, 1))
        say_state(h, 1, GS_STATE_RUNNING, 6 * GIB, 6 * GIB);
    else
        say_state(h, 1, 0, 6 * GIB,
                  sched_min(h->client[1].state.resident, h->client[1].target.budget));
    for (int who = 0; who < 2; who++)
        ran |= is_running(h, who) && (who == 0 || works) ? 1u << who : 0;
    pass_time(h, STEP);
    assert_null(sched_check(h->sched));
    return ran;
}

/* 1 works for so long, however long it has to wait for that, and rests. Adds to ran what 0 ran.
 * Returns how long 1 waited. */
static uint64_t run_burst(struct harness *h, uint64_t work, uint64_t rest, uint64_t *ran)
{
    uint64_t waited = 0;

    while (work != 0) {
        const unsigned is = step_both(h, true);

        work -= (is & 2) != 0 ? sched_min(work, STEP) : 0;
        waited += (is & 2) == 0 ? STEP : 0;
        *ran += (is & 1) != 0 ? STEP : 0;
    }
    for (; rest != 0; rest -= STEP)
        *ran += (step_both(h, false) & 1) != 0 ? STEP : 0;
    return waited;
}

static uint64_t run_bursts(struct harness *h, int count, uint64_t work, uint64_t rest)
{
    uint64_t ran = 0, longest = 0;

    for (int i = 0; i < count; i++)
        longest = sched_max(longest, run_burst(h, work, rest, &ran));
    return longest;
}

static void begin_both(struct harness *h)
{
    say_state(h, 0, W, 8 * GIB, 0);
    obey_target(h, 0);
    say_state(h, 1, 0, 6 * GIB, 0);
}

/* --- who goes first --- */

static void first_goes_a_program_after_each_rest(void **state)
{
    struct harness *h = *state;

    begin_both(h);
    run_bursts(h, 3, 500 * MS, 4 * SECOND);
    assert_true(is_found(h, 1));
    assert_false(is_found(h, 0));
    assert_in_range(run_bursts(h, 20, 500 * MS, 4 * SECOND), 0, STOPPED * STEP);
}

/* A job that rests after long work is not shown as interactive. */
static void first_is_not_shown_of_a_program_with_long_bursts(void **state)
{
    struct harness *h = *state;

    say_state(h, 1, 0, 6 * GIB, 0);
    run_bursts(h, 5, 30 * SECOND, 20 * SECOND);
    assert_false(is_found(h, 1));
    say_state(h, 0, W, 8 * GIB, 0);
    for (int i = 0; i < 5; i++) {
        run_bursts(h, 1, 30 * SECOND, 20 * SECOND);
        assert_false(is_found(h, 1));
    }
}

/* 1 works for so long without a rest. Returns for how much of that 0 ran. */
static uint64_t works_on(struct harness *h, uint64_t work)
{
    uint64_t ran = 0;

    for (uint64_t at = 0; at < work; at += STEP)
        ran += (step_both(h, true) & 1) != 0 ? STEP : 0;
    return ran;
}

/* A training that begins with short bursts, while its data are loaded: the other one keeps its
 * floor, and half of the time in the end. */
static void first_goes_work_without_an_end_for_a_bounded_time(void **state)
{
    struct harness *h = *state;
    uint64_t ran;

    begin_both(h);
    run_bursts(h, 5, 500 * MS, 4 * SECOND);
    ran = works_on(h, 120 * SECOND);
    assert_in_range(ran, 120 * SECOND * 29 / 100 - 20 * SECOND, 120 * SECOND * 55 / 100);
    for (int who = 0; who < 2; who++)
        sched_member_find(h->client[who].client, h->client[who].state.uuid)
            ->party->bursts.age += 7200 * SECOND;
    ran = works_on(h, 200 * SECOND);
    assert_in_range(ran, 200 * SECOND * 45 / 100, 200 * SECOND * 55 / 100);
    assert_false(is_found(h, 1));
}

/* Requests of 1 pile up for minutes, beside 0 that began with it and has had less: they wait for
 * the account only, and get what the floor leaves, not half. The next pile fares no worse: a long
 * burst that waited does not say that the bursts of 1 are long. */
static void first_goes_a_pile_of_requests_in_turns_as_long_as_the_account_lasts(void **state)
{
    struct harness *h = *state;

    begin_both(h);
    run_bursts(h, 5, 500 * MS, 4 * SECOND);
    for (int pile = 0; pile < 3; pile++) {
        uint64_t waits = 0, longest = 0, ran = 0;

        for (uint64_t at = 0; at < 100 * SECOND; at += STEP) {
            const unsigned runs = step_both(h, true);

            device_of(h)->turns.switch_ns = 500 * MS; /* 33 s a turn */
            ran += (runs & 1) != 0 ? STEP : 0;
            waits = (runs & 2) != 0 ? 0 : waits + STEP;
            longest = sched_max(longest, waits);
        }
        assert_in_range(longest, 5 * SECOND, 16 * SECOND);
        assert_in_range(ran, 100 * SECOND * 30 / 100 - 20 * SECOND, 100 * SECOND * 35 / 100);
        for (uint64_t at = 0; at < 4 * SECOND; at += STEP)
            step_both(h, false);
    }
}

/* A notebook's cell ends the turn of 1, whose requests have piled up: 1 goes first again, and out of
 * the account, as before. */
static void first_goes_a_pile_after_its_turn_was_cut_out_of_the_account(void **state)
{
    struct harness *h = *state;
    struct bursts request = {.burst = 25, .rest = 200};
    struct sched_settings settings = h->sched->settings;
    uint64_t ran = 0, cell = 500 * MS;

    settings.share_ppm = 15000; /* the default: turns of 30 s */
    sched_set(h->sched, &settings, h->now);
    begin_of_user(h, 0, 1, 8 * GIB);
    begin_of_user(h, 1, 1, 6 * GIB);
    for (uint64_t at = 0; at < 60 * SECOND; at += STEP) {
        device_of(h)->turns.switch_ns = 450 * MS;
        step_training(h, 0);
        step_bursts(h, 1, &request);
        pass_time(h, STEP);
    }
    begin_of_user(h, 2, 1, 6 * GIB);
    say_state(h, 2, 0, 6 * GIB, 0);
    for (uint64_t at = 0; at < 600 * SECOND; at += STEP) {
        device_of(h)->turns.switch_ns = 450 * MS;
        step_training(h, 0);
        step_training(h, 1);
        if (at >= 20 * SECOND && cell != 0) {
            say_state(h, 2, W, 6 * GIB, h->client[2].state.resident);
            obey_target(h, 2);
            obey_target(h, 2);
            cell -= is_running(h, 2) ? STEP : 0;
        } else if (at >= 20 * SECOND) {
            say_state(h, 2, 0, 6 * GIB,
                      sched_min(h->client[2].state.resident, h->client[2].target.budget));
        }
        pass_time(h, STEP);
        ran += is_running(h, 0) ? STEP : 0;
    }
    assert_int_equal(cell, 0);
    assert_in_range(ran, 600 * SECOND * 25 / 100, 600 * SECOND * 35 / 100);
}

/* 1 waits with a burst that is young no more, and 0 has worked for far longer: 1 goes first
 * again when the account is full, and not only when a turn of 0, which may be long, is over. */
static void first_goes_an_old_burst_when_the_account_is_full(void **state)
{
    struct harness *h = *state;
    struct sched_party *other;
    uint64_t waits = 0, longest = 0, quantum;

    begin_both(h);
    for (int i = 0; i < 12000; i++)
        step_both(h, false);
    while (sched_party_is_young(party_of(h, 1), h->now))
        step_both(h, true);
    other = sched_member_find(h->client[0].client, h->client[0].state.uuid)->party;
    other->device->turns.switch_ns = 500 * MS;
    quantum = sched_device_quantum(other->device);
    other->fair.virtual_ns = other->device->fair.level - 2 * quantum;
    for (uint64_t at = 0; at < 3 * quantum; at += STEP) {
        waits = (step_both(h, true) & 2) != 0 ? 0 : waits + STEP;
        longest = sched_max(longest, waits);
    }
    assert_in_range(longest, 5 * STEP, quantum - 5 * SECOND);
}

/* The connection of a server is lost, or the daemon is another one: it goes first after its next rest. */
static void first_goes_a_program_that_came_back_once_it_has_rested(void **state)
{
    struct harness *h = *state;

    begin_both(h);
    for (int i = 0; i < 3000; i++)
        step_both(h, false);
    run_bursts(h, 3, 500 * MS, 4 * SECOND);
    end_client(h, 1);
    h->client[1].targets = 0;
    h->client[1].state.target_seq = 7;
    say_state(h, 1, 0, 6 * GIB, 0);
    run_bursts(h, 3, 500 * MS, 4 * SECOND);
    for (int i = 0; i < 20; i++) {
        device_of(h)->turns.switch_ns = 300 * MS; /* 20 s a turn */
        assert_in_range(run_bursts(h, 1, 500 * MS, 4 * SECOND), 0, 2ull * STOPPED * STEP);
    }
}

/* A training that comes late keeps the older one waiting for no longer than other turns. */
static void first_turn_of_a_late_training_is_no_longer_than_others(void **state)
{
    struct harness *h = *state;
    uint64_t waits = 0, longest = 0;

    begin_both(h);
    for (int i = 0; i < 30000; i++)
        step_both(h, false);
    device_of(h)->turns.switch_ns = 300 * MS; /* 20 s a turn */
    for (int i = 0; i < 24000; i++) {
        waits = (step_both(h, true) & 1) != 0 ? 0 : waits + STEP;
        longest = sched_max(longest, waits);
    }
    assert_in_range(longest, 5 * SECOND, 21 * SECOND);
}

/* Returns how long 2 waits, which comes when 1 has worked for a second. */
static uint64_t newcomer_waits(struct harness *h)
{
    uint64_t waited = 0;

    for (int i = 0; i < 100; i++)
        step_both(h, true);
    assert_true(is_running(h, 1));
    say_state(h, 2, W, 8 * GIB, 0);
    for (; !is_running(h, 2); waited += STEP) {
        obey_target(h, 2);
        step_both(h, true);
    }
    return waited;
}

/* A program in the midst of a burst is not stopped for a younger one, if its last burst was
 * short ... */
static void first_goes_nobody_before_a_burst_that_may_well_end(void **state)
{
    struct harness *h = *state;

    begin_both(h);
    for (int i = 0; i < 3000; i++)
        step_both(h, false);
    run_bursts(h, 3, 2 * SECOND, 4 * SECOND);
    device_of(h)->turns.switch_ns = 100 * MS;
    assert_in_range(newcomer_waits(h), 4 * SECOND, 10 * SECOND);
}

/* ... and is if it has never rested. */
static void first_goes_a_new_program_before_another_new_one(void **state)
{
    struct harness *h = *state;

    begin_both(h);
    for (int i = 0; i < 3000; i++)
        step_both(h, false);
    device_of(h)->turns.switch_ns = 100 * MS;
    assert_in_range(newcomer_waits(h), 0, SECOND);
}

/* --- how credit is spent and regained --- */

static void credit_falls_while_others_are_held_off_and_rises_while_they_run(void **state)
{
    struct harness *h = *state;
    const struct sched_device_share *share;
    double before;

    begin_both(h);
    share = &device_of(h)->share;
    run_bursts(h, 4, 500 * MS, 4 * SECOND);
    before = share->spare;
    for (int i = 0; i < 1000; i++)
        step_both(h, true);
    /* two programs: the other one keeps 0.6 of its half */
    assert_true(before - share->spare > 2.5e9 && before - share->spare < 3.5e9);
    before = share->spare;
    for (int i = 0; i < 300; i++)
        step_both(h, false);
    assert_true(share->spare - before > 0.6 * 3e9 && share->spare - before < 0.75 * 3e9);
    run_bursts(h, 1, 500 * MS, 100 * SECOND);
    assert_true(share->spare <= (double)SPARE_MOST);
}

/* Work for 1.2 of the device's time, in bursts: the other one has what the floor says, and the
 * bursts wait for no whole turn. */
static void credit_spent_the_others_keep_the_floor(void **state)
{
    struct harness *h = *state;
    uint64_t ran = 0, began;

    begin_both(h);
    run_bursts(h, 4, 500 * MS, 4 * SECOND);
    for (int i = 0; i < 100; i++)
        run_burst(h, 500 * MS, 50 * MS, &ran);
    ran = 0;
    began = h->now;
    for (int i = 0; i < 400; i++)
        run_burst(h, 500 * MS, 50 * MS, &ran);
    assert_true(ran >= (h->now - began) * 29 / 100);
}

/* It holds nobody off while it runs beside one of them: that one's turn is what the next one
 * waits for. */
static void credit_rises_while_one_of_the_others_runs_beside(void **state)
{
    struct harness *h = *state;
    double before, change = 0;
    int count = 0;

    say_state(h, 0, W, 8 * GIB, 0);
    obey_target(h, 0);
    say_state(h, 1, 0, 1 * GIB, 0);
    for (int i = 0; i < 6; i++) {
        for (int step = 0; step < 50; step++) {
            obey_target(h, 0);
            obey_target(h, 1);
            pass_time(h, STEP);
        }
        say_state(h, 1, GS_STATE_RUNNING, 1 * GIB, 1 * GIB);
        for (int step = 0; step < 300; step++) {
            obey_target(h, 0);
            pass_time(h, STEP);
        }
    }
    assert_true(is_found(h, 1));
    say_state(h, 2, W, 8 * GIB, 0);
    for (int step = 0; step < 6000; step++) { /* it has worked for long, too */
        obey_target(h, 0);
        obey_target(h, 2);
        pass_time(h, STEP);
    }
    for (int step = 0; step < 500; step++) {
        const bool beside = is_running(h, 1) && (is_running(h, 0) || is_running(h, 2));

        before = device_of(h)->share.spare;
        for (int who = 0; who < 3; who++)
            obey_target(h, who);
        pass_time(h, STEP);
        if (!beside || !is_running(h, 1) || !(is_running(h, 0) || is_running(h, 2)) ||
            device_of(h)->share.batch_queued != 1)
            continue;
        change += device_of(h)->share.spare - before;
        count++;
    }
    assert_in_range(count, 100, 500);
    assert_true(change > 0);
}

/* What the others are owed is not lost when a turn of theirs is ended and they compute on the
 * CPU for a moment. */
static void credit_of_one_that_is_interrupted_stays(void **state)
{
    struct harness *h = *state;
    struct sched_party *other;
    uint64_t owed;

    begin_both(h);
    run_bursts(h, 5, 500 * MS, 4 * SECOND);
    other = sched_member_find(h->client[0].client, h->client[0].state.uuid)->party;
    owed = 3 * sched_device_quantum(other->device);
    other->fair.virtual_ns = other->device->fair.level - owed;
    for (int i = 0; i < 20; i++)
        step_both(h, true);
    assert_true(is_running(h, 1));
    say_state(h, 0, 0, 8 * GIB,
              h->client[0].state.resident); /* between two calls when it stopped */
    run_bursts(h, 1, 300 * MS, 5 * STEP);
    assert_true(is_running(h, 0));
    assert_in_range(other->device->fair.level - other->fair.virtual_ns, owed - 10 * STEP, owed);
}

/* 0 ended another turn when it was new, and never rests. Its time counts for the others all the same,
 * so the account pays for the requests of 1 for good. */
static void credit_rises_while_a_training_runs_that_went_first(void **state)
{
    struct harness *h = *state;

    begin_both(h);
    run_bursts(h, 3, 500 * MS, 4 * SECOND);
    sched_member_find(h->client[0].client, h->client[0].state.uuid)->party->bursts.went = true;
    assert_in_range(run_bursts(h, 150, 500 * MS, 4 * SECOND), 0, STOPPED * STEP);
}

/* --- new programs --- */

static void new_one_goes_at_once_where_the_other_one_has_long_computed(void **state)
{
    struct harness *h = *state;
    uint64_t ran = 0;

    begin_both(h);
    for (int i = 0; i < 6000; i++)
        step_both(h, false);
    for (int i = 0; i < 5; i++) { /* also when that one is in the midst of a turn */
        assert_in_range(run_burst(h, 200 * MS, 0, &ran), 0, STOPPED * STEP);
        end_client(h, 1);
        say_state(h, 1, 0, 6 * GIB, 0);
        for (int steps = 0; steps < 5; steps++)
            step_both(h, false);
    }
}

static void new_one_waits_until_one_that_began_with_it_is_older_by_far(void **state)
{
    struct harness *h = *state;
    uint64_t ran = 0, older;

    begin_both(h);
    older = AGE_STEP * sched_device_switch(device_of(h));
    assert_true(older > 10 * STEP && quantum_of(h) > older + 10 * STEP);
    assert_in_range(run_burst(h, 200 * MS, STEP, &ran), older - STEP, older + 5 * STEP);
}

/* Of three that begin together the third ends the turn of the second, which has ended that of the first.
 * The first ends the turn of the third, once that is older by far than itself. */
static void new_one_that_was_stopped_waits_for_no_whole_turn_of_a_third(void **state)
{
    struct harness *h = *state;
    uint64_t ran[3] = {0}, older;

    for (int who = 0; who < 3; who++)
        say_state(h, who, W, 8 * GIB, 0);
    older = AGE_STEP * sched_device_switch(device_of(h));
    while (ran[0] <= older + 5 * STEP) {
        for (int who = 0; who < 3; who++) {
            step_training(h, who);
            ran[who] += is_running(h, who) ? STEP : 0;
        }
        pass_time(h, STEP);
        assert_in_range(ran[2], 0, 3 * older + 10 * STEP);
    }
    assert_in_range(ran[1], older - 5 * STEP, older + 5 * STEP);
    assert_in_range(ran[2], 3 * older - 5 * STEP, 3 * older + 10 * STEP);
}

/* A user who starts a program again and again: each is new, and ends a turn. */
static void new_ones_in_a_row_leave_the_floor(void **state)
{
    struct harness *h = *state;
    uint64_t ran = 0, began = 0;

    begin_both(h);
    for (int i = 0; i < 2000; i++)
        step_both(h, false);
    for (int i = 0; i < 500; i++) {
        if (i == 100) { /* what was saved up is spent */
            ran = 0;
            began = h->now;
        }
        run_burst(h, 300 * MS, 0, &ran);
        end_client(h, 1);
        say_state(h, 1, 0, 6 * GIB, 0);
    }
    assert_true(ran >= (h->now - began) * 27 / 100);
}

/* Four programs of user 1 with short bursts, who also has a small one that always computes and fits
 * beside all others: the training of user 2 keeps the floor. */
static void credit_spent_training_beside_a_small_holder_keeps_the_floor(void **state)
{
    struct harness *h = *state;
    struct bursts its[4];
    int count = 0;

    begin_of_user(h, 0, 1, GIB / 16);
    begin_of_user(h, 1, 2, 7 * GIB);
    for (int i = 0; i < 4; i++) {
        its[i] = (struct bursts){.burst = 100, .rest = 45};
        begin_of_user(h, 2 + i, 1, 7 * GIB);
    }
    for (int step = 0; step < 60000; step++) {
        for (int who = 0; who < 2; who++) {
            obey_target(h, who);
            obey_target(h, who);
        }
        for (int i = 0; i < 4; i++)
            step_bursts(h, 2 + i, &its[i]);
        pass_time(h, 20 * MS);
        count += step >= 30000 && is_running(h, 1);
    }
    assert_in_range(count, 30000 * 28 / 100, 30000);
}

/* Five trainings, a program with bursts of 3 s that are more than its user's share, and one of
 * another user with short ones, which come before those as long as they cannot be paid. */
static void credit_spent_by_one_user_is_not_waited_for_by_another(void **state)
{
    struct harness *h = *state;
    struct bursts heavy = {.burst = 150, .rest = 200}, light = {.burst = 5, .rest = 200};

    for (int who = 0; who < 7; who++)
        begin_of_user(h, who, 1 + (uint32_t)who, 7 * GIB);
    for (int step = 0; step < 60000; step++) {
        for (int who = 0; who < 5; who++) {
            obey_target(h, who);
            obey_target(h, who);
        }
        step_bursts(h, 5, &heavy);
        step_bursts(h, 6, &light);
        pass_time(h, 20 * MS);
        if (step < 10000)
            heavy.longest = light.longest = 0;
    }
    assert_true(is_found(h, 6));
    assert_in_range(heavy.longest, 400, 60000);
    assert_in_range(light.longest, 0, 150 + 2 * STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(first_goes_a_program_after_each_rest),
        scenario(first_is_not_shown_of_a_program_with_long_bursts),
        scenario(first_goes_work_without_an_end_for_a_bounded_time),
        scenario(first_goes_a_pile_of_requests_in_turns_as_long_as_the_account_lasts),
        scenario(first_goes_a_pile_after_its_turn_was_cut_out_of_the_account),
        scenario(first_goes_an_old_burst_when_the_account_is_full),
        scenario(first_goes_nobody_before_a_burst_that_may_well_end),
        scenario(first_goes_a_new_program_before_another_new_one),
        scenario(first_goes_a_program_that_came_back_once_it_has_rested),
        scenario(first_turn_of_a_late_training_is_no_longer_than_others),
        scenario(credit_falls_while_others_are_held_off_and_rises_while_they_run),
        scenario(credit_spent_the_others_keep_the_floor),
        scenario(credit_rises_while_one_of_the_others_runs_beside),
        scenario(credit_of_one_that_is_interrupted_stays),
        scenario(credit_rises_while_a_training_runs_that_went_first),
        scenario(credit_spent_training_beside_a_small_holder_keeps_the_floor),
        scenario(credit_spent_by_one_user_is_not_waited_for_by_another),
        scenario(new_one_goes_at_once_where_the_other_one_has_long_computed),
        scenario(new_one_waits_until_one_that_began_with_it_is_older_by_far),
        scenario(new_one_that_was_stopped_waits_for_no_whole_turn_of_a_third),
        scenario(new_ones_in_a_row_leave_the_floor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
