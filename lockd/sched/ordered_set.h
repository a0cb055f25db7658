/* SPDX-License-Identifier: Apache-2.0
 *
 * ordered_set.h: an ordered set whose links live inside the elements: a list in order of key, then
 * of number, to which most elements are added near its end. An element is found by a look at those
 * before it; all else is O(1), but for insertion. For one thread.
 */
#pragma once

#include "lockd/base/list.h"

struct sched_node {
    struct lockd_list link;
    uint64_t key, number; /* may be written while it is in no order */
    uint64_t value;       /* for sched_order_find() */
};

struct sched_order { /* all zero: empty */
    struct lockd_list nodes;
    uint32_t count;
};

static inline bool sched_order_has(const struct sched_node *node)
{
    return node->link.next != NULL;
}

static inline struct sched_node *sched_order_at(const struct sched_order *order,
                                                struct lockd_list *link)
{
    return link == NULL || link == &order->nodes ? NULL
                                                 : lockd_entry(link, struct sched_node, link);
}

static inline struct sched_node *sched_order_first(const struct sched_order *order)
{
    return sched_order_at(order, order->nodes.next);
}

static inline struct sched_node *sched_order_last(const struct sched_order *order)
{
    return sched_order_at(order, order->nodes.prev);
}

static inline struct sched_node *sched_order_next(const struct sched_order *order,
                                                  const struct sched_node *node)
{
    return sched_order_at(order, node->link.next);
}

static inline void sched_order_insert(struct sched_order *order, struct sched_node *node)
{
    struct sched_node *at = sched_order_last(order);
    struct lockd_list *before = &order->nodes;

    while (at != NULL &&
           (at->key != node->key ? at->key > node->key : at->number > node->number)) {
        before = &at->link;
        at = sched_order_at(order, at->link.prev);
    }
    lockd_list_append(before, &node->link);
    order->count++;
}

static inline void sched_order_remove(struct sched_order *order, struct sched_node *node)
{
    lockd_list_remove(&node->link);
    order->count--;
}

/* The first in order whose value is at most that, or NULL. */
static inline struct sched_node *sched_order_find(const struct sched_order *order,
                                                  uint64_t most)
{
    struct sched_node *at = sched_order_first(order);

    while (at != NULL && at->value > most)
        at = sched_order_next(order, at);
    return at;
}
