/* SPDX-License-Identifier: Apache-2.0
 *
 * test_handover.c: the descriptors of device memory (handover.c), with the driver played: memory is
 * an empty file, a handle is a descriptor of it. Every test ends with as many descriptors open
 * as before. One thread, but for the test of fork().
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/driver.h"
#include "runtime/range/handover.h"
#include "runtime/base/log.h"
#include "runtime/base/config.h"
#include "runtime/range/vmm.h"
#include "runtime/range/chunk.h"
#include "runtime/range/memory_lock.h"

#define MIB    ((uint64_t)1 << 20)
#define CHUNK  (64 * MIB)
#define CHUNKS 20u
#define NUMBER 256                   /* no descriptor has a higher one */
#define FROM   (NUMBER - NUMBER / 8) /* ... the last eighth of them are for memory */

struct gs_driver gs_driver;
struct gs_runtime gs_runtime;
pthread_mutex_t gs_memory_lock = PTHREAD_MUTEX_INITIALIZER;

static struct gs_device card, other_card;
static struct gs_range *range;
static bool was_open[NUMBER];
static unsigned open_before, mapped, imports;
static bool map_fails, unmap_fails, import_fails, fork_during_export;
static struct rlimit limit_before;

/* --- what handover.c stands on --- */

uint64_t gs_range_chunk_bytes(const struct gs_range *of, uint32_t chunk)
{
    (void)chunk;
    return of->chunk_bytes;
}

CUdeviceptr gs_range_chunk_address(const struct gs_range *of, uint32_t chunk)
{
    return 0x1000000000 + chunk * of->chunk_bytes;
}

CUresult gs_vmm_map(struct gs_range *of, uint32_t chunk)
{
    (void)of;
    (void)chunk;
    mapped += !map_fails;
    return map_fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult gs_vmm_unmap(struct gs_range *of, uint32_t chunk)
{
    (void)of;
    (void)chunk;
    mapped -= !unmap_fails;
    return unmap_fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult gs_vmm_release(CUmemGenericAllocationHandle handle)
{
    return close((int)handle) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void gs_log(const char *format, ...)
{
    (void)format;
}

static void *forks(void *unused)
{
    (void)unused;
    gs_handover_before_fork();
    gs_handover_after_fork();
    return NULL;
}

static CUresult export_memory(void *descriptor, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)type;
    (void)flags;
    if (fork_during_export) { /* it comes no further before this is done */
        const struct timespec pause = {0, 20000000};
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, forks, NULL), 0);
        nanosleep(&pause, NULL);
        assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
        assert_int_equal(pthread_detach(thread), 0);
    }
    *(int *)descriptor = dup((int)handle);
    return *(int *)descriptor < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult import_memory(CUmemGenericAllocationHandle *handle, void *descriptor,
                              CUmemAllocationHandleType type)
{
    (void)type;
    imports++;
    if (import_fails)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUmemGenericAllocationHandle)dup((int)(uintptr_t)descriptor);
    return CUDA_SUCCESS;
}

/* --- the tests --- */

static unsigned descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < NUMBER; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int memory(void)
{
    const int fd = memfd_create("device memory", MFD_CLOEXEC);

    assert_true(fd >= 0 && fd < NUMBER);
    return fd;
}

static void limit(rlim_t most)
{
    const struct rlimit limits = {most, limit_before.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limits), 0);
}

