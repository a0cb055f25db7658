/* SPDX-License-Identifier: Apache-2.0
 *
 * range_tree.c: the treap (Seidel and Aragon, 1996): a search tree by base, a heap by random
 * priority. No state of its own.
 */
#include "runtime/range/range_tree.h"

static uint32_t next_random(uint32_t *seed)
{
    if (*seed == 0)
        *seed = 2463534242u;
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/* splits tree into nodes below base and the others */
static void split_tree(struct gs_range_tree_node *tree, uint64_t base,
                       struct gs_range_tree_node **low, struct gs_range_tree_node **high)
{
    while (tree != NULL) {
        if (tree->base < base) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = NULL;
    *high = NULL;
}

static void merge_trees(struct gs_range_tree_node **out, struct gs_range_tree_node *low,
                        struct gs_range_tree_node *high)
{
    while (low != NULL && high != NULL) {
        if (low->priority > high->priority) {
            *out = low;
            out = &low->right;
            low = low->right;
        } else {
            *out = high;
            out = &high->left;
            high = high->left;
        }
    }
    *out = low != NULL ? low : high;
}

void gs_range_tree_insert(struct gs_range_tree *tree, struct gs_range_tree_node *node)
{
    struct gs_range_tree_node **at = &tree->root;

    node->priority = next_random(&tree->seed);
    while (*at != NULL && (*at)->priority >= node->priority)
        at = node->base < (*at)->base ? &(*at)->left : &(*at)->right;
    split_tree(*at, node->base, &node->left, &node->right);
    *at = node;
}

struct gs_range_tree_node *gs_range_tree_remove(struct gs_range_tree *tree, uint64_t base)
{
    struct gs_range_tree_node **at = &tree->root, *node;

    while (*at != NULL && (*at)->base != base)
        at = base < (*at)->base ? &(*at)->left : &(*at)->right;
    node = *at;
    if (node != NULL)
        merge_trees(at, node->left, node->right);
    return node;
}

struct gs_range_tree_node *gs_range_tree_overlap(const struct gs_range_tree *tree,
                                                 uint64_t base, uint64_t size)
{
    struct gs_range_tree_node *node = tree->root;

    while (node != NULL) {
        if (node->base >= base && node->base - base >= size)
            node = node->left;
        else if (base >= node->base && base - node->base >= node->size)
            node = node->right;
        else
            return node;
    }
    return NULL;
}

struct gs_range_tree_node *gs_range_tree_first(const struct gs_range_tree *tree, uint64_t base,
                                               uint64_t size)
{
    struct gs_range_tree_node *node = gs_range_tree_overlap(tree, base, size), *lower = node;

    while (lower != NULL && lower->base > base) {
        node = lower;
        lower = gs_range_tree_overlap(tree, base, node->base - base);
    }
    return lower != NULL ? lower : node;
}

struct gs_range_tree_node *gs_range_tree_find(const struct gs_range_tree *tree,
                                              uint64_t address)
{
    return gs_range_tree_overlap(tree, address, 1);
}
