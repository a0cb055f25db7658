/* SPDX-License-Identifier: Apache-2.0
 *
 * test_range_tree.c: the treap of ranges against a plain array. Owns nothing but its nodes; one
 * thread.
 *
 * The address space is cut into slots; a slot is either free or holds one range somewhere
 * inside it, so ranges never overlap and every address has a known answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/range/range_tree.h"
#include "tests/runtime/random.h"

#define SLOTS      512u
#define SLOT_BYTES 4096u
#define BASE       0x7f0000000000u

struct model {
    struct gs_range_tree tree;
    struct gs_range_tree_node nodes[SLOTS];
    bool present[SLOTS];
};

static uint64_t slot_base(unsigned slot)
{
    return BASE + (uint64_t)slot * SLOT_BYTES;
}

static void insert_at(struct model *model, unsigned slot, uint64_t *seed)
{
    struct gs_range_tree_node *node = &model->nodes[slot];
    const uint64_t from = random_below(seed, SLOT_BYTES);

    memset(node, 0xa5, sizeof *node); /* whatever was there must not matter */
    node->base = slot_base(slot) + from;
    node->size = 1 + random_below(seed, SLOT_BYTES - from);
    gs_range_tree_insert(&model->tree, node);
    model->present[slot] = true;
}

static struct gs_range_tree_node *find_expected(struct model *model, uint64_t address)
{
    const uint64_t slot = (address - BASE) / SLOT_BYTES;
    struct gs_range_tree_node *node;

    if (address < BASE || slot >= SLOTS || !model->present[slot])
        return NULL;
    node = &model->nodes[slot];
    return address >= node->base && address - node->base < node->size ? node : NULL;
}

static void check_edges(struct model *model, unsigned slot)
{
    const struct gs_range_tree_node *node = &model->nodes[slot];

    if (!model->present[slot])
        return;
    assert_ptr_equal(gs_range_tree_find(&model->tree, node->base), node);
    assert_ptr_equal(gs_range_tree_find(&model->tree, node->base + node->size - 1), node);
    assert_ptr_equal(gs_range_tree_find(&model->tree, node->base - 1),
                     find_expected(model, node->base - 1));
    assert_ptr_equal(gs_range_tree_find(&model->tree, node->base + node->size),
                     find_expected(model, node->base + node->size));
}

static void check_first(struct model *model, uint64_t *seed)
{
    const uint64_t from = random_below(seed, (uint64_t)SLOTS * SLOT_BYTES);
    const uint64_t size = random_below(seed, 8 * (uint64_t)SLOT_BYTES);
    struct gs_range_tree_node *lowest = NULL;

    for (unsigned slot = 0; slot < SLOTS && lowest == NULL; slot++) {
        struct gs_range_tree_node *node = &model->nodes[slot];

        if (model->present[slot] && size != 0 && node->base < BASE + from + size &&
            node->base + node->size > BASE + from)
            lowest = node;
    }
    if (size != 0)
        assert_ptr_equal(gs_range_tree_first(&model->tree, BASE + from, size), lowest);
}

static unsigned measure_depth(const struct gs_range_tree_node *node)
{
    unsigned left, right;

    if (node == NULL)
        return 0;
    left = measure_depth(node->left);
    right = measure_depth(node->right);
    return 1 + (left > right ? left : right);
}

static void run_sequence(uint64_t seed, unsigned steps)
{
    struct model model;

    memset(&model, 0, sizeof model);
    for (unsigned i = 0; i < steps; i++) {
        const unsigned slot = (unsigned)random_below(&seed, SLOTS);
        const uint64_t address = BASE + random_below(&seed, (uint64_t)SLOTS * SLOT_BYTES);

        if (!model.present[slot]) {
            insert_at(&model, slot, &seed);
        } else if (random_below(&seed, 4) ==
                   0) { /* no range begins one byte behind this one's first byte */
            assert_null(gs_range_tree_remove(&model.tree, model.nodes[slot].base + 1));
        } else {
            assert_ptr_equal(gs_range_tree_remove(&model.tree, model.nodes[slot].base),
                             &model.nodes[slot]);
            model.present[slot] = false;
            assert_null(gs_range_tree_remove(&model.tree, model.nodes[slot].base));
        }
        check_edges(&model, slot);
        assert_ptr_equal(gs_range_tree_find(&model.tree, address),
                         find_expected(&model, address));
        if (i % 16 == 0)
            check_first(&model, &seed);
    }
    for (unsigned slot = 0; slot < SLOTS; slot++)
        check_edges(&model, slot);
}

static void tree_random_sequences_agree_with_array(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++)
        run_sequence(seed, 4000);
}

static void tree_ascending_insertions_stay_shallow(void **state)
{
    struct model model;
    uint64_t seed = 7;

    (void)state;
    memset(&model, 0, sizeof model);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        insert_at(&model, slot, &seed);
    /* log2(512) = 9; a treap of 512 nodes deeper than 50 has a probability below 1e-9 */
    assert_in_range(measure_depth(model.tree.root), 9, 50);
}

static void tree_empty_finds_nothing(void **state)
{
    struct gs_range_tree tree = {0};

    (void)state;
    assert_null(gs_range_tree_find(&tree, 0));
    assert_null(gs_range_tree_find(&tree, UINT64_MAX));
    assert_null(gs_range_tree_remove(&tree, 0));
}

static void tree_range_at_end_of_address_space_is_found(void **state)
{
    struct gs_range_tree tree = {0};
    struct gs_range_tree_node last = {.base = UINT64_MAX - 15, .size = 16},
                              first = {.base = 0, .size = 1};

    (void)state;
    gs_range_tree_insert(&tree, &last);
    gs_range_tree_insert(&tree, &first);
    assert_ptr_equal(gs_range_tree_find(&tree, UINT64_MAX), &last);
    assert_ptr_equal(gs_range_tree_find(&tree, 0), &first);
    assert_null(gs_range_tree_find(&tree, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_random_sequences_agree_with_array),
        cmocka_unit_test(tree_ascending_insertions_stay_shallow),
        cmocka_unit_test(tree_empty_finds_nothing),
        cmocka_unit_test(tree_range_at_end_of_address_space_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
