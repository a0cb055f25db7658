/* SPDX-License-Identifier: Apache-2.0
 *
 * test_handover.c: device memory that goes from program to program (handover.c): what is given and
 * what comes. Every test ends with as many descriptors open as before. One thread.
 */
#include "tests/runtime/range/handover_stage.h"

static void what_leaves_is_reported_until_it_is_sent(void **state)
{
    struct gs_descriptors with;

    (void)state;
    stage_make_and_give(0);
    stage_make_and_give(1);
    assert_int_equal(stage.mapped, 0);
    assert_int_equal(stage_reported(&with), 2);
    assert_int_equal(stage_reported(&with), 2); /* the socket was full */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(fcntl(with.fd[i], F_GETFD), FD_CLOEXEC);
        assert_true(with.fd[i] >= FROM);
    }
    assert_int_equal(stage_descriptors(), stage.open_before + 2); /* the handles are released */
    gs_handover_sent(&stage.other_card);
    assert_int_equal(stage_reported(&with), 2);
    gs_handover_sent(&stage.card);
    assert_int_equal(stage_reported(&with), 0);
    assert_int_equal(stage_descriptors(), stage.open_before);
}

static void only_what_can_be_sent_together_is_given(void **state)
{
    struct gs_descriptors with;

    (void)state;
    for (uint32_t i = 0; i < GS_GIVEN_MOST; i++)
        stage_make_and_give(i);
    stage_make(GS_GIVEN_MOST);
    assert_false(
        gs_handover_give(stage.range, GS_GIVEN_MOST)); /* and nothing has happened to it */
    gs_handover_sent(&stage.card);
    stage.range->device = &stage.other_card;
    assert_true(gs_handover_give(stage.range, GS_GIVEN_MOST));
    stage.range->device = &stage.card;
    stage_make_and_give(0);
    assert_int_equal(stage_reported(&with), 1); /* each device's go with its own report */
    stage.range->chunk_bytes = CHUNK / 2;
    stage_make_and_give(0); /* of any size */
    stage.range->chunk_bytes = CHUNK;
    assert_int_equal(stage_reported(&with), 2);
    assert_int_equal(stage.sizes[0], CHUNK);
    assert_int_equal(stage.sizes[1], CHUNK / 2);
    assert_int_equal(stage.sizes[2], 0);
    gs_handover_sent(&stage.card);
    assert_int_equal(stage_reported(&with), 0);
    assert_int_equal(stage_descriptors(), stage.open_before + 1); /* the other device's */
    gs_handover_sent(&stage.other_card);
    assert_int_equal(stage_descriptors(), stage.open_before);
    stage_make(0);
    stage.range->chunks[0].sendable = false;
    assert_false(gs_handover_give(stage.range, 0));
    stage.range->chunks[0].sendable = true;
    atomic_store(&stage.card.target.flags, 0); /* nobody is to be given anything */
    assert_false(gs_handover_give(stage.range, 0));
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    stage.card.physical = 16385 * CHUNK;
    assert_false(gs_handover_give(stage.range, 0)); /* too little */
    stage.card.physical = 16384 * CHUNK;
    assert_true(gs_handover_give(stage.range, 0));
}

static void with_run_nothing_is_given_and_what_was_is_released(void **state)
{
    const struct gs_wire_target run = stage_target(GS_TARGET_RUN | GS_TARGET_GIVE, 10 * CHUNK);
    struct gs_descriptors with = {.count = 0};

    (void)state;
    stage_target(GS_TARGET_GIVE, 0);
    stage_make_and_give(0);
    stage_make(1);
    stage_target(run.flags, run.budget);
    assert_false(gs_handover_give(stage.range, 1));
    gs_handover_heard(&stage.card, &run, &with);
    assert_int_equal(stage_reported(&with), 0);
    assert_int_equal(stage_descriptors(), stage.open_before + 1); /* the second's handle */
    gs_vmm_release(stage.range->chunks[1].handle);
}

