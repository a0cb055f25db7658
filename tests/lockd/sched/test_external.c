/* SPDX-License-Identifier: Apache-2.0
 *
 * test_external.c: memory on the card that is of no program the daemon knows: when it is believed,
 * and whom lies, movers and lost connections may harm.
 */
#include "tests/lockd/harness.h"

static void external_must_be_seen_by_two(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 1, 0, 0, 0);
    say_state(h, 0, 0, 0, 0);
    h->free_bytes = 8 * GIB;
    say_state(h, 1, 0, 0, 0);
    assert_true(device_of(h)->measure.external == 0);
    pass_time(h, SILENT); /* both are asked then, and have nothing to say of their own */
    assert_true(device_of(h)->measure.external == 2 * GIB);
    h->free_bytes = 9 * GIB;
    say_state(h, 1, 0, 0, 0);
    pass_time(h, 250 * MS);
    assert_true(device_of(h)->measure.external == GIB);
    end_client(h, 0);
    pass_time(h, 1000 * MS);
    h->free_bytes = 10 * GIB;
    say_state(h, 1, 0, 0, 0);
    assert_true(device_of(h)->measure.external == 0); /* a fall counts at once for one alone */
}

/* The doubt begins with the word of a program that is not sure; the answers say more, and nobody has
 * news afterwards, since as much is said to be pinned. */
static void answers_that_say_more_than_was_doubted_count(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    h->client[0].state.pinned = 3 * GIB;
    for (int i = 0; i < 4; i++)
        say_state(h, i % 2, R, 0, 0);
    pass_time(h, 1500 * MS);
    h->free_bytes = 2 * GIB;
    h->client[1].state.loose = 6 * GIB;
    say_state(h, 1, R, 0, 0);
    h->client[1].state.loose = 0;
    pass_time(h, 5000 * MS);
    assert_true(device_of(h)->measure.external == 8 * GIB);
}

/* A program that has freed memory which nobody knew asks before it refuses an allocation. */
static void capacity_that_may_rise_is_told_when_that_is_decided(void **state)
{
    struct harness *h = *state;

    for (int deaf = 0; deaf < 2; deaf++) {
        h->free_bytes = 10 * GIB;
        h->client[1].deaf = false;
        for (int i = 0; i < 4; i++)
            say_state(h, i % 2, 0, 0, 0);
        pass_time(h, 1500 * MS);
        h->free_bytes = 8 * GIB;
        say_state(h, 1, 0, 0, 0);
        pass_time(h, 1500 * MS);
        h->client[0].state.asked++;
        say_state(h, 0, 0, 0, 0);
        assert_int_equal(h->client[0].target.answered, h->client[0].state.asked);
        assert_in_range(h->client[0].target.capacity, 7 * GIB, 8 * GIB);
        h->client[1].deaf = deaf != 0;
        h->free_bytes = 10 * GIB;
        h->client[0].state.asked++;
        say_state(h, 0, 0, 0, 0);
        assert_int_equal(h->client[0].target.answered, h->client[0].state.asked - 1);
        for (int i = 0; i < 15; i++) {
            pass_time(h, 100 * MS);
            say_state(h, 0, 0, 0, 0);
        }
        assert_int_equal(h->client[0].target.answered, h->client[0].state.asked);
        assert_in_range(h->client[0].target.capacity, 9 * GIB, 10 * GIB);
    }
}

/* What programs say then is not used until all are back, so waiting would tell nobody more. */
static void question_after_a_restart_is_answered_at_once(void **state)
{
    struct harness *h = *state;

    h->client[0].state.target_seq = 5;
    h->free_bytes = 8 * GIB;
    say_state(h, 0, 0, 0, 0);
    pass_time(h, RESTART_SETTLE);
    h->client[0].state.asked++;
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->measure.restarted && h->now < RETURN_WINDOW);
    assert_int_equal(h->client[0].target.answered, h->client[0].state.asked);
}

/* A program that does not answer keeps it from being known for no longer than a second. */
static void external_the_other_does_not_answer_it_is_believed(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 1, 0, 0, 0);
    say_state(h, 0, 0, 0, 0);
    h->client[0].deaf = true;
    h->free_bytes = 8 * GIB;
    for (int i = 0; i < 25; i++) {
        say_state(h, 1, 0, 0, 0);
        pass_time(h, 100 * MS);
    }
    assert_true(device_of(h)->measure.external == 2 * GIB);
}

