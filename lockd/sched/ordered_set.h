/* SPDX-License-Identifier: Apache-2.0
 *
 * ordered_set.h: an ordered set whose links live inside the elements (a treap). Elements are
 * ordered by key, then by number; every subtree knows the lowest value in it, so that the first
 * element in order with a value that is low enough is found without looking at the others.
 *
 * Insertion, removal, a change of value and find: O(log n) expected. For one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sched_node {
    struct sched_node *parent, *left, *right;
    uint64_t key, number; /* may be written while it is in no order */
    uint64_t value;       /* changed with sched_order_value() */
    uint64_t lowest;      /* value here and below */
    uint64_t shuffle;     /* keeps the tree flat: a parent's is lower than its children's */
    bool in;
};

struct sched_order { /* all zero: empty */
    struct sched_node *root;
    uint64_t random;
    uint32_t count;
};

void sched_order_insert(struct sched_order *order, struct sched_node *node);
void sched_order_remove(struct sched_order *order, struct sched_node *node);
void sched_order_value(struct sched_node *node, uint64_t value);
struct sched_node *sched_order_first(const struct sched_order *order);
struct sched_node *sched_order_last(const struct sched_order *order);
struct sched_node *sched_order_next(const struct sched_node *node);
/* The first in order whose value is at most that, or NULL. */
struct sched_node *sched_order_find(const struct sched_order *order, uint64_t most);