static int begin(void **state)
{
    (void)state;
    getrlimit(RLIMIT_NOFILE, &limit_before);
    limit(NUMBER); /* an eighth: 32 */
    card = other_card =
        (struct gs_device){.movable = true, .physical = 8ull << 30, .total = 8ull << 30};
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    atomic_store(&other_card.target.flags, GS_TARGET_GIVE);
    range = calloc(1, sizeof *range + CHUNKS * sizeof range->chunks[0]);
    range->device = &card;
    range->chunk_bytes = CHUNK;
    range->chunk_count = CHUNKS;
    gs_driver.cuMemExportToShareableHandle = export_memory;
    gs_driver.cuMemImportFromShareableHandle = import_memory;
    map_fails = unmap_fails = import_fails = fork_during_export = false;
    mapped = imports = 0;
    open_before = descriptors();
    for (int fd = 0; fd < NUMBER; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    return 0;
}

/* Whatever a test has left in hand, or given: of a connection that has ended. */
static int end(void **state)
{
    (void)state;
    gs_handover_lost();
    for (uint32_t i = 0; i < CHUNKS; i++)
        gs_handover_forget(&range->chunks[i]);
    free(range);
    setrlimit(RLIMIT_NOFILE, &limit_before);
    return descriptors() == open_before && card.accounts.resident == 0 ? 0 : -1;
}

/* A chunk that was made here and is on the device. */
static void make(uint32_t chunk)
{
    range->chunks[chunk] = (struct gs_chunk){.state = GS_CHUNK_RESIDENT,
                                             .handle = (CUmemGenericAllocationHandle)memory(),
                                             .sendable = true};
    mapped++;
}

static void make_and_give(uint32_t chunk)
{
    make(chunk);
    assert_true(gs_handover_give(range, chunk));
}

static struct gs_wire_target target(uint32_t flags, uint64_t budget)
{
    atomic_store(&card.target.flags, flags);
    return (struct gs_wire_target){.flags = flags, .budget = budget, .gift_bytes = CHUNK};
}

/* So many come with RUN; how many were taken. */
static unsigned come(unsigned count, uint64_t budget)
{
    const struct gs_wire_target run = target(GS_TARGET_RUN | GS_TARGET_GIVE, budget);
    const uint64_t before = gs_handover_in_hand(&card);
    struct gs_descriptors with = {.count = count};

    for (unsigned i = 0; i < count; i++)
        with.fd[i] = memory();
    gs_handover_heard(&card, &run, &with);
    gs_descriptors_close(&with);
    return (unsigned)((gs_handover_in_hand(&card) - before) / CHUNK);
}

static unsigned reported(struct gs_descriptors *with)
{
    struct gs_wire_state state = {.given = 0};

    gs_handover_report(&card, &state, with);
    assert_int_equal(state.given, with->count);
    if (state.given != 0)
        assert_int_equal(state.given_bytes, CHUNK);
    return state.given;
}

static void what_leaves_is_reported_until_it_is_sent(void **state)
{
    struct gs_descriptors with;

    (void)state;
    make_and_give(0);
    make_and_give(1);
    assert_int_equal(mapped, 0);
    assert_int_equal(reported(&with), 2);
    assert_int_equal(reported(&with), 2); /* the socket was full */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(fcntl(with.fd[i], F_GETFD), FD_CLOEXEC);
        assert_true(with.fd[i] >= FROM);
    }
    assert_int_equal(descriptors(), open_before + 2); /* the handles are released */
    gs_handover_sent(&other_card);
    assert_int_equal(reported(&with), 2);
    gs_handover_sent(&card);
    assert_int_equal(reported(&with), 0);
    assert_int_equal(descriptors(), open_before);
}

static void only_what_can_be_sent_together_is_given(void **state)
{
    struct gs_descriptors with;

    (void)state;
    for (uint32_t i = 0; i < GS_GIVEN_MOST; i++)
        make_and_give(i);
    make(GS_GIVEN_MOST);
    assert_false(gs_handover_give(range, GS_GIVEN_MOST)); /* and nothing has happened to it */
    gs_handover_sent(&card);
    range->device = &other_card;
    assert_true(gs_handover_give(range, GS_GIVEN_MOST));
    range->device = &card;
    make_and_give(0);
    assert_int_equal(reported(&with), 1); /* each device's go with its own report */
    make(0);
    range->chunk_bytes = CHUNK / 2;
    assert_false(gs_handover_give(range, 0)); /* one size at a time */
    range->chunk_bytes = CHUNK;
    gs_handover_sent(&card);
    assert_int_equal(reported(&with), 0);
    assert_int_equal(descriptors(), open_before + 2); /* a handle, and the other device's */
    gs_handover_sent(&other_card);
    assert_int_equal(descriptors(), open_before + 1);
    range->chunks[0].sendable = false;
    assert_false(gs_handover_give(range, 0));
    range->chunks[0].sendable = true;
    atomic_store(&card.target.flags, 0); /* nobody is to be given anything */
    assert_false(gs_handover_give(range, 0));
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    card.physical = 4097 * CHUNK;
    assert_false(gs_handover_give(range, 0)); /* too little */
    card.physical = 4096 * CHUNK;
    assert_true(gs_handover_give(range, 0));
}

static void with_run_nothing_is_given_and_what_was_is_released(void **state)
{
    const struct gs_wire_target run = target(GS_TARGET_RUN | GS_TARGET_GIVE, 10 * CHUNK);
    struct gs_descriptors with = {.count = 0};

    (void)state;
    target(GS_TARGET_GIVE, 0);
    make_and_give(0);
    make(1);
    target(run.flags, run.budget);
    assert_false(gs_handover_give(range, 1));
    gs_handover_heard(&card, &run, &with);
    assert_int_equal(reported(&with), 0);
    assert_int_equal(descriptors(), open_before + 1); /* the second's handle */
    gs_vmm_release(range->chunks[1].handle);
}

