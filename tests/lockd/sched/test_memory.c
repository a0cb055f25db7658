/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c: who holds how much: capacity, growth, victims, the driver's own
 * shortages, a new daemon.
 */
#include "tests/lockd/harness.h"

/* The driver had no memory for a turn: others make room and wait, but nobody is told that there
 * is less to be had. */
static void shortage_refuses_nobody(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 5 * GIB);
    run_with(h, 1, 3 * GIB);
    h->client[1].state.short_bytes = 3 * GIB;
    say_state(h, 1, R | GS_STATE_SHORT, 3 * GIB, 3 * GIB);
    assert_true(device_of(h)->space.capacity == 7 * GIB);
    assert_true(h->client[0].target.capacity == 10 * GIB);
    assert_true(h->client[1].target.capacity == 10 * GIB);
}

/* Needs more than the card has beside what cannot be moved: passed over after a second, not
 * ten.
 */
static void short_holder_that_does_not_fit_is_passed_over_soon(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 6 * GIB;
    say_state(h, 0, 0, 0, 0);
    h->free_bytes = h->client[0].state.device_free = UINT64_MAX;
    run_with(h, 0, 4 * GIB);
    say_state(h, 1, W, 8 * GIB, 0);
    say_state(h, 0, GS_STATE_RUNNING, 4 * GIB, 4 * GIB); /* idle: gives back */
    say_state(h, 0, 0, 4 * GIB, 4 * GIB);
    say_state(h, 0, W, 4 * GIB, 0);
    assert_true(has_run(h, 1));
    h->client[1].state.short_bytes = GIB;
    say_state(h, 1, W | GS_STATE_SHORT, 8 * GIB, 5 * GIB);
    pass_time(h, REPEAT / 2);
    assert_false(has_run(h, 0));
    pass_time(h, REPEAT);
    assert_false(has_run(h, 1));
    h->client[1].state.short_bytes = 0;
    say_state(h, 1, W, 8 * GIB, 0);
    assert_true(has_run(h, 0));
}

static void runner_grows_idle_memory_makes_room(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 5 * GIB);
    say_state(h, 0, 0, 5 * GIB, 5 * GIB);
    run_with(h, 1, 5 * GIB);
    say_state(h, 1, W, 8 * GIB, 5 * GIB);
    assert_false(has_run(h, 0));
    assert_true(has_run(h, 1));
    say_state(h, 0, 0, 5 * GIB, 5 * GIB); /* stopped: now it is asked for the shortfall */
    assert_true(h->client[0].target.budget == 2 * GIB);
    say_state(h, 0, 0, 5 * GIB, 2 * GIB);
    assert_true(h->client[1].target.budget == 8 * GIB);
}

static void runner_grows_beside_another_runner_it_queues(void **state)
{
    struct harness *h = *state;

    go_in_turn(h, 2);
    run_with(h, 0, 5 * GIB);
    run_with(h, 1, 5 * GIB);
    say_state(h, 1, W, 8 * GIB, 5 * GIB);
    assert_true(has_run(h, 0));
    assert_false(has_run(h, 1));
    pass_time(h, quantum_of(h));
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 5 * GIB, 5 * GIB);
    assert_true(has_run(h, 1));
}

static void two_idle_victims_least_recently_run_goes_first(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 3 * GIB);
    run_with(h, 1, 3 * GIB);
    say_state(h, 1, 0, 3 * GIB, 3 * GIB);
    pass_time(h, MS);
    say_state(h, 0, 0, 3 * GIB, 3 * GIB); /* ran later than 1 */
    pause_all(h, true);                   /* so that both have stopped */
    harness_take(h);
    say_state(h, 2, W, 6 * GIB, 0);
    assert_true(has_run(h, 2));
    assert_true(h->client[0].target.budget >= 3 * GIB);
    assert_true(h->client[1].target.budget == 1 * GIB);
}

