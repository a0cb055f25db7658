/* SPDX-License-Identifier: Apache-2.0
 *
 * test_common.c: host copies that become common (common.c) while the program frees them, forks, and
 * has something more urgent to do; offers with holes; what common memory counts for. The library's
 * own files run on the simulated driver, without a daemon: one thread plays the program and the
 * client thread, and what happens meanwhile happens between two blocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/range/host.h"
#include "runtime/range/sealed.h"
#include "runtime/swap/common.h"
#include "runtime/swap/swap.h"
#include "runtime/swap/swap_copy.h"
#include "tests/runtime/swap/small_card.h"

#define BYTES    (20 * MIB)
#define BLOCKS   (BYTES / GS_BLOCK_BYTES)
#define PATIENCE 120 /* s */
#define S        1000000000ull

static struct {
    void (*between)(void); /* run once, between two blocks */
    unsigned looks;        /* left until then */
    uint64_t number;       /* of the newest offer */
    uint64_t heard;        /* ns: when it had come, or the word that it was taken */
    uint64_t late;         /* ns: the clock is ahead by this */
    unsigned seeks;
    int leaked;          /* descriptors that a child has */
    bool refuses;        /* the driver registers no memory for reading */
    unsigned registered; /* so often, for reading */
} self;

bool __real_gs_daemon_has_news(void);
bool __wrap_gs_daemon_has_news(void); /* NOLINT: the linker's names */

/* common.c asks it before each block. */
bool __wrap_gs_daemon_has_news(void)
{
    void (*const between)(void) = self.between;

    if (between != NULL && self.looks-- == 0) {
        self.between = NULL;
        between();
    }
    return __real_gs_daemon_has_news();
}

uint64_t __real_gs_now(void);
uint64_t __wrap_gs_now(void); /* NOLINT: the linker's names */

uint64_t __wrap_gs_now(void)
{
    return __real_gs_now() + self.late;
}

off_t __real_lseek(int fd, off_t offset, int whence);
off_t __wrap_lseek(int fd, off_t offset, int whence); /* NOLINT: the linker's names */

off_t __wrap_lseek(int fd, off_t offset, int whence)
{
    self.seeks++;
    return __real_lseek(fd, offset, whence);
}

static CUresult register_memory(void *memory, size_t bytes, unsigned flags)
{
    const bool reading = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;

    if (reading && self.refuses)
        return CUDA_ERROR_NOT_SUPPORTED;
    self.registered += reading;
    return card.driver.cuMemHostRegister_v2(memory, bytes, flags);
}

/* --- the stage --- */

static struct gs_chunk *chunk_of(unsigned block)
{
    return &gs_range_at(card.blocks[block].address)->chunks[0];
}

static void out_and_in(void)
{
    card_stop();
    while (gs_swap_out(card.device, UINT64_MAX) == GS_SWAP_MOVED)
        continue;
    card_go_on();
}

/* Blocks on the card with host copies, all with the same contents; empty: the second half is zero. */
static void have_copies(unsigned count, bool empty)
{
    card_begin(1, 0);
    gs_driver.cuMemHostRegister_v2 = register_memory;
    for (unsigned i = 0; i < count; i++) {
        assert_true(card_allocate(&card.blocks[i], BYTES));
        card_fill(&card.blocks[i], 7);
        if (empty)
            assert_int_equal(
                card.driver.cuMemsetD8_v2(card.blocks[i].address + BYTES / 2, 0, BYTES / 2),
                CUDA_SUCCESS);
    }
    out_and_in();
    for (unsigned i = 0; i < count; i++)
        assert_true(chunk_of(i)->state == GS_CHUNK_RESIDENT && chunk_of(i)->host->known);
}

/* The contents of the host copy, but only the first blocks of it. */
static int write_offer(const struct gs_host_block *host, unsigned blocks)
{
    const int fd = gs_sealed_new(BYTES);

    assert_true(fd >= 0);
    for (unsigned i = 0; i < blocks; i++)
        assert_true((host->hashes[i][0] | host->hashes[i][1]) == 0 ||
                    gs_sealed_write(fd, host->memory + i * GS_BLOCK_BYTES, GS_BLOCK_BYTES,
                                    i * GS_BLOCK_BYTES));
    assert_true(gs_sealed_close(fd));
    return fd;
}

static void hear(int fd, bool own)
{
    const struct gs_wire_copy copy = {.bytes = BYTES, .number = ++self.number, .own = own};
    const struct gs_descriptors with = {.count = 1, .fd = {fd}};

    gs_common_heard(&copy, &with);
    self.heard = gs_now();
}

/* An offer of all that the host copy of the first chunk holds. */
static void hear_copy(bool own)
{
    const int fd = write_offer(chunk_of(0)->host, BLOCKS);

    hear(fd, own);
    close(fd);
}

