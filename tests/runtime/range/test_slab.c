/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slab.c: pieces of slabs: no two live ones overlap, retired ones are not handed out
 * until they are revived or put back, pools do not share slabs, empty slabs go. Ranges are
 * plain memory here; no driver, one thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/range/slab.h"
#include "tests/runtime/random.h"

#define MAX_LIVE  600
#define MAX_SLABS 2000

static struct gs_device devices[2];

struct piece {
    struct gs_range *range;
    CUdeviceptr address;
    uint64_t bytes;
    CUcontext context;
    struct gs_device *device;
    struct gs_pool *pool;
};

static struct {
    struct gs_range *ranges[MAX_SLABS];
    unsigned range_count;
    struct piece live[MAX_LIVE];
    unsigned live_count;
} world;

static CUcontext context_of(unsigned i)
{
    return (CUcontext)(uintptr_t)(0x1000 + i * 16);
}

/* no pool, or one of two: they are only told apart here */
static struct gs_pool *pool_of(unsigned i)
{
    return i == 0 ? NULL : (struct gs_pool *)(uintptr_t)(0x2000 + i * 16);
}

static struct gs_range *new_range(struct gs_device *device, CUcontext context,
                                  struct gs_pool *pool)
{
    struct gs_range *range = calloc(1, sizeof *range + sizeof range->chunks[0]);

    assert_non_null(range);
    assert_in_range(world.range_count, 0, MAX_SLABS - 1);
    range->node.base = 0x700000000000u + (uint64_t)world.range_count * GS_SLAB_BYTES;
    range->node.size = GS_SLAB_BYTES;
    range->reserved = GS_SLAB_BYTES;
    range->device = device;
    range->context = context;
    range->pool = pool;
    world.ranges[world.range_count++] = range;
    return range;
}

static struct gs_range *range_of(CUdeviceptr address)
{
    return world.ranges[(address - 0x700000000000u) / GS_SLAB_BYTES];
}

static struct piece take_from(struct gs_device *device, CUcontext context, struct gs_pool *pool,
                              uint64_t bytes)
{
    struct piece piece = {.bytes = bytes, .context = context, .device = device, .pool = pool};

    piece.address = gs_slab_take(device, context, pool, bytes);
    if (piece.address == 0) {
        assert_true(gs_slab_make(new_range(device, context, pool), bytes));
        piece.address = gs_slab_take(device, context, pool, bytes);
    }
    assert_int_not_equal(piece.address, 0);
    piece.range = range_of(piece.address);
    return piece;
}

static struct piece take_piece(uint64_t bytes)
{
    return take_from(&devices[0], context_of(0), NULL, bytes);
}

static void check_fresh(const struct piece *piece)
{
    assert_ptr_equal(piece->range->device, piece->device);
    assert_ptr_equal(piece->range->context, piece->context);
    assert_ptr_equal(piece->range->pool, piece->pool);
    assert_int_equal(piece->address % 512, 0);
    assert_true(piece->address + piece->bytes <= piece->range->node.base + GS_SLAB_BYTES);
    for (unsigned i = 0; i < world.live_count; i++) {
        const struct piece *other = &world.live[i];

        assert_true(other->address + other->bytes <= piece->address ||
                    piece->address + piece->bytes <= other->address);
    }
}

static void check_found(const struct piece *piece)
{
    const uint64_t inside[] = {0, piece->bytes / 2, piece->bytes - 1};
    CUdeviceptr base;
    uint64_t bytes;

    for (unsigned i = 0; i < 3; i++) {
        assert_true(gs_slab_piece(piece->range, piece->address + inside[i], &base, &bytes));
        assert_int_equal(base, piece->address);
        assert_int_equal(bytes, piece->bytes);
    }
    if (piece->bytes % 512 != 0) /* the rest of the piece is nobody's */
        assert_false(gs_slab_piece(piece->range, piece->address + piece->bytes, &base, &bytes));
}