static void what_comes_is_used_once_and_kept_while_it_is_used(void **state)
{
    (void)state;
    assert_int_equal(stage_come(2, 10 * CHUNK), 2);
    assert_int_equal(stage.card.accounts.resident, 2 * CHUNK);
    assert_true(gs_handover_place(stage.range, 0));
    assert_int_equal(stage.mapped, 1);
    assert_int_equal(stage.card.accounts.resident, CHUNK);
    assert_int_equal(stage_descriptors(),
                     stage.open_before + 3); /* two of the hand's, and a handle */
    stage.range->chunk_bytes = CHUNK / 2;
    assert_false(gs_handover_place(stage.range, 1)); /* another size */
    stage.range->chunk_bytes = CHUNK;
    stage.range->device = &stage.other_card;
    assert_false(gs_handover_place(stage.range, 1));
    stage.range->device = &stage.card;
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    assert_true(gs_handover_give(stage.range,
                                 0)); /* on it goes, with the descriptor that it came with */
    assert_int_equal(stage.range->chunks[0].descriptor, 0);
    assert_int_equal(stage_descriptors(), stage.open_before + 2);
    gs_handover_sent(&stage.card);
    assert_int_equal(stage_descriptors(), stage.open_before + 1);
}

static void no_more_comes_than_the_budget_has_room_for(void **state)
{
    const struct gs_wire_target wait = stage_target(GS_TARGET_GIVE, 10 * CHUNK);
    struct gs_descriptors with = {{stage_memory()}, 1};

    (void)state;
    gs_handover_heard(&stage.card, &wait, &with); /* it may not run: nothing is missing here */
    assert_int_equal(with.count, 1);
    gs_descriptors_close(&with);
    assert_int_equal(stage_come(4, 3 * CHUNK + CHUNK / 2), 3);
    assert_int_equal(stage_come(1, 3 * CHUNK - 1), 0);
    assert_int_equal(stage_come(1, 4 * CHUNK), 1);
    gs_handover_shrink(&stage.card, 2 * CHUNK + 1);
    assert_int_equal(gs_handover_in_hand(&stage.card), 2 * CHUNK);
    assert_int_equal(stage.card.accounts.resident, 2 * CHUNK);
    gs_handover_heard(&stage.card, &wait, &with); /* its turn is over */
    assert_int_equal(stage.card.accounts.resident, 0);
    stage.card.managed = true;
    assert_int_equal(stage_come(1, 4 * CHUNK), 0);
    stage.card.managed = false;
    atomic_store(&stage.card.movable, false);
    assert_int_equal(stage_come(1, 4 * CHUNK), 0);
}

static void what_the_driver_refuses_is_released(void **state)
{
    (void)state;
    assert_int_equal(stage_come(2, 10 * CHUNK), 2);
    stage.import_fails = true;
    assert_false(gs_handover_place(stage.range, 0));
    assert_int_equal(stage.imports, 2); /* each is tried */
    assert_int_equal(stage_descriptors(), stage.open_before);
    stage.import_fails = false;
    stage.map_fails = true;
    assert_int_equal(stage_come(1, 10 * CHUNK), 1);
    assert_false(gs_handover_place(stage.range, 0));
    assert_int_equal(stage.range->chunks[0].descriptor, 0);
    assert_int_equal(stage_descriptors(), stage.open_before);
    assert_int_equal(stage.card.accounts.resident, 0);
}

static void what_stays_mapped_here_goes_nowhere(void **state)
{
    struct gs_descriptors with;

    (void)state;
    stage_make(0);
    stage.unmap_fails = true;
    assert_true(gs_handover_give(stage.range, 0)); /* there is nothing more to be done */
    assert_int_equal(stage_reported(&with), 0);
    assert_int_equal(stage_descriptors(), stage.open_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED(what_leaves_is_reported_until_it_is_sent),
        STAGED(only_what_can_be_sent_together_is_given),
        STAGED(with_run_nothing_is_given_and_what_was_is_released),
        STAGED(what_comes_is_used_once_and_kept_while_it_is_used),
        STAGED(no_more_comes_than_the_budget_has_room_for),
        STAGED(what_the_driver_refuses_is_released),
        STAGED(what_stays_mapped_here_goes_nowhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