/* Two programs see what a third has just taken: it is asked as well, and what it says counts. If it
 * says nothing, they are believed a second later. */
static void memory_just_taken_is_not_external_though_two_see_it(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    for (int i = 0; i < 6; i++)
        say_state(h, i % 3, 0, 0, 0);
    h->client[0].deaf = true;
    h->free_bytes -= 2 * GIB;
    say_state(h, 1, 0, 0, 0);
    pass_time(h, EXTERNAL_CONFIRM);
    say_state(h, 2, 0, 0, 0);
    assert_true(device_of(h)->measure.external == 0);
    h->client[0].deaf = false;
    say_state(h, 0, 0, 2 * GIB, 2 * GIB);
    h->client[0].deaf = true;
    h->free_bytes -= GIB;
    for (int i = 0; i < 15; i++) {
        say_state(h, 1, 0, 0, 0);
        say_state(h, 2, 0, 0, 0);
        assert_true(device_of(h)->measure.external == 0 || i >= 10);
        pass_time(h, 100 * MS);
    }
    assert_true(device_of(h)->measure.external == GIB);
}

/* A client places what its budget allows and has not said so yet, and no figure of free memory
 * either; the other measures. */
static void allocation_under_way_is_not_external(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, R, 0, 0);
    assert_true(h->client[0].target.budget >= 4 * GIB);
    h->client[0].state.device_free = UINT64_MAX;
    h->free_bytes = 6 * GIB;
    for (int i = 0; i < 10; i++) {
        say_state(h, 1, W, 0, 0);
        pass_time(h, EXTERNAL_CONFIRM);
    }
    assert_true(device_of(h)->measure.external == 0);
    say_state(h, 0, R, 4 * GIB, 4 * GIB);
    assert_true(device_of(h)->measure.external == 0);
}

/* A newcomer sees memory in use that the other program is just taking, and that one cannot tell
 * when it is asked: what it says a moment later counts. */
static void word_of_a_single_program_does_not_decide_while_another_cannot_tell(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, R, 0, 0);
    say_state(h, 1, 0, 0, 0);
    say_state(h, 0, R | GS_STATE_MOVING, 7 * GIB, 0);
    h->free_bytes = 2 * GIB;
    say_state(h, 1, 0, 0, 0);
    pass_time(h, EXTERNAL_CONFIRM);
    say_state(h, 1, 0, 0, 0);
    assert_true(device_of(h)->measure.external == 0);
}

/* The budget of a program that has nothing under way does not hide what a newcomer's context takes. */
static void newcomers_context_is_known_soon(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, R, 0, 0);
    assert_true(h->client[0].target.budget >= 4 * GIB);
    h->free_bytes = 9 * GIB;
    say_state(h, 1, 0, 0, 0);
    pass_time(h, EXTERNAL_CONFIRM);
    assert_true(device_of(h)->measure.external == GIB);
}

/* The program that could tell has an allocation under way when it is asked: it is asked
 * again. */
static void programs_that_could_not_tell_are_asked_again(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 1, 0, 0, 0);
    h->client[0].state.device_free = UINT64_MAX;
    h->free_bytes = 9 * GIB;
    say_state(h, 1, 0, 0, 0);
    h->client[1].state.device_free = UINT64_MAX; /* nor can the first one now */
    pass_time(h, EXTERNAL_CONFIRM);
    assert_true(device_of(h)->measure.external == 0);
    h->client[0].state.device_free = h->free_bytes;
    pass_time(h, SILENT);
    assert_true(device_of(h)->measure.external == GIB);
}

/* More than all clients may hold is somebody else's: no need to look for long. */
static void rise_beyond_budgets_is_believed_soon(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    run_with(h, 0, 9 * GIB);
    h->free_bytes = 0;
    say_state(h, 0, R, 9 * GIB, 9 * GIB);
    pass_time(h, EXTERNAL_CONFIRM);
    say_state(h, 0, R, 9 * GIB, 9 * GIB);
    assert_true(device_of(h)->measure.external == GIB);
}