/* All that it has to do, in no time: on a busy machine comparisons last longer than offers. */
static void do_all(void)
{
    for (unsigned i = 0; i < 100 && gs_common_step(self.heard, true, true) == 0; i++)
        continue;
}

static unsigned count_common(unsigned count)
{
    unsigned common = 0;

    for (unsigned i = 0; i < count; i++)
        common += chunk_of(i)->host->common != NULL;
    return common;
}

static void tend_all(void)
{
    while (gs_host_register_one())
        continue;
    while (gs_host_release_one())
        continue;
}

/* Mappings of such files in this process. */
static unsigned count_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned count = 0;
    char line[512];

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:gpushare-copy") != NULL;
    fclose(maps);
    return count;
}

static int end(void **state)
{
    (void)state;
    self.between = NULL;
    gs_common_step(gs_now() + 100 * S, false, true);
    gs_common_lost(); /* what it would have said */
    card_return_memory();
    tend_all();
    self.refuses = false;
    self.registered = 0;
    return count_mapped() != 0;
}

/* --- a free meanwhile --- */

static void *free_first(void *context)
{
    assert_int_equal(card.driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
    card_free(&card.blocks[0]);
    return NULL;
}

/* Another thread frees the memory whose copy is being read, and the host memory, without a wait. */
static void free_meanwhile(void)
{
    struct timespec limit;
    pthread_t thread;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += PATIENCE;
    assert_int_equal(
        pthread_create(&thread, NULL, free_first, gs_context_for(card.device)->handle), 0);
    assert_int_equal(pthread_timedjoin_np(thread, NULL, &limit), 0);
    gs_host_trim(0);
}

static void common_free_while_a_copy_is_compared_waits_for_nobody(void **state)
{
    (void)state;
    have_copies(1, false);
    hear_copy(false);
    self.between = free_meanwhile;
    self.looks = 3;
    do_all();
    assert_null(self.between);
    tend_all();
    gs_host_trim(0);
    assert_int_equal(gs_host_used() + gs_host_foreign(), 0); /* its last holder has put it */
}

/* The program offers its copy, and that happens while it is written. */
static void offer_while(void (*between)(void))
{
    static struct gs_chunk chunk;
    static uint64_t hashes[BLOCKS][2];
    const struct gs_job job = {
        .chunk = &chunk, .hashes = hashes, .saved = {.equal = BYTES}, .bytes = BYTES};

    have_copies(1, false);
    atomic_store(&card.device->target.flags, GS_TARGET_RUN | GS_TARGET_GIVE);
    chunk.host = chunk_of(0)->host;
    gs_common_came(&job); /* another program has the same */
    self.between = between;
    self.looks = 3;
    gs_common_step(gs_now() + 100 * S, true, true);
    assert_null(self.between);
}

static void common_free_while_a_copy_is_written_waits_for_nobody(void **state)
{
    struct gs_wire_copy copy = {.zero = 0};
    int fd;

    (void)state;
    offer_while(free_meanwhile);
    assert_true(gs_common_say(&copy, &fd)); /* the contents are good for others */
    gs_common_said(&copy);
}

/* --- a fork meanwhile --- */

static int count_open(void)
{
    int count = 0;
    char path[64], name[64];

    for (int fd = 0; fd < 4096; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        memset(name, 0, sizeof name);
        if (readlink(path, name, sizeof name - 1) > 0)
            count += strstr(name, "memfd:gpushare-copy") != NULL;
    }
    return count;
}

static void fork_meanwhile(void)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        gs_common_lost();
        gs_child_clear();
        _exit(count_open());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    self.leaked = WEXITSTATUS(status);
}

static void common_fork_while_a_copy_is_written_leaks_no_descriptor(void **state)
{
    struct gs_wire_copy copy = {.zero = 0};
    int fd;

    (void)state;
    offer_while(fork_meanwhile);
    assert_int_equal(self.leaked, 0);
    assert_true(gs_common_say(&copy, &fd)); /* the parent still has it */
    gs_common_said(&copy);
    assert_int_equal(count_open(), 0);
}

/* --- holes --- */

/* Under a limit the kernel kills a program that reads a hole, since that makes memory. */
static void common_hole_of_an_offer_is_never_read(void **state)
{
    struct stat before, after;
    int fd;

    (void)state;
    have_copies(1, false);
    fd = write_offer(chunk_of(0)->host, 1);
    assert_int_equal(fstat(fd, &before), 0);
    hear(fd, false);
    do_all();
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(after.st_blocks, before.st_blocks);
    assert_int_equal(count_common(1), 0);
    hear(fd, false); /* the same with nothing but holes */
    close(fd);
    fd = write_offer(chunk_of(0)->host, 0);
    hear(fd, false);
    do_all();
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(after.st_blocks, 0);
    close(fd);
}