static void waiting_victims_last_in_queue_leaves_first(void **state)
{
    struct harness *h = *state;

    /* all three have run and keep something; 1 waits before 2 */
    run_with(h, 0, 4 * GIB);
    run_with(h, 1, 3 * GIB);
    run_with(h, 2, 3 * GIB);
    say_state(h, 1, 0, 3 * GIB, 3 * GIB);
    say_state(h, 2, 0, 3 * GIB, 3 * GIB);
    say_state(h, 0, W, 10 * GIB, 4 * GIB); /* grows: needs all */
    say_state(h, 1, 0, 3 * GIB, 3 * GIB);
    say_state(h, 2, 0, 3 * GIB, 3 * GIB);
    assert_true(has_run(h, 0));
    say_state(h, 1, W, 3 * GIB, 3 * GIB);
    say_state(h, 2, W, 3 * GIB, 3 * GIB);
    say_state(h, 0, W, 5 * GIB, 4 * GIB); /* and thinks better of it */
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 4 * GIB);
}

static void victim_has_not_stopped_keeps_its_memory(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    run_with(h, 1, 4 * GIB);
    sched_pause(h->client[0].client, true, h->now);
    harness_take(h);
    say_state(h, 1, W, 8 * GIB, 4 * GIB);
    assert_true(h->client[0].target.budget >= 4 * GIB); /* told to stop, work still under way */
    say_state(h, 0, W, 4 * GIB, 4 * GIB);
    assert_true(h->client[0].target.budget == 2 * GIB);
}

static void program_larger_than_the_capacity_runs_alone(void **state)
{
    struct harness *h = *state;
    const struct sched_settings reserve = {
        .quantum_ns = LOCKD_AUTO, .idle_ns = LOCKD_AUTO, .reserve = 2 * GIB};

    go_in_turn(h, 2);
    sched_set(h->sched, &reserve, h->now);
    run_with(h, 0, 3 * GIB);
    say_state(h, 1, W, 9 * GIB, 0); /* capacity 8, device 10 */
    assert_int_equal(condition_of(h, 1), GS_CONDITION_DOES_NOT_FIT);
    pass_time(h, quantum_of(h));
    say_state(h, 0, W, 3 * GIB, 3 * GIB);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget <= 8 * GIB);
    say_state(h, 0, W, 3 * GIB, 0);
    assert_true(h->client[1].target.budget == 9 * GIB); /* everybody else is out */
    say_state(h, 1, R, 9 * GIB, 9 * GIB);
    assert_int_equal(condition_of(h, 1), GS_CONDITION_RUNS);
}

/* 0 idles at its prompt with 200 of 512 MiB; 1 asks for about all of it, before or after it
 * became known that contexts take some of it. */
static void asks_for_all(struct harness *h, uint64_t demand, uint64_t contexts, bool known)
{
    const uint64_t room = 512 * MIB - contexts;
    int asked = -1;

    h->total = 512 * MIB;
    h->free_bytes = known ? room : UINT64_MAX;
    say_state(h, 1, 0, 0, 0);
    say_state(h, 0, W, 200 * MIB, 0);
    h->free_bytes = known ? room - 200 * MIB : UINT64_MAX;
    say_state(h, 0, R, 200 * MIB, 200 * MIB);
    say_state(h, 1, W, demand, 0);
    for (int i = 0; i < 100 && !is_running(h, 1); i++) {
        const uint64_t has = h->client[0].state.resident;

        h->free_bytes = room - has - h->client[1].state.resident;
        if (!has_run(h, 0)) {
            asked = asked < 0 ? i : asked;
            say_state(h, 0, 0, 200 * MIB, sched_min(has, h->client[0].target.budget));
        } else if (has_waiters(h, 0)) {
            say_state(h, 0, GS_STATE_RUNNING, 200 * MIB, has);
        }
        h->free_bytes = room - h->client[0].state.resident - h->client[1].state.resident;
        obey_target(h, 1);
        pass_time(h, 10 * MS);
    }
    assert_in_range(asked, 0, 10);
    assert_true(is_running(h, 1));
    end_client(h, 0);
    end_client(h, 1);
}