static void what_comes_is_used_once_and_kept_while_it_is_used(void **state)
{
    (void)state;
    assert_int_equal(come(2, 10 * CHUNK), 2);
    assert_int_equal(card.accounts.resident, 2 * CHUNK);
    assert_true(gs_handover_place(range, 0));
    assert_int_equal(mapped, 1);
    assert_int_equal(card.accounts.resident, CHUNK);
    assert_int_equal(descriptors(), open_before + 3); /* two of the hand's, and a handle */
    range->chunk_bytes = CHUNK / 2;
    assert_false(gs_handover_place(range, 1)); /* another size */
    range->chunk_bytes = CHUNK;
    range->device = &other_card;
    assert_false(gs_handover_place(range, 1));
    range->device = &card;
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    assert_true(
        gs_handover_give(range, 0)); /* on it goes, with the descriptor that it came with */
    assert_int_equal(range->chunks[0].descriptor, 0);
    assert_int_equal(descriptors(), open_before + 2);
    gs_handover_sent(&card);
    assert_int_equal(descriptors(), open_before + 1);
}

static void no_more_comes_than_the_budget_has_room_for(void **state)
{
    const struct gs_wire_target wait = target(GS_TARGET_GIVE, 10 * CHUNK);
    struct gs_descriptors with = {{memory()}, 1};

    (void)state;
    gs_handover_heard(&card, &wait, &with); /* it may not run: nothing is missing here */
    assert_int_equal(with.count, 1);
    gs_descriptors_close(&with);
    assert_int_equal(come(4, 3 * CHUNK + CHUNK / 2), 3);
    assert_int_equal(come(1, 3 * CHUNK - 1), 0);
    assert_int_equal(come(1, 4 * CHUNK), 1);
    gs_handover_shrink(&card, 2 * CHUNK + 1);
    assert_int_equal(gs_handover_in_hand(&card), 2 * CHUNK);
    assert_int_equal(card.accounts.resident, 2 * CHUNK);
    gs_handover_heard(&card, &wait, &with); /* its turn is over */
    assert_int_equal(card.accounts.resident, 0);
    card.managed = true;
    assert_int_equal(come(1, 4 * CHUNK), 0);
    card.managed = false;
    atomic_store(&card.movable, false);
    assert_int_equal(come(1, 4 * CHUNK), 0);
}

static void what_the_driver_refuses_is_released(void **state)
{
    (void)state;
    assert_int_equal(come(2, 10 * CHUNK), 2);
    import_fails = true;
    assert_false(gs_handover_place(range, 0));
    assert_int_equal(imports, 2); /* each is tried */
    assert_int_equal(descriptors(), open_before);
    import_fails = false;
    map_fails = true;
    assert_int_equal(come(1, 10 * CHUNK), 1);
    assert_false(gs_handover_place(range, 0));
    assert_int_equal(range->chunks[0].descriptor, 0);
    assert_int_equal(descriptors(), open_before);
    assert_int_equal(card.accounts.resident, 0);
}

static void what_stays_mapped_here_goes_nowhere(void **state)
{
    struct gs_descriptors with;

    (void)state;
    make(0);
    unmap_fails = true;
    assert_true(gs_handover_give(range, 0)); /* there is nothing more to be done */
    assert_int_equal(reported(&with), 0);
    assert_int_equal(descriptors(), open_before);
}

/* The program closes all that it does not know of, and opens files of its own there. */
static unsigned closed_and_reused(int *own, unsigned most)
{
    unsigned count = 0;

    for (int fd = FROM; fd < NUMBER; fd++)
        if (!was_open[fd] && count < most && close(fd) == 0) {
            const int new = memory();

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
    assert_int_equal(come(3, 10 * CHUNK), 3);
    assert_true(gs_handover_place(range, 0));
    assert_true(gs_handover_place(range, 1));
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    make_and_give(2);
    assert_int_equal(imports, 2);
    count = closed_and_reused(own, sizeof own / sizeof own[0]);
    assert_int_equal(count, 4);
    assert_int_equal(reported(&with), 0);      /* nothing of the program's is sent */
    assert_false(gs_handover_place(range, 3)); /* or taken for device memory */
    assert_int_equal(imports, 2);
    assert_false(gs_handover_give(range, 0));
    gs_handover_forget(&range->chunks[0]);
    gs_handover_sent(&card);
    gs_handover_lost();
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(close(own[i]), 0); /* or closed */
    errno = ERANGE;
    gs_handover_forget(&range->chunks[1]);
    assert_int_equal(errno, ERANGE);
    gs_vmm_release(range->chunks[0].handle);
    gs_vmm_release(range->chunks[1].handle);
}

/* On a card all descriptors of memory are of one file. */
static void a_number_that_comes_again_is_one_piece_s_only(void **state)
{
    const struct gs_wire_target run = target(GS_TARGET_RUN | GS_TARGET_GIVE, 10 * CHUNK);
    const int card_file = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct gs_descriptors with;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        with = (struct gs_descriptors){{fcntl(card_file, F_DUPFD_CLOEXEC, 0)}, 1};
        gs_handover_heard(&card, &run, &with);
        assert_true(gs_handover_place(range, i));
        for (int fd = FROM; i == 0 && fd < NUMBER; fd++) /* the program closes the first's */
            if (!was_open[fd])
                close(fd);
    }
    close(card_file);
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    assert_false(gs_handover_give(range, 0)); /* what it has now is the second's */
    gs_vmm_release(range->chunks[0].handle);
    gs_handover_forget(&range->chunks[0]);
    assert_true(gs_handover_give(range, 1));
    assert_int_equal(reported(&with), 1);
}

