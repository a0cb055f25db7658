/* SPDX-License-Identifier: Apache-2.0
 *
 * test_totals.c: what all programs of a device did, as metrics show it: it stays when they end,
 * is not counted twice, and goes by what they can have done. And the buckets of durations.
 */
#include "tests/lockd/harness.h"

#include "lockd/protocol/figures.h"

#define BUSY (GS_STATE_RUNNING | GS_STATE_WANT)

struct found {
    struct gs_wire_totals totals;
    uint32_t count;
};

static void take_totals(void *context, const struct gs_wire_totals *totals)
{
    struct found *found = context;

    found->totals = *totals;
    found->count++;
}

static struct gs_wire_totals totals_now(struct harness *h)
{
    struct found found = {.count = 0};

    sched_visit_totals(h->sched, take_totals, &found, h->now);
    assert_int_equal(found.count, 1);
    return found.totals;
}

static uint64_t count_of(struct gs_wire_histogram histogram)
{
    uint64_t count = 0;

    for (size_t i = 0; i <= GS_HISTOGRAM_BOUNDS; i++)
        count += histogram.count[i];
    return count;
}

static void times_of_ended_program_stay(void **state)
{
    struct harness *h = *state;
    struct gs_wire_totals totals;

    say_state(h, 0, BUSY, 7 * GIB, 7 * GIB);
    h->now += 300 * MS;
    assert_int_equal(totals_now(h).gpu_ns, 300 * MS); /* it has said nothing since */
    end_client(h, 0);
    h->now += 5000 * MS;
    totals = totals_now(h);
    assert_int_equal(totals.gpu_ns, 300 * MS);
    assert_int_equal(totals.programs, 1);
    say_state(h, 0, BUSY, 7 * GIB, 7 * GIB); /* the next program on the same device */
    h->now += 100 * MS;
    assert_int_equal(totals_now(h).gpu_ns, 400 * MS);
    assert_int_equal(totals_now(h).programs, 2);
}

static void wait_is_counted_when_it_ends(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, BUSY, 7 * GIB, 7 * GIB);
    say_state(h, 1, GS_STATE_WANT, 7 * GIB, 0);
    h->now += 700 * MS;
    say_state(h, 1, GS_STATE_WANT, 7 * GIB, 0); /* still the same wait */
    assert_int_equal(count_of(totals_now(h).waits), 0);
    assert_int_equal(totals_now(h).wait_ns, 700 * MS);
    h->now += 100 * MS;
    end_client(h, 1); /* before its turn came */
    assert_int_equal(count_of(totals_now(h).waits), 1);
    assert_int_equal(totals_now(h).waits.sum_ns, 800 * MS);
    assert_int_equal(totals_now(h).wait_ns, 800 * MS);
}

static void moved_bytes_are_counted_once(void **state)
{
    struct harness *h = *state;
    struct harness_client *c = &h->client[0];

    say_state(h, 1, 0, GIB, 0); /* the device stays */
    say_state(h, 0, BUSY, 4 * GIB, 4 * GIB);
    c->state.moved_out = 3 * GIB;
    c->state.moved_in = 2 * GIB;
    say_state(h, 0, BUSY, 4 * GIB, 4 * GIB);
    say_state(h, 0, BUSY, 4 * GIB, 4 * GIB);
    assert_int_equal(totals_now(h).moved_out, 3 * GIB);
    assert_int_equal(totals_now(h).moved_in, 2 * GIB);
    /* it lost its connection and comes back; what it moved meanwhile is known to nobody */
    sched_client_gone(c->client, h->now);
    c->client = NULL;
    say_state(h, 0, BUSY, 4 * GIB, 4 * GIB);
    assert_int_equal(totals_now(h).moved_out, 3 * GIB);
    assert_int_equal(totals_now(h).programs, 2);
    c->state.moved_out = 4 * GIB;
    say_state(h, 0, BUSY, 4 * GIB, 4 * GIB);
    assert_int_equal(totals_now(h).moved_out, 4 * GIB);
}