static void idle_holder_gives_way_to_any_program_that_fits(void **state)
{
    for (uint64_t contexts = 0; contexts <= 12 * MIB; contexts += 2 * MIB) {
        for (uint64_t demand = 450 * MIB; demand <= 512 * MIB - contexts; demand += 2 * MIB) {
            asks_for_all(*state, demand, contexts, false);
            asks_for_all(*state, demand, contexts, true);
        }
    }
}

static void program_larger_than_the_device_others_do_not_suffer(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 12 * GIB, 0);
    pass_time(h, 10 * quantum_of(h));
    assert_true(has_run(h, 0));
    assert_false(has_waiters(h, 0));
    assert_int_equal(condition_of(h, 1), GS_CONDITION_DOES_NOT_FIT);
}

static void driver_short_victims_make_room(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    say_state(h, 0, 0, 4 * GIB, 4 * GIB);
    say_state(h, 1, W, 6 * GIB, 0);
    assert_true(has_run(h, 1));
    h->client[1].state.short_bytes = GIB;
    say_state(h, 1, W | GS_STATE_SHORT, 6 * GIB, 5 * GIB);
    assert_true(device_of(h)->space.capacity == 9 * GIB);
    say_state(h, 0, 0, 4 * GIB, 4 * GIB);
    assert_true(h->client[0].target.budget == 3 * GIB);
    say_state(h, 1, W | GS_STATE_SHORT, 6 * GIB,
              5 * GIB); /* the same shortage is not counted twice */
    assert_true(device_of(h)->space.capacity == 9 * GIB);
    h->client[1].state.short_bytes = 0;
    say_state(h, 1, R, 6 * GIB, 6 * GIB);
    pass_time(h, 20 * GRACE);
    assert_true(device_of(h)->space.capacity == 10 * GIB);
}

static void new_daemon_adopts_programs_that_run(void **state)
{
    struct harness *h = *state;

    h->client[0].state.target_seq = 57;
    h->client[1].state.target_seq = 31;
    say_state(h, 2, W, 8 * GIB, 0); /* a newcomer is first, nothing is known yet */
    say_state(h, 0, R, 7 * GIB, 7 * GIB);
    assert_int_equal(h->client[0].targets, 0); /* it waits for the others */
    pass_time(h, 100 * MS);
    say_state(h, 1, W, 7 * GIB, 3 * GIB);
    pass_time(h, RESTART_SETTLE);
    assert_true(has_run(h, 0));
    assert_int_equal(h->client[0].target.seq, 58);
    assert_false(has_run(h, 1));
    assert_int_equal(h->client[1].target.seq, 32);
    assert_true(h->client[1].target.budget <= 3 * GIB);
    assert_true(has_waiters(h, 0));
}

static void number_from_the_future_is_no_echo(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, GIB, 0);
    h->client[0].deaf = true;
    h->client[0].state.target_seq = 4000000000u;
    say_state(h, 0, W, GIB, 0);
    assert_int_equal(
        lockd_entry(device_of(h)->members.next, struct sched_member, of_device)->report.echoed,
        1);
}

static void too_many_devices_refused(void **state)
{
    struct harness *h = *state;
    struct gs_wire_state one = {.device_total = GIB, .device_free = UINT64_MAX};
    struct sched_client *client = sched_client_add(h->sched, &h->client[0]);

    for (int i = 0; i < LOCKD_DEVICES_PER_CLIENT; i++) {
        one.uuid[3] = (uint8_t)i;
        assert_int_equal(sched_state(client, &one, h->now), 0);
    }
    one.uuid[3] = LOCKD_DEVICES_PER_CLIENT;
    assert_int_equal(sched_state(client, &one, h->now), -24 /* EMFILE */);
    sched_client_gone(client, h->now);
    assert_true(lockd_list_empty(&h->sched->devices));
}