/* A newcomer measures before those that an earlier daemon knew have come back. */
static void new_daemon_takes_no_client_for_external(void **state)
{
    struct harness *h = *state;

    h->client[1].state.target_seq = 31;
    h->client[2].state.target_seq = 7;
    h->free_bytes = 2 * GIB;
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->measure.external == 8 * GIB);
    say_state(h, 1, R, 5 * GIB, 5 * GIB);
    say_state(h, 2, R, 3 * GIB, 3 * GIB);
    assert_true(device_of(h)->measure.external == 0);
    pass_time(h, RETURN_WINDOW);
    assert_true(h->client[0].target.capacity >= 9 * GIB);
    h->free_bytes = GIB;
    say_state(h, 1, R, 5 * GIB, 5 * GIB);
    say_state(h, 2, R, 3 * GIB, 3 * GIB);
    pass_time(h, SILENT);
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->measure.external == GIB);
}

static void moving_client_external_not_measured(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 0, 0, 0, 0);
    h->free_bytes = 2 * GIB;
    say_state(h, 0, W | GS_STATE_MOVING, 9 * GIB, 4 * GIB);
    assert_true(device_of(h)->measure.external == 0);
}

/* Both ran without a daemon, and find one long after it started. */
static void late_comers_bring_their_memory(void **state)
{
    struct harness *h = *state;

    pass_time(h, 10 * RETURN_WINDOW);
    h->free_bytes = 0;
    say_state(h, 0, R, 5 * GIB, 5 * GIB);
    assert_true(device_of(h)->measure.external == 5 * GIB);
    assert_true(device_of(h)->books.sum.resident == 5 * GIB);
    say_state(h, 1, R, 4 * GIB,
              4 * GIB); /* it was on the card already, and measured as external */
    assert_true(device_of(h)->measure.external == GIB);
    assert_true(device_of(h)->books.sum.resident == 9 * GIB);
}

/* Says that so much is free; whoever else is asked says what is so. */
static void lies_free(struct harness *h, int who, uint64_t free_bytes)
{
    h->client[who].state.device_free = free_bytes;
    harness_report(h, &h->client[who]);
    harness_take(h);
}

/* Two that run beside a program that says again and again that nothing is free, or all. */
static void lies_of_free_memory_stop_nobody(void **state)
{
    struct harness *h = *state;
    uint32_t targets;

    h->free_bytes = 9 * GIB;
    say_state(h, 7, 0, 0, 0);
    h->free_bytes = 9 * GIB;
    run_with(h, 0, 3 * GIB);
    h->free_bytes = 6 * GIB;
    say_state(h, 0, R, 3 * GIB, 3 * GIB);
    run_with(h, 1, 3 * GIB);
    h->free_bytes = 3 * GIB;
    say_state(h, 1, R, 3 * GIB, 3 * GIB);
    pass_time(h, 2000 * MS);
    assert_true(device_of(h)->measure.external == GIB);
    targets = h->client[0].targets;
    for (int i = 0; i < 1000; i++) {
        lies_free(h, 7, i % 200 < 100 ? 0 : 10 * GIB);
        for (int who = 0; who < 2; who++) {
            assert_true(has_run(h, who));
            assert_false(has_waiters(h, who));
            assert_true(h->client[who].target.budget >= 3 * GIB);
        }
        assert_true(device_of(h)->measure.external == GIB);
        pass_time(h, 10 * MS);
    }
    assert_true(h->client[0].targets - targets <= 50); /* is asked every 250 ms at most */
}

/* 7 moves for ever. Foreign programs come and go: what 7 may hold is uncertain, no more. */
static void program_that_moves_for_ever_hides_no_more_than_it_may_hold(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 10 * GIB;
    run_with(h, 0, 3 * GIB);
    h->free_bytes = 7 * GIB;
    say_state(h, 0, R, 3 * GIB, 3 * GIB);
    run_with(h, 7, GIB);
    h->client[7].state.device_free = UINT64_MAX;
    h->free_bytes = 6 * GIB;
    say_state(h, 0, R, 3 * GIB, 3 * GIB);
    h->client[7].state.device_free = UINT64_MAX;
    h->client[7].state.flags = R | GS_STATE_MOVING;
    harness_report(h, &h->client[7]);
    harness_take(h);
    for (int i = 0; i < 3; i++) {
        const uint64_t foreign = i == 1 ? 0 : 5 * GIB;
        const uint64_t unsure =
            sched_member_hold(sched_member_find(h->client[7].client, h->client[0].state.uuid));

        h->free_bytes = 6 * GIB - foreign;
        h->client[7].state.device_free = UINT64_MAX;
        say_state(h, 0, R, 3 * GIB, 3 * GIB);
        for (int ms = 0; ms < 3000; ms += 100) {
            pass_time(h, 100 * MS);
            h->client[7].state.device_free = UINT64_MAX;
            harness_report(h, &h->client[7]);
        }
        say_state(h, 0, R, 3 * GIB, 3 * GIB);
        assert_true(device_of(h)->measure.external <= foreign + GIB);
        assert_true(device_of(h)->measure.external + unsure >= foreign + GIB);
    }
}

