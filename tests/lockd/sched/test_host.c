/* SPDX-License-Identifier: Apache-2.0
 *
 * test_host.c: who may have how much host memory.
 */
#include "tests/lockd/harness.h"

static void has_on_host(struct harness *h, int who, uint64_t used, uint64_t wanted)
{
    struct gs_wire_state *state = &h->client[who].state;

    state->host_used = used;
    state->host_wanted = wanted;
    say_state(h, who, state->flags, state->demand, state->resident);
}

static void machine_has(struct harness *h, uint64_t bytes)
{
    sched_host(h->sched, bytes, h->now);
    harness_take(h);
}

static void limit_all(struct harness *h, uint64_t bytes)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.host = bytes;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
}

static uint64_t read_host_budget(const struct harness *h, int who)
{
    return h->client[who].target.host_budget;
}

static void host_nothing_known_no_limit(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    assert_true(read_host_budget(h, 0) == UINT64_MAX);
}

/* The first target that a newcomer gets, whatever follows. */
static struct gs_wire_target first_target(struct harness *h, int who, uint64_t demand)
{
    struct harness_client *c = &h->client[who];
    struct sched_send send = {0};

    c->client = sched_client_add(h->sched, c);
    c->state.device_total = h->total;
    c->state.device_free = UINT64_MAX;
    c->state.flags = W;
    c->state.demand = demand;
    harness_report(h, c);
    while (send.owner != c)
        assert_true(sched_next_send(h->sched, &send));
    return send.target;
}

static void host_newcomer_has_its_part_in_its_first_target(void **state)
{
    struct harness *h = *state;

    machine_has(h, 100 * GIB);
    assert_in_range(first_target(h, 0, 4 * GIB).host_budget, 4 * GIB, 80 * GIB);
    harness_take(h); /* the next one comes a moment after the scheduler looked at all */
    assert_in_range(first_target(h, 1, 4 * GIB).host_budget, 4 * GIB, 80 * GIB);
}

static void host_plenty_each_has_room_for_all_its_memory(void **state)
{
    struct harness *h = *state;

    machine_has(h, 100 * GIB);
    run_with(h, 0, 4 * GIB);
    run_with(h, 1, 5 * GIB);
    pass_time(h, 100 * MS);
    assert_true(read_host_budget(h, 0) >= 4 * GIB);
    assert_true(read_host_budget(h, 1) >= 5 * GIB);
    assert_true(read_host_budget(h, 0) + read_host_budget(h, 1) <= 80 * GIB);
}

static void host_scarce_memory_off_the_device_goes_first(void **state)
{
    struct harness *h = *state;

    limit_all(h, 8 * GIB);
    run_with(h, 0, 9 * GIB);
    has_on_host(h, 0, 6 * GIB, 6 * GIB); /* copies of what is on the card */
    say_state(h, 1, W, 7 * GIB, 0);
    has_on_host(h, 1, GIB, 7 * GIB); /* all its memory is off the card */
    pass_time(h, 100 * MS);
    assert_true(read_host_budget(h, 0) < 6 * GIB); /* it drops copies */
    has_on_host(h, 0, read_host_budget(h, 0), 6 * GIB);
    pass_time(h, 100 * MS);
    has_on_host(h, 1, GIB, 7 * GIB);
    pass_time(h, 100 * MS);
    assert_in_range(read_host_budget(h, 1), 6 * GIB, 8 * GIB);
    assert_true(read_host_budget(h, 0) + read_host_budget(h, 1) <= 8 * GIB);
}

static void host_bytes_still_in_use_are_not_given_twice(void **state)
{
    struct harness *h = *state;

    limit_all(h, 8 * GIB);
    run_with(h, 0, 9 * GIB);
    has_on_host(h, 0, 6 * GIB, 6 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, 100 * MS);
    assert_true(read_host_budget(h, 1) <=
                2 * GIB + 64 * MIB); /* 0 has not dropped anything yet */
}