static void room_comes_back_all_run_again(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    assert_true(device_of(h)->turns.leases);
    say_state(h, 0, R, 3 * GIB, 3 * GIB);
    assert_false(device_of(h)->turns.leases);
    assert_true(has_run(h, 0) && has_run(h, 1));
    say_state(h, 0, R, 3 * GIB, 3 * GIB); /* echoes the smaller budget */
    assert_true(h->client[1].target.budget >= 7 * GIB);
    pass_time(h, TELL_PAUSE);
    assert_false(has_waiters(h, 0));
}

/* By its own limits 0 has no host memory for what it has: 1 does not fit beside that. It gets no part of
 * the card, which it could not give back either, and hears that its wait is to end. */
static void memory_that_cannot_leave_is_no_room(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 6 * GIB);
    h->client[0].state.stays = 6 * GIB;
    say_state(h, 0, R, 6 * GIB, 6 * GIB);
    say_state(h, 1, W, 6 * GIB, 0);
    pass_time(h, 10 * quantum_of(h));
    assert_true(has_run(h, 0));
    assert_false(has_run(h, 1));
    assert_true(h->client[1].target.budget == 0);
    assert_true((h->client[1].target.flags & GS_TARGET_FULL) != 0);
    assert_int_equal(condition_of(h, 1), GS_CONDITION_DOES_NOT_FIT);
    say_state(h, 2, W, 3 * GIB, 0); /* this one fits beside it */
    assert_true(has_run(h, 2) && has_run(h, 0));
    say_state(h, 2, 0, 0, 0);
    h->client[0].state.stays = 2 * GIB;
    say_state(h, 0, R, 6 * GIB, 6 * GIB);
    assert_true((h->client[1].target.flags & GS_TARGET_FULL) == 0);
    pass_time(h, 10 * quantum_of(h));
    assert_false(has_run(h, 0)); /* what can leave is room */
    assert_true(h->client[0].target.budget >= 2 * GIB);
    say_state(h, 0, W, 6 * GIB, 2 * GIB);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget >= 6 * GIB);
}

/* What it has when its turn ends too early stays as well: it alone may go on. */
static void incomplete_memory_that_cannot_leave_comes_first(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, 8 * GIB, 0);
    h->client[0].state.stays = 5 * GIB;
    say_state(h, 0, W | GS_STATE_MOVING, 8 * GIB, 5 * GIB);
    say_state(h, 1, W, 8 * GIB, 0);
    pass_time(h, 100 * quantum_of(h));
    assert_false(has_run(h, 1));
    assert_true(h->client[1].target.budget == 0);
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 8 * GIB);
    say_state(h, 0, R | GS_STATE_MOVING, 8 * GIB, 5 * GIB); /* not stopped, and lacks memory */
    assert_int_equal(sched_client_why(h->client[0].client, h->client[0].state.uuid, h->now).why,
                     GS_WHY_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(shortage_refuses_nobody),
        scenario(short_holder_that_does_not_fit_is_passed_over_soon),
        scenario(runner_grows_idle_memory_makes_room),
        scenario(runner_grows_beside_another_runner_it_queues),
        scenario(two_idle_victims_least_recently_run_goes_first),
        scenario(waiting_victims_last_in_queue_leaves_first),
        scenario(victim_has_not_stopped_keeps_its_memory),
        scenario(program_larger_than_the_capacity_runs_alone),
        scenario(idle_holder_gives_way_to_any_program_that_fits),
        scenario(program_larger_than_the_device_others_do_not_suffer),
        scenario(driver_short_victims_make_room),
        scenario(new_daemon_adopts_programs_that_run),
        scenario(number_from_the_future_is_no_echo),
        scenario(too_many_devices_refused),
        scenario(room_comes_back_all_run_again),
        scenario(memory_that_cannot_leave_is_no_room),
        scenario(incomplete_memory_that_cannot_leave_comes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