/* The connection ends; the process has its memory still. */
static void loses_connection(struct harness *h, int who)
{
    const uint32_t seq = h->client[who].target.seq;

    end_client(h, who);
    h->client[who].state.target_seq = seq;
}

static void two_run(struct harness *h)
{
    h->free_bytes = 10 * GIB;
    pass_time(h, 10 * RETURN_WINDOW);
    run_with(h, 0, 4 * GIB);
    h->free_bytes = 6 * GIB;
    say_state(h, 0, R, 4 * GIB, 4 * GIB);
    run_with(h, 1, 3 * GIB);
    h->free_bytes = 3 * GIB;
    say_state(h, 1, R, 3 * GIB, 3 * GIB);
    pass_time(h, 2 * SILENT);
    assert_int_equal(device_of(h)->measure.external, 0);
}

/* Its descriptors are closed again and again: what it holds is its own all the time, whatever
 * the other one measures meanwhile. */
static void connection_that_flaps_takes_no_memory_from_others(void **state)
{
    for (int pause = 0; pause < 2; pause++) { /* quicker than anybody is asked, and slower */
        struct harness *h = *state;
        uint64_t capacity;

        two_run(h);
        capacity = device_of(h)->space.capacity;
        for (int i = 0; i < 60; i++) {
            loses_connection(h, 0);
            say_state(h, 1, R, 3 * GIB, 3 * GIB);
            pass_time(h, pause ? 2 * EXTERNAL_CONFIRM : MS / 10);
            say_state(h, 1, R, 3 * GIB, 3 * GIB);
            assert_true(h->client[1].target.capacity == capacity);
            say_state(h, 0, R, 4 * GIB, 4 * GIB);
            assert_int_equal(device_of(h)->books.sum.resident, 7 * GIB);
            pass_time(h, MS / 20);
            assert_true(h->client[1].target.capacity == capacity);
        }
        for (int i = 0; i < 100; i++) {
            pass_time(h, 100 * MS);
            say_state(h, 1, R, 3 * GIB, 3 * GIB);
            say_state(h, 0, R, 4 * GIB, 4 * GIB);
            assert_int_equal(device_of(h)->measure.external, 0);
            assert_true(h->client[1].target.capacity == capacity);
        }
        end_client(h, 0);
        end_client(h, 1);
    }
}

/* The program goes on without us: a while later its memory is external, though nobody says
 * anything unasked. */
static void lost_connection_that_stays_away_is_external(void **state)
{
    struct harness *h = *state;

    two_run(h);
    loses_connection(h, 0);
    say_state(h, 1, R, 3 * GIB, 3 * GIB);
    pass_time(h, SILENT);
    say_state(h, 1, R, 3 * GIB, 3 * GIB);
    assert_int_equal(device_of(h)->measure.external, 0);
    pass_time(h, 2 * RETURN_WINDOW + 2 * SILENT);
    assert_int_equal(device_of(h)->measure.external, 4 * GIB);
    say_state(h, 0, R, 4 * GIB, 4 * GIB); /* it is back at last */
    assert_int_equal(device_of(h)->measure.external, 0);
    assert_int_equal(device_of(h)->books.sum.resident, 7 * GIB);
}

/* The program has ended, and its memory is somebody else's at once: that is hidden no
 * longer. */
