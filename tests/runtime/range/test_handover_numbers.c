/* SPDX-License-Identifier: Apache-2.0
 *
 * test_handover_numbers.c: the descriptors of device memory (handover.c) beside those of the program,
 * which may close them, have few, or fork. Every test ends with as many open as before. One thread,
 * but for the test of fork().
 */
#include "tests/runtime/range/handover_stage.h"

#include <errno.h>
#include <sys/select.h>
#include <sys/wait.h>

/* The program closes all that it does not know of, and opens files of its own there. */
static unsigned closed_and_reused(int *own, unsigned most)
{
    unsigned count = 0;

    for (int fd = FROM; fd < NUMBER; fd++)
        if (!stage.was_open[fd] && count < most && close(fd) == 0) {
            const int new = stage_memory();

            own[count] = fcntl(new, F_DUPFD, fd);
            assert_int_equal(own[count++], fd);
            close(new);
        }
    return count;
}

static void what_the_program_closed_is_not_touched_again(void **state)
{
    struct gs_descriptors with;
    unsigned count;
    int own[8];

    (void)state;
    assert_int_equal(stage_come(3, 10 * CHUNK), 3);
    assert_true(gs_handover_place(stage.range, 0));
    assert_true(gs_handover_place(stage.range, 1));
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    stage_make_and_give(2);
    assert_int_equal(stage.imports, 2);
    count = closed_and_reused(own, sizeof own / sizeof own[0]);
    assert_int_equal(count, 4);
    assert_int_equal(stage_reported(&with), 0);      /* nothing of the program's is sent */
    assert_false(gs_handover_place(stage.range, 3)); /* or taken for device memory */
    assert_int_equal(stage.imports, 2);
    assert_false(gs_handover_give(stage.range, 0));
    gs_handover_forget(&stage.range->chunks[0]);
    gs_handover_sent(&stage.card);
    gs_handover_lost();
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(close(own[i]), 0); /* or closed */
    errno = ERANGE;
    gs_handover_forget(&stage.range->chunks[1]);
    assert_int_equal(errno, ERANGE);
    gs_vmm_release(stage.range->chunks[0].handle);
    gs_vmm_release(stage.range->chunks[1].handle);
}

/* On a stage.card all descriptors of memory are of one file. */
static void a_number_that_comes_again_is_one_piece_s_only(void **state)
{
    const struct gs_wire_target run = stage_target(GS_TARGET_RUN | GS_TARGET_GIVE, 10 * CHUNK);
    const int card_file = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct gs_descriptors with;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        with = (struct gs_descriptors){{fcntl(card_file, F_DUPFD_CLOEXEC, 0)}, 1};
        gs_handover_heard(&stage.card, &run, &with);
        assert_true(gs_handover_place(stage.range, i));
        for (int fd = FROM; i == 0 && fd < NUMBER; fd++) /* the program closes the first's */
            if (!stage.was_open[fd])
                close(fd);
    }
    close(card_file);
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    assert_false(gs_handover_give(stage.range, 0)); /* what it has now is the second's */
    gs_vmm_release(stage.range->chunks[0].handle);
    gs_handover_forget(&stage.range->chunks[0]);
    assert_true(gs_handover_give(stage.range, 1));
    assert_int_equal(stage_reported(&with), 1);
}

static void few_descriptors_are_left_to_the_program(void **state)
{
    struct gs_descriptors with;

    (void)state;
    assert_int_equal(gs_handover_expect(0), GS_PACKET_FDS);
    gs_handover_end();
    stage_limit(80); /* ten places */
    assert_int_equal(gs_handover_expect(0), 10);
    gs_handover_end();
    assert_int_equal(stage_come(16, 100 * CHUNK), 10);
    assert_int_equal(gs_handover_expect(0), 0);
    gs_handover_end();
    assert_int_equal(stage.card.accounts.resident, 10 * CHUNK);
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    stage_make(0);
    assert_false(gs_handover_give(stage.range, 0));
    assert_int_equal(stage_reported(&with), 0);
    gs_handover_lost();
    stage_limit(64);
    assert_int_equal(gs_handover_expect(0), 0);
    gs_handover_end();
    assert_int_equal(stage_come(1, 100 * CHUNK), 0);
    assert_false(gs_handover_give(stage.range, 0));
    gs_vmm_release(stage.range->chunks[0].handle);
}

/* The program's own have the numbers that select() can have. */
static void those_of_memory_have_high_numbers(void **state)
{
    (void)state;
    stage_limit(800);
    assert_int_equal(stage_come(1, 10 * CHUNK), 1);
    assert_int_not_equal(fcntl(700, F_GETFD), -1);
    if (stage.limit_before.rlim_max < 4ul * FD_SETSIZE)
        return;
    stage_limit(4ul * FD_SETSIZE);
    assert_int_equal(stage_come(1, 10 * CHUNK), 1);
    assert_int_not_equal(fcntl(FD_SETSIZE, F_GETFD), -1);
}

static void a_child_holds_none_and_no_fork_comes_between(void **state)
{
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(stage_come(2, 10 * CHUNK), 2);
    child = fork();
    if (child == 0) {
        gs_handover_in_child();
        gs_child_clear();
        _exit(stage_descriptors() == stage.open_before && gs_handover_in_hand(&stage.card) == 0
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    gs_handover_lost();
    gs_handover_before_fork();
    atomic_store(&stage.card.target.flags, GS_TARGET_GIVE);
    stage_make(0);
    assert_false(gs_handover_give(stage.range, 0));
    assert_int_equal(gs_handover_expect(0), 0);
    gs_handover_end();
    gs_handover_after_fork();
    stage.fork_during_export = true;
    assert_true(gs_handover_give(stage.range, 0));
    gs_handover_before_fork(); /* its thread has come through by then, or does no harm */
    gs_handover_after_fork();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAGED(what_the_program_closed_is_not_touched_again),
        STAGED(a_number_that_comes_again_is_one_piece_s_only),
        STAGED(few_descriptors_are_left_to_the_program),
        STAGED(those_of_memory_have_high_numbers),
        STAGED(a_child_holds_none_and_no_fork_comes_between),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