static void release_piece(unsigned i)
{
    const struct piece piece = world.live[i];
    CUdeviceptr base;
    uint64_t bytes;

    check_found(&piece);
    if (piece.bytes > 1)
        assert_false(gs_slab_retire(piece.range, piece.address + 1));
    assert_true(gs_slab_retire(piece.range, piece.address));
    assert_false(gs_slab_retire(piece.range, piece.address)); /* freed twice */
    assert_false(gs_slab_piece(piece.range, piece.address, &base, &bytes));
    world.live[i] = world.live[--world.live_count];
    if (gs_slab_put(piece.range, piece.address)) {
        for (unsigned other = 0; other < world.live_count; other++)
            assert_ptr_not_equal(world.live[other].range, piece.range);
        gs_slab_free(piece.range->slab);
        piece.range->slab = NULL;
    }
}

static void reset_slabs(void)
{
    for (unsigned i = 0; i < world.range_count; i++) {
        gs_slab_free(world.ranges[i]->slab);
        free(world.ranges[i]);
    }
    memset(&world, 0, sizeof world);
}

static void run_sequence(uint64_t seed)
{
    for (unsigned step = 0; step < 3000 && world.range_count < MAX_SLABS - 1; step++) {
        if (world.live_count == MAX_LIVE ||
            (world.live_count != 0 && random_below(&seed, 5) < 2)) {
            release_piece((unsigned)random_below(&seed, world.live_count));
        } else {
            const uint64_t limit = 1ull << random_below(&seed, GS_SLAB_MAX_SHIFT + 1);
            const struct piece piece = take_from(
                &devices[random_below(&seed, 2)], context_of((unsigned)random_below(&seed, 2)),
                pool_of((unsigned)random_below(&seed, 3)), 1 + random_below(&seed, limit));

            check_fresh(&piece);
            world.live[world.live_count++] = piece;
        }
    }
    while (world.live_count != 0)
        release_piece(world.live_count - 1);
}

static void slab_random_sequences_never_overlap(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        run_sequence(seed);
        reset_slabs();
    }
}

static void slab_put_the_last_piece_empties_it(void **state)
{
    const struct piece first = take_piece(100), second = take_piece(100);

    (void)state;
    assert_ptr_equal(first.range, second.range);
    assert_int_equal(gs_slab_asked(first.range->slab), 200);
    assert_true(gs_slab_retire(first.range, first.address));
    assert_true(gs_slab_retire(first.range, second.address));
    assert_int_equal(gs_slab_asked(first.range->slab), 0);
    assert_false(gs_slab_put(first.range, first.address));
    assert_true(gs_slab_put(first.range, second.address));
    assert_int_equal(gs_slab_take(&devices[0], context_of(0), NULL, 100),
                     0); /* out of the list */
    reset_slabs();
}

static void slab_revived_piece_is_live_again(void **state)
{
    const struct piece piece = take_piece(700);
    CUdeviceptr base;
    uint64_t bytes;

    (void)state;
    assert_true(gs_slab_retire(piece.range, piece.address));
    gs_slab_revive(piece.range, piece.address, 900);
    assert_true(gs_slab_piece(piece.range, piece.address + 899, &base, &bytes));
    assert_int_equal(base, piece.address);
    assert_int_equal(bytes, 900);
    assert_int_not_equal(take_piece(700).address, piece.address);
    assert_true(gs_slab_retire(piece.range, piece.address));
    reset_slabs();
}

static void slab_retired_piece_is_not_handed_out(void **state)
{
    struct piece first = take_piece(GS_SLAB_MAX_BYTES), second, third;

    (void)state;
    assert_true(gs_slab_retire(first.range, first.address));
    second = take_piece(GS_SLAB_MAX_BYTES);
    third = take_piece(GS_SLAB_MAX_BYTES);
    assert_int_not_equal(second.address, first.address);
    assert_int_not_equal(third.address, first.address);
    assert_ptr_not_equal(third.range, first.range); /* two pieces of 1 MiB to a slab */
    gs_slab_put(first.range, first.address);
    reset_slabs();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slab_random_sequences_never_overlap),
        cmocka_unit_test(slab_put_the_last_piece_empties_it),
        cmocka_unit_test(slab_revived_piece_is_live_again),
        cmocka_unit_test(slab_retired_piece_is_not_handed_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