static void program_that_ended_hides_nothing_for_long(void **state)
{
    struct harness *h = *state;

    two_run(h);
    for (int i = 0; i < 50; i++) { /* one short program after the other */
        end_client(h, 0);
        h->free_bytes = 5 * GIB;
        say_state(h, 1, R, 3 * GIB, 3 * GIB);
        run_with(h, 0, 2 * GIB);
        h->free_bytes = 3 * GIB;
        say_state(h, 0, R, 2 * GIB, 2 * GIB);
        pass_time(h, 500 * MS);
    }
    pass_time(h, 2 * RETURN_WINDOW + 2 * SILENT);
    assert_int_equal(device_of(h)->measure.external, 2 * GIB);
}

/* What was handed over and nobody took is released, and until then nobody's, whoever measures it. */
static void memory_that_is_being_released_is_not_external(void **state)
{
    struct harness *h = *state;

    two_run(h);
    say_state(h, 0, R, 4 * GIB, 2 * GIB);
    sched_releasing(h->sched, h->client[0].state.uuid, 2 * GIB, h->now);
    for (unsigned i = 0; i < 3; i++) {
        pass_time(h, EXTERNAL_CONFIRM);
        say_state(h, 1, R, 3 * GIB, 3 * GIB);
        say_state(h, 0, R, 4 * GIB, 2 * GIB);
        assert_int_equal(device_of(h)->measure.external, 0);
    }
    pass_time(h, 2 * RETURN_WINDOW + 2 * SILENT); /* it is still in use: somebody has it */
    assert_int_equal(device_of(h)->measure.external, 2 * GIB);
}

/* Some is released at each hand-off, and is free at once: that does not hide for ever what somebody else
 * takes meanwhile. */
static void memory_that_is_released_again_and_again_hides_nothing_for_long(void **state)
{
    struct harness *h = *state;

    two_run(h);
    h->free_bytes = GIB; /* 2 GiB are somebody's */
    for (unsigned i = 0; i < 10; i++) {
        sched_releasing(h->sched, h->client[0].state.uuid, 2 * GIB, h->now);
        say_state(h, 1, R, 3 * GIB, 3 * GIB);
        say_state(h, 0, R, 4 * GIB, 4 * GIB);
        pass_time(h, 700 * MS);
    }
    assert_int_equal(device_of(h)->measure.external, 2 * GIB);
}

/* Managed memory that nobody counts is on the card, and the other program measures: none of it is external, but
 * more than that is. */
static void managed_memory_that_is_not_counted_is_not_external(void **state)
{
    struct harness *h = *state;

    two_run(h);
    h->client[0].state.loose = 2 * GIB;
    say_state(h, 0, R, 4 * GIB, 4 * GIB);
    h->free_bytes = GIB;
    for (unsigned i = 0; i < 30; i++) {
        say_state(h, 1, R, 3 * GIB, 3 * GIB);
        pass_time(h, 100 * MS);
    }
    assert_int_equal(device_of(h)->measure.external, 0);
    h->free_bytes = 0;
    for (unsigned i = 0; i < 30; i++) {
        say_state(h, 1, R, 3 * GIB, 3 * GIB);
        pass_time(h, 100 * MS);
    }
    assert_int_equal(device_of(h)->measure.external, GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(external_must_be_seen_by_two),
        scenario(answers_that_say_more_than_was_doubted_count),
        scenario(capacity_that_may_rise_is_told_when_that_is_decided),
        scenario(question_after_a_restart_is_answered_at_once),
        scenario(external_the_other_does_not_answer_it_is_believed),
        scenario(memory_just_taken_is_not_external_though_two_see_it),
        scenario(allocation_under_way_is_not_external),
        scenario(word_of_a_single_program_does_not_decide_while_another_cannot_tell),
        scenario(newcomers_context_is_known_soon),
        scenario(programs_that_could_not_tell_are_asked_again),
        scenario(rise_beyond_budgets_is_believed_soon),
        scenario(new_daemon_takes_no_client_for_external),
        scenario(moving_client_external_not_measured),
        scenario(late_comers_bring_their_memory),
        scenario(lies_of_free_memory_stop_nobody),
        scenario(connection_that_flaps_takes_no_memory_from_others),
        scenario(lost_connection_that_stays_away_is_external),
        scenario(program_that_ended_hides_nothing_for_long),
        scenario(memory_that_is_being_released_is_not_external),
        scenario(memory_that_is_released_again_and_again_hides_nothing_for_long),
        scenario(managed_memory_that_is_not_counted_is_not_external),
        scenario(program_that_moves_for_ever_hides_no_more_than_it_may_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