static void few_descriptors_are_left_to_the_program(void **state)
{
    struct gs_descriptors with;

    (void)state;
    assert_int_equal(gs_handover_expect(), GS_PACKET_FDS);
    gs_handover_received();
    limit(80); /* ten places */
    assert_int_equal(gs_handover_expect(), 10);
    gs_handover_received();
    assert_int_equal(come(16, 100 * CHUNK), 10);
    assert_int_equal(gs_handover_expect(), 0);
    gs_handover_received();
    assert_int_equal(card.accounts.resident, 10 * CHUNK);
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    make(0);
    assert_false(gs_handover_give(range, 0));
    assert_int_equal(reported(&with), 0);
    gs_handover_lost();
    limit(64);
    assert_int_equal(gs_handover_expect(), 0);
    gs_handover_received();
    assert_int_equal(come(1, 100 * CHUNK), 0);
    assert_false(gs_handover_give(range, 0));
    gs_vmm_release(range->chunks[0].handle);
}

/* The program's own have the numbers that select() can have. */
static void those_of_memory_have_high_numbers(void **state)
{
    (void)state;
    limit(800);
    assert_int_equal(come(1, 10 * CHUNK), 1);
    assert_int_not_equal(fcntl(700, F_GETFD), -1);
    if (limit_before.rlim_max < 4ul * FD_SETSIZE)
        return;
    limit(4ul * FD_SETSIZE);
    assert_int_equal(come(1, 10 * CHUNK), 1);
    assert_int_not_equal(fcntl(FD_SETSIZE, F_GETFD), -1);
}

static void a_child_holds_none_and_no_fork_comes_between(void **state)
{
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(come(2, 10 * CHUNK), 2);
    child = fork();
    if (child == 0) {
        gs_handover_in_child();
        _exit(descriptors() == open_before && gs_handover_in_hand(&card) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    gs_handover_lost();
    gs_handover_before_fork();
    atomic_store(&card.target.flags, GS_TARGET_GIVE);
    make(0);
    assert_false(gs_handover_give(range, 0));
    assert_int_equal(gs_handover_expect(), 0);
    gs_handover_received();
    gs_handover_after_fork();
    fork_during_export = true;
    assert_true(gs_handover_give(range, 0));
    gs_handover_before_fork(); /* its thread has come through by then, or does no harm */
    gs_handover_after_fork();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_leaves_is_reported_until_it_is_sent, begin, end),
        cmocka_unit_test_setup_teardown(only_what_can_be_sent_together_is_given, begin, end),
        cmocka_unit_test_setup_teardown(with_run_nothing_is_given_and_what_was_is_released,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_comes_is_used_once_and_kept_while_it_is_used,
                                        begin, end),
        cmocka_unit_test_setup_teardown(no_more_comes_than_the_budget_has_room_for, begin, end),
        cmocka_unit_test_setup_teardown(what_the_driver_refuses_is_released, begin, end),
        cmocka_unit_test_setup_teardown(what_stays_mapped_here_goes_nowhere, begin, end),
        cmocka_unit_test_setup_teardown(what_the_program_closed_is_not_touched_again, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_number_that_comes_again_is_one_piece_s_only, begin,
                                        end),
        cmocka_unit_test_setup_teardown(few_descriptors_are_left_to_the_program, begin, end),
        cmocka_unit_test_setup_teardown(those_of_memory_have_high_numbers, begin, end),
        cmocka_unit_test_setup_teardown(a_child_holds_none_and_no_fork_comes_between, begin,
                                        end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
