/* SPDX-License-Identifier: Apache-2.0
 *
 * test_admit.c: an allocation that does not fit waits for what the program has just freed
 * (memory.c), and for a bounded time. On the simulated card, without a daemon's messages.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/daemon.h"
#include "runtime/base/mutex.h"
#include "runtime/range/range.h"
#include "runtime/range/shares.h"
#include "tests/runtime/swap/small_card.h"

#define LONG_NS 60000000000ull

static struct {
    _Atomic(bool) begun, over; /* over: the allocation has been answered */
    bool too_late;             /* not before LONG_NS */
} self;

static void unshare_once(const struct gs_range *range)
{
    static const uint8_t token[16] = {1};
    int theirs;
    struct gs_share *share = gs_share_new(token, &theirs);

    assert_non_null(share);
    close(theirs);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_share_link(share, range);
    gs_share_unlink(share);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_share_free(share);
}

/* Memory becomes the program's alone again and again. */
static void *unshare_on_and_on(void *range)
{
    const uint64_t until = gs_now() + LONG_NS;

    while (!atomic_load(&self.over) && !self.too_late) {
        unshare_once(range);
        atomic_store(&self.begun, true);
        usleep(10000);
        self.too_late = gs_now() >= until;
    }
    return NULL;
}

static void others_free_on_and_on_the_answer_still_comes(void **state)
{
    struct card_block *block = &card.blocks[0];
    pthread_t thread;

    (void)state;
    card_begin(1, 0);
    assert_true(card_allocate(block, CARD_ROOM + CARD_BEYOND - 64 * MIB));
    assert_int_equal(
        pthread_create(&thread, NULL, unshare_on_and_on, gs_range_at(block->address)), 0);
    while (!atomic_load(&self.begun))
        usleep(1000);
    assert_false(card_allocate(&card.blocks[1], 128 * MIB)); /* it never fits */
    atomic_store(&self.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(self.too_late);
    card_return_memory();
}

static void *read_later(void *socket)
{
    char byte;

    usleep(100000);
    assert_int_equal(read(*(const int *)socket, &byte, 1), 1);
    return NULL;
}

/* A budget does not count while a message of the daemon is unread; a daemon that has just come back
 * has one for the program, which counts as alone until it has read it. */
static void allocate_daemon_comes_back_takes_the_card(void **state)
{
    struct card_block *block = &card.blocks[0];
    pthread_t thread;
    int ends[2];

    (void)state;
    card_begin(1, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(write(ends[1], "", 1), 1);
    gs_daemon_set_socket(ends[0]);
    gs_daemon_set_absent(true);
    assert_int_equal(pthread_create(&thread, NULL, read_later, &ends[0]), 0);
    assert_true(card_allocate(block, 8 * MIB));
    assert_int_equal(pthread_join(thread, NULL), 0);
    gs_daemon_set_socket(-1);
    gs_daemon_set_absent(false);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(gs_range_at(block->address)->over, 0);
    card_return_memory();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_free_on_and_on_the_answer_still_comes),
        cmocka_unit_test(allocate_daemon_comes_back_takes_the_card),
    };

    return cmocka_run_group_tests(tests, card_setup, card_teardown);
}
