/* SPDX-License-Identifier: Apache-2.0
 *
 * test_swap.c: which chunks are hashed and copied when, on the way out. The kernels are played: they read
 * no memory, so a card of 1.5 GiB takes little.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "runtime/swap/swap.h"
#include "tests/runtime/swap/small_card.h"

#define CHUNKS 24u
#define CHUNK  (64 * MIB)

static struct {
    unsigned launched;
    CUstream stream[CHUNKS]; /* of each launch */
    bool other;              /* the chunks hold something that the host has not */
    unsigned copies, beside; /* under way, by what was waited for; the most at a time */
    uint64_t copied;
    CUstream awaited[CHUNKS]; /* since waits fail */
    unsigned awaited_count, waits;
    bool fails; /* every other wait */
} self;

static CUresult launch(CUfunction kernel, unsigned x, unsigned y, unsigned z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                       void **params, void **extra)
{
    uint64_t *hashes = *(uint64_t **)params[5];

    (void)kernel, (void)y, (void)z, (void)block_x, (void)block_y, (void)block_z, (void)shared;
    (void)extra;
    assert_true(self.launched < CHUNKS);
    self.stream[self.launched++] = stream;
    for (unsigned i = 0; i < 2 * x; i++)
        hashes[i] = self.other; /* else they are zeros, which need no copy */
    return CUDA_SUCCESS;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    self.copied += bytes;
    self.beside = ++self.copies > self.beside ? self.copies : self.beside;
    return card.driver.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

static CUresult await_stream(CUstream stream)
{
    self.copies = 0;
    if (self.fails && ++self.waits % 2 == 0)
        return CUDA_ERROR_UNKNOWN;
    if (self.fails && self.awaited_count < CHUNKS)
        self.awaited[self.awaited_count++] = stream;
    return card.driver.cuStreamSynchronize(stream);
}

static int begin(void **state)
{
    setenv("SIMCUDA_MEMORY", "2GiB", 1);
    card.room = CHUNKS * CHUNK;
    if (card_setup(state) != 0)
        return -1;
    atomic_store(&card.device->target.budget, CHUNKS * CHUNK);
    gs_driver.cuLaunchKernel = launch;
    gs_driver.cuMemcpyDtoHAsync_v2 = copy_out;
    gs_driver.cuStreamSynchronize = await_stream;
    return 0;
}

static void leave(unsigned chunks)
{
    for (unsigned i = 0; i < chunks; i++)
        assert_int_equal(gs_swap_out(card.device, (CHUNKS - i) * CHUNK), GS_SWAP_MOVED);
}

static void have_blocks(unsigned count, uint64_t bytes, bool other)
{
    card_begin(1, 0);
    for (unsigned i = 0; i < count; i++)
        assert_true(card_allocate(&card.blocks[i], bytes));
    card_stop();
    memset(&self, 0, sizeof self);
    self.other = other;
}

/* One chunk keeps a part of the card's processors busy, so several are hashed beside each other. */
static void chunks_are_hashed_beside_each_other(void **state)
{
    unsigned streams = 1;

    (void)state;
    have_blocks(1, CHUNKS * CHUNK, false);
    leave(1);
    while (streams < self.launched && self.stream[streams] != self.stream[0])
        streams++;
    assert_true(streams >= 4);
}

static void chunks_that_wait_for_the_bus_are_not_hashed_all(void **state)
{
    (void)state;
    have_blocks(1, CHUNKS * CHUNK, true);
    leave(3);
    assert_true(self.launched < CHUNKS);
    assert_true(self.beside > 1); /* the bus does not wait for this thread */
}

/* While a copy engine copies out, the next program waits 1 ms for each chunk that it maps; in this time
 * a small chunk could be copied several times. */
static void small_chunks_are_copied_with_gaps(void **state)
{
    (void)state;
    have_blocks(CARD_BLOCKS, 20 * MIB, true);
    leave(1);
    assert_int_equal(self.copied, 2 * (20 * MIB)); /* the second meanwhile */
    leave(CARD_BLOCKS - 1);
    assert_int_equal(self.copied, CARD_BLOCKS * (20 * MIB));
    assert_int_equal(self.beside, 1);
}

static bool is_awaited(CUstream stream)
{
    unsigned i = 0;

    while (i < self.awaited_count && self.awaited[i] != stream)
        i++;
    return i < self.awaited_count;
}

/* Else memory that a kernel still reads could be freed. */
static void hashing_ends_though_waits_fail(void **state)
{
    (void)state;
    have_blocks(1, CHUNKS * CHUNK, true);
    leave(1);
    self.fails = true;
    gs_swap_settle();
    self.fails = false;
    for (unsigned i = 0; i < self.launched; i++)
        assert_true(is_awaited(self.stream[i]));
}

static int end(void **state)
{
    uint64_t lacking;

    (void)state;
    gs_swap_settle();
    card_return_memory();
    gs_swap_in(card.device, CHUNKS * CHUNK, -1, &lacking);
    card_go_on();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(chunks_are_hashed_beside_each_other, end),
        cmocka_unit_test_teardown(chunks_that_wait_for_the_bus_are_not_hashed_all, end),
        cmocka_unit_test_teardown(small_chunks_are_copied_with_gaps, end),
        cmocka_unit_test_teardown(hashing_ends_though_waits_fail, end),
    };

    return cmocka_run_group_tests(tests, begin, card_teardown);
}
