/* SPDX-License-Identifier: Apache-2.0
 *
 * range_tree.h: a treap of address ranges that do not overlap; O(log n) expected.
 */
#pragma once

#include "runtime/base/base.h"

struct gs_range_tree_node {
    uint64_t base, size; /* bytes; size > 0 */
    uint32_t priority;   /* set by the insertion */
    struct gs_range_tree_node *left, *right;
};

struct gs_range_tree {
    struct gs_range_tree_node *root;
    uint32_t seed;
};

/* No locks here: the caller has a lock. Nodes are the caller's; the range must not overlap a
 * range of the tree. */
void gs_range_tree_insert(struct gs_range_tree *tree, struct gs_range_tree_node *node);

/* Takes the node with this base out and returns it; NULL if there is none. */
struct gs_range_tree_node *gs_range_tree_remove(struct gs_range_tree *tree, uint64_t base);

/* The node whose range contains address; NULL if there is none. */
struct gs_range_tree_node *gs_range_tree_find(const struct gs_range_tree *tree,
                                              uint64_t address);

/* The lowest node that shares an address with the size bytes from base on; NULL if none does.
 */
struct gs_range_tree_node *gs_range_tree_first(const struct gs_range_tree *tree, uint64_t base,
                                               uint64_t size);

/* A node that shares an address with the size bytes from base on; NULL if none does. */
struct gs_range_tree_node *gs_range_tree_overlap(const struct gs_range_tree *tree,
                                                 uint64_t base, uint64_t size);
