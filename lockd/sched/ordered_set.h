/* SPDX-License-Identifier: Apache-2.0
 *
 * ordered_set.h: an ordered set whose links live inside the elements (a treap). Elements are
 * ordered by key, then by number; every subtree knows the lowest value in it, so that the first
 * element in order with a value that is low enough is found without looking at the others.
 *
 * Insertion, removal, a change of value and find: O(log n) expected. One thread.
 */
#ifndef GS_LOCKD_SCHED_ORDERED_SET_H
#define GS_LOCKD_SCHED_ORDERED_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lockd_node {
    struct lockd_node *parent, *left, *right;
    uint64_t key, number; /* may be written while it is in no order */
    uint64_t value;       /* changed with lockd_order_value() */
    uint64_t lowest;      /* value here and below */
    uint64_t shuffle;     /* keeps the tree flat: a parent's is lower than its children's */
    bool in;
};

struct lockd_order { /* all zero: empty */
    struct lockd_node *root;
    uint64_t random;
    uint32_t count;
};

void lockd_order_insert(struct lockd_order *order, struct lockd_node *node);
/* Nothing happens when it is in none. */
void lockd_order_remove(struct lockd_order *order, struct lockd_node *node);
void lockd_order_value(struct lockd_node *node, uint64_t value);
struct lockd_node *lockd_order_first(const struct lockd_order *order);
struct lockd_node *lockd_order_last(const struct lockd_order *order);
struct lockd_node *lockd_order_next(const struct lockd_node *node);
/* The first in order whose value is at most that, or NULL. */
struct lockd_node *lockd_order_find(const struct lockd_order *order, uint64_t most);

#endif