static void share_one(bool empty)
{
    have_copies(1, empty);
    hear_copy(false);
    do_all();
    assert_int_equal(count_common(1), 1);
    assert_true(gs_host_needs_stage(chunk_of(0)->host));
    tend_all();
}

static void common_hole_of_an_offer_is_as_good_as_zeros(void **state)
{
    (void)state;
    share_one(true);
}

/* The kernel looks at all pages up to the next hole, each time. */
static void common_offer_without_holes_is_searched_once(void **state)
{
    int fd;

    (void)state;
    have_copies(1, false);
    fd = write_offer(chunk_of(0)->host, BLOCKS);
    self.seeks = 0;
    hear(fd, false);
    close(fd);
    assert_int_equal(self.seeks, 1);
    do_all();
    assert_int_equal(count_common(1), 1);
}

/* --- accounts --- */

static void common_memory_of_several_copies_counts_once(void **state)
{
    (void)state;
    have_copies(3, false);
    hear_copy(false);
    do_all();
    assert_int_equal(count_common(3), 3);
    assert_int_equal(count_mapped(), 1);
    assert_int_equal(gs_host_foreign(), BYTES);
    card_free(&card.blocks[1]);
    card_free(&card.blocks[0]);
    assert_int_equal(gs_host_foreign(), BYTES);
    card_free(&card.blocks[2]);
    assert_int_equal(gs_host_foreign(), BYTES); /* it is there until it is released */
    tend_all();
    assert_int_equal(gs_host_foreign(), 0);
}

/* Offers that have the same beginning are told apart by all of it, and each copy is looked at. */
static void common_copies_that_differ_late_stay_apart(void **state)
{
    int fd;

    (void)state;
    have_copies(3, false);
    fd = write_offer(chunk_of(0)->host, BLOCKS);
    chunk_of(0)->host->memory[BYTES - 1] ^= 1;
    chunk_of(2)->host->memory[BYTES / 2] ^= 1;
    hear(fd, false);
    close(fd);
    do_all();
    assert_null(chunk_of(0)->host->common);
    assert_non_null(chunk_of(1)->host->common);
    assert_null(chunk_of(2)->host->common);
}

/* --- registered for reading --- */