static void totals_of_liar_grow_by_the_device_at_most(void **state)
{
    struct harness *h = *state;
    struct harness_client *c = &h->client[0];

    say_state(h, 0, BUSY, GIB, GIB);
    c->state.moved_out = UINT64_MAX;
    say_state(h, 0, BUSY, GIB, GIB);
    assert_int_equal(totals_now(h).moved_out, h->total);
    c->state.moved_out = 0; /* it goes back: nothing is taken away */
    say_state(h, 0, BUSY, GIB, GIB);
    assert_int_equal(totals_now(h).moved_out, h->total);
}

static void hand_off_is_counted(void **state)
{
    struct harness *h = *state;
    struct gs_wire_totals totals;

    say_state(h, 0, BUSY, 7 * GIB, 7 * GIB);
    say_state(h, 1, GS_STATE_WANT, 7 * GIB, 0);
    say_state(h, 0, 0, 7 * GIB, 7 * GIB); /* it has nothing to do: its turn is over */
    h->now += 30 * MS;
    say_state(h, 0, 0, 7 * GIB, 0);
    say_state(h, 1, GS_STATE_WANT, 7 * GIB, 7 * GIB);
    h->now += 10 * MS;
    say_state(h, 1, BUSY, 7 * GIB, 7 * GIB);
    totals = totals_now(h);
    assert_int_equal(count_of(totals.hand_offs), 1);
    assert_int_equal(totals.hand_offs.sum_ns, 40 * MS);
    assert_int_equal(totals.hand_offs.count[4], 1); /* 25 to 50 ms */
    assert_true(totals.switches >= 1);
}

static void bucket_holds_its_bound(void **state)
{
    struct gs_wire_histogram histogram = {0};

    (void)state;
    lockd_totals_count(&histogram, 0);
    lockd_totals_count(&histogram, 1 * MS);
    lockd_totals_count(&histogram, 1 * MS + 1);
    lockd_totals_count(&histogram, 300000 * MS);
    lockd_totals_count(&histogram, 300000 * MS + 1);
    assert_int_equal(histogram.count[0], 2);
    assert_int_equal(histogram.count[1], 1);
    assert_int_equal(histogram.count[GS_HISTOGRAM_BOUNDS - 1], 1);
    assert_int_equal(histogram.count[GS_HISTOGRAM_BOUNDS], 1);
    assert_int_equal(histogram.sum_ns, 2 * MS + 1 + 600000 * MS + 1);
}

static void bounds_are_said_as_they_are(void **state)
{
    uint64_t before = 0;

    (void)state;
#define GS_HISTOGRAM_BUCKET(ns, seconds)                                                       \
    assert_true((ns) > before && (uint64_t)(strtod(seconds, NULL) * 1e9 + 0.5) == (ns));       \
    before = (ns);
#include "lockd/protocol/figures.def"
}

static void made_up_devices_do_not_fill_the_memory(void **state)
{
    struct lockd_list all = {0};
    uint32_t count = 0;
    uint8_t uuid[16] = {0}, own[16] = {255};
    struct lockd_totals *real;

    (void)state;
    real = lockd_totals_get(&all, own, 7); /* of another user */
    assert_non_null(real);
    lockd_totals_leave(&all, real);
    for (unsigned i = 0; i < 1000; i++) {
        struct lockd_totals *totals;

        memcpy(uuid, &i, sizeof i);
        totals = lockd_totals_get(&all, uuid, 8);
        assert_non_null(totals);
        lockd_totals_leave(&all, totals);
    }
    lockd_each (const struct lockd_totals, totals, &all, link)
        count++;
    assert_int_equal(count, 65);
    assert_ptr_equal(lockd_totals_get(&all, own, 7), real);
    assert_int_equal(lockd_totals_get(&all, uuid, 8)->sum.uuid[0],
                     999 & 255); /* the newest are kept */
    lockd_totals_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(times_of_ended_program_stay, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(wait_is_counted_when_it_ends, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(moved_bytes_are_counted_once, harness_setup,
                                        harness_teardown),
        cmocka_unit_test_setup_teardown(totals_of_liar_grow_by_the_device_at_most,
                                        harness_setup, harness_teardown),
        cmocka_unit_test_setup_teardown(hand_off_is_counted, harness_setup, harness_teardown),
        cmocka_unit_test(bucket_holds_its_bound),
        cmocka_unit_test(bounds_are_said_as_they_are),
        cmocka_unit_test(made_up_devices_do_not_fill_the_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