static void host_limit_is_lifted_budgets_are(void **state)
{
    struct harness *h = *state;

    limit_all(h, 2 * GIB);
    run_with(h, 0, 9 * GIB);
    pass_time(h, 100 * MS);
    assert_true(read_host_budget(h, 0) <= 2 * GIB);
    limit_all(h, LOCKD_AUTO);
    pass_time(h, 100 * MS);
    assert_true(read_host_budget(h, 0) == UINT64_MAX);
}

static void host_program_leaves_others_get_its_part(void **state)
{
    struct harness *h = *state;

    limit_all(h, 8 * GIB);
    run_with(h, 0, 9 * GIB);
    has_on_host(h, 0, 6 * GIB, 9 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    has_on_host(h, 1, 0, 7 * GIB);
    pass_time(h, 100 * MS);
    end_client(h, 0);
    pass_time(h, 100 * MS);
    assert_true(read_host_budget(h, 1) >= 7 * GIB);
    assert_true(sched_host_info(h->sched).used == 0);
}

/* 2^48 bytes are on nobody's machine: who says so takes nothing from the others, and makes what
 * there is no more than a few times larger. */
static void host_lie_takes_nothing_from_the_others(void **state)
{
    struct harness *h = *state;

    machine_has(h, 64 * GIB);
    run_with(h, 0, 6 * GIB);
    say_state(h, 7, 0, MIB, 0);
    has_on_host(h, 7, 1ull << 48, 1ull << 48);
    for (int i = 0; i < 100; i++) {
        machine_has(h, 64 * GIB);
        pass_time(h, 1000 * MS);
        has_on_host(h, 7, 1ull << 48, 1ull << 48);
    }
    say_state(h, 1, W, 6 * GIB, 0);
    pass_time(h, 1000 * MS);
    assert_true(sched_host_info(h->sched).total <= 5 * (64 * GIB));
    assert_true(read_host_budget(h, 0) >= 6 * GIB);
    assert_true(read_host_budget(h, 1) >= 6 * GIB);
    end_client(h, 7);
    machine_has(h, 64 * GIB);
    assert_true(sched_host_info(h->sched).total <= 64 * GIB);
}

/* An honest program of an earlier daemon comes back with what it has. */
static void host_bytes_that_a_program_comes_with_are_counted(void **state)
{
    struct harness *h = *state;

    machine_has(h, GIB);
    h->client[0].state.target_seq = 7;
    h->client[0].state.host_used = h->client[0].state.host_wanted = 10 * GIB;
    say_state(h, 0, 0, 10 * GIB, 0);
    pass_time(h, 500 * MS); /* others may come back too */
    assert_true(sched_host_info(h->sched).used == 10 * GIB);
    assert_true(read_host_budget(h, 0) >= 8 * GIB);
}

/* The limit bounds what is given; the figure is what is there. */
static void host_more_than_the_limit_is_shown(void **state)
{
    struct harness *h = *state;

    machine_has(h, 64 * GIB);
    limit_all(h, 16 * MIB);
    run_with(h, 0, GIB);
    has_on_host(h, 0, 192 * MIB, GIB);
    assert_true(sched_host_info(h->sched).used == 192 * MIB);
    end_client(h, 0);
    assert_true(sched_host_info(h->sched).used == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(host_nothing_known_no_limit),
        scenario(host_newcomer_has_its_part_in_its_first_target),
        scenario(host_plenty_each_has_room_for_all_its_memory),
        scenario(host_scarce_memory_off_the_device_goes_first),
        scenario(host_bytes_still_in_use_are_not_given_twice),
        scenario(host_limit_is_lifted_budgets_are),
        scenario(host_program_leaves_others_get_its_part),
        scenario(host_lie_takes_nothing_from_the_others),
        scenario(host_bytes_that_a_program_comes_with_are_counted),
        scenario(host_more_than_the_limit_is_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