static void common_memory_is_copied_by_the_driver_alone(void **state)
{
    CUcontext context;
    uint64_t used;
    char *memory;

    (void)state;
    share_one(false);
    context = gs_context_for(card.device)->handle;
    memory = chunk_of(0)->host->memory;
    assert_int_equal(self.registered, 1);
    assert_false(gs_host_needs_stage(chunk_of(0)->host));
    used = gs_host_used();
    out_and_in();
    card_check_contents();
    assert_int_equal(count_common(1), 1);
    assert_int_equal(gs_host_used(), used); /* there is no stage */
    assert_int_equal(card.driver.cuMemHostUnregister(memory), CUDA_SUCCESS);
    gs_host_context_ended(context);
    assert_true(gs_host_needs_stage(chunk_of(0)->host));
    tend_all();
    assert_int_equal(self.registered, 2);
    card_free(&card.blocks[0]);
    gs_common_step(gs_now() + 100 * S, false, true); /* the offer ends */
    assert_int_equal(count_mapped(), 1); /* the driver has it until the client thread looks */
    tend_all();
    assert_int_equal(count_mapped(), 0);
    assert_int_equal(card.driver.cuMemHostUnregister(memory),
                     CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* Else its registration would outlive it, and something else may lie at its address later. */
static void common_memory_that_has_ended_is_registered_no_more(void **state)
{
    char *memory;

    (void)state;
    share_one(false);
    memory = chunk_of(0)->host->memory;
    gs_common_step(gs_now() + 100 * S, false, true); /* the offer ends */
    card_free(&card.blocks[0]);
    assert_false(gs_host_register_one());
    assert_int_equal(count_mapped(), 1);
    tend_all();
    assert_int_equal(count_mapped(), 0);
    assert_int_equal(card.driver.cuMemHostUnregister(memory),
                     CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* The driver cannot do it; or to do it would fill holes. */
static void common_memory_that_is_not_registered_is_staged(void **state)
{
    const uint64_t used = gs_host_used();

    (void)state;
    for (unsigned holes = 0; holes < 2; holes++) {
        self.refuses = holes == 0;
        share_one(holes == 1);
        assert_int_equal(self.registered, 0);
        out_and_in();
        if (holes == 0)
            card_check_contents();
        assert_true(gs_host_needs_stage(chunk_of(0)->host));
        assert_true(gs_host_used() >= used + GS_COMMON_STAGE);
        card_free(&card.blocks[0]);
    }
}

/* --- the word that an offer was taken --- */

static bool says_taken(void)
{
    struct gs_wire_copy copy = {.zero = 0};
    int fd;

    if (!gs_common_say(&copy, &fd))
        return false;
    assert_int_equal(fd, -1);
    assert_int_equal(copy.number, self.number);
    gs_common_said(&copy);
    return true;
}

/* Only who has it says so: else the sender would put its copy into memory that is slower to copy, for
 * nobody. */
static void common_offer_is_taken_only_if_it_is_the_same(void **state)
{
    int fd;

    (void)state;
    have_copies(2, false);
    fd = write_offer(chunk_of(0)->host, BLOCKS);
    for (unsigned i = 0; i < 2; i++)
        chunk_of(i)->host->memory[BYTES - 1] ^= 1;
    hear(fd, false);
    do_all();
    assert_false(says_taken());
    for (unsigned i = 0; i < 2; i++)
        chunk_of(i)->host->memory[BYTES - 1] ^= 1;
    hear(fd, false);
    close(fd);
    do_all();
    assert_true(says_taken());
    assert_false(says_taken());
    assert_int_equal(count_common(2), 2);
}

/* While an offer can be taken its sender still has it, whatever the two have to do: what the one takes
 * after the other has let it go is shared by nobody. */
static void common_offer_lasts_longer_at_its_sender(void **state)
{
    uint64_t lasts[2] = {0};

    (void)state;
    have_copies(1, false);
    for (unsigned own = 0; own < 2; own++) {
        hear_copy(own != 0);
        while (count_mapped() != 0 && lasts[own] < 60 * S)
            gs_common_step(self.heard + (lasts[own] += S / 2), false, true);
    }
    assert_in_range(lasts[0], S, 60 * S);
    assert_true(lasts[1] >= lasts[0] + S);
}

/* The other may take it late: then its sender has time for it from that moment on. */
static void common_offer_that_is_taken_late_is_shared(void **state)
{
    const struct gs_descriptors none = {.count = 0};
    struct gs_wire_copy word = {.bytes = 1};

    (void)state;
    have_copies(1, false);
    hear_copy(true);
    word.number = self.number;
    self.late = 2500 * (S / 1000);
    gs_common_heard(&word, &none);
    self.heard = gs_now();
    do_all();
    assert_int_equal(count_common(1), 1);
}

/* --- time --- */

/* The thread may have no idle moment for long, for example while submitted work does not end: what
 * others have offered, and what nobody has taken, is let go all the same. Until then memory of its own
 * counts here: no other program counts it. */
static void common_offers_age_without_an_idle_moment(void **state)
{
    uint64_t used;

    (void)state;
    have_copies(1, false);
    used = gs_host_used();
    for (unsigned own = 0; own < 2; own++) {
        hear_copy(own);
        assert_int_equal(count_mapped(), 1);
        gs_common_step(self.heard, false, true);
        assert_int_equal(count_mapped(), 1);
        assert_int_equal(gs_host_used(), used + own * BYTES);
        gs_common_step(self.heard + 11 * S, false, true);
        assert_int_equal(count_mapped(), 0);
        assert_int_equal(gs_host_used(), used);
    }
    assert_int_equal(count_common(1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(common_free_while_a_copy_is_compared_waits_for_nobody, end),
        cmocka_unit_test_teardown(common_free_while_a_copy_is_written_waits_for_nobody, end),
        cmocka_unit_test_teardown(common_fork_while_a_copy_is_written_leaks_no_descriptor, end),
        cmocka_unit_test_teardown(common_hole_of_an_offer_is_never_read, end),
        cmocka_unit_test_teardown(common_hole_of_an_offer_is_as_good_as_zeros, end),
        cmocka_unit_test_teardown(common_offer_without_holes_is_searched_once, end),
        cmocka_unit_test_teardown(common_memory_of_several_copies_counts_once, end),
        cmocka_unit_test_teardown(common_copies_that_differ_late_stay_apart, end),
        cmocka_unit_test_teardown(common_memory_is_copied_by_the_driver_alone, end),
        cmocka_unit_test_teardown(common_memory_that_has_ended_is_registered_no_more, end),
        cmocka_unit_test_teardown(common_memory_that_is_not_registered_is_staged, end),
        cmocka_unit_test_teardown(common_offer_is_taken_only_if_it_is_the_same, end),
        cmocka_unit_test_teardown(common_offer_lasts_longer_at_its_sender, end),
        cmocka_unit_test_teardown(common_offer_that_is_taken_late_is_shared, end),
        cmocka_unit_test_teardown(common_offers_age_without_an_idle_moment, end),
    };

    return cmocka_run_group_tests(tests, card_setup, card_teardown);
}
