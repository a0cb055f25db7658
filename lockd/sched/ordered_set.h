/* SPDX-License-Identifier: Apache-2.0
 *
 * ordered_set.h: an ordered set whose links live inside the elements: a list in order of key, then
 * of number, to which most elements are added near its end. All is O(1), but for insertion. For one
 * thread.
 */
#pragma once

#include "lockd/base/list.h"

struct sched_order { /* all zero: empty */
    struct lockd_list nodes;
    uint32_t count;
};

struct sched_node {
    struct lockd_list link;
    struct sched_order *of; /* NULL: it is in none */
    uint64_t key, number;   /* may be written while it is in none */
};

static inline bool sched_node_is_before(const struct sched_node *a, const struct sched_node *b)
{
    return a->key != b->key ? a->key < b->key : a->number < b->number;
}

static inline void sched_order_insert(struct sched_order *order, struct sched_node *node)
{
    struct lockd_list *next = &order->nodes;

    while (order->count != 0 && next->prev != &order->nodes &&
           sched_node_is_before(node, lockd_entry(next->prev, struct sched_node, link)))
        next = next->prev;
    lockd_list_append(next, &node->link);
    node->of = order;
    order->count++;
}

static inline void sched_order_remove(struct sched_node *node)
{
    if (node->of == NULL)
        return;
    lockd_list_remove(&node->link);
    node->of->count--;
    node->of = NULL;
}
