/* SPDX-License-Identifier: Apache-2.0
 *
 * ordered_set.c: the treap of ordered_set.h. Invariants: in order by (key, number); a node's
 * shuffle is not above its children's; lowest is the least value of the subtree. The numbers
 * that shuffle it come from a counter, so equal histories give equal trees.
 */
#include "lockd/sched/ordered_set.h"

static bool is_before(const struct sched_node *a, const struct sched_node *b)
{
    return a->key != b->key ? a->key < b->key : a->number < b->number;
}

static uint64_t next_shuffle(struct sched_order *order)
{
    uint64_t x = order->random += 0x9e3779b97f4a7c15u; /* splitmix64 */

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t lower_of(uint64_t value, const struct sched_node *node)
{
    return node != NULL && node->lowest < value ? node->lowest : value;
}

static void refresh_lowest(struct sched_node *node)
{
    node->lowest = lower_of(lower_of(node->value, node->left), node->right);
}

static void refresh_up(struct sched_node *node)
{
    for (; node != NULL; node = node->parent)
        refresh_lowest(node);
}

static void replace_child(struct sched_order *order, struct sched_node *parent,
                          const struct sched_node *old, struct sched_node *with)
{
    if (parent == NULL)
        order->root = with;
    else if (parent->left == old)
        parent->left = with;
    else
        parent->right = with;
    if (with != NULL)
        with->parent = parent;
}

/* Puts the node in the place of its parent, and the parent below it. */
static void rotate_up(struct sched_order *order, struct sched_node *node)
{
    struct sched_node *parent = node->parent, *inner;

    replace_child(order, parent->parent, parent, node);
    if (parent->left == node) {
        inner = node->right;
        node->right = parent;
        parent->left = inner;
    } else {
        inner = node->left;
        node->left = parent;
        parent->right = inner;
    }
    parent->parent = node;
    if (inner != NULL)
        inner->parent = parent;
    refresh_lowest(parent);
    refresh_lowest(node);
}

void sched_order_insert(struct sched_order *order, struct sched_node *node)
{
    struct sched_node *parent = NULL, *at = order->root;
    bool left = false;

    while (at != NULL) {
        parent = at;
        left = is_before(node, at);
        at = left ? at->left : at->right;
    }
    node->parent = parent;
    node->left = node->right = NULL;
    node->shuffle = next_shuffle(order);
    node->in = true;
    if (parent == NULL)
        order->root = node;
    else if (left)
        parent->left = node;
    else
        parent->right = node;
    order->count++;
    refresh_up(node);
    while (node->parent != NULL && node->shuffle < node->parent->shuffle)
        rotate_up(order, node);
    refresh_up(node->parent);
}

void sched_order_remove(struct sched_order *order, struct sched_node *node)
{
    struct sched_node *child;

    if (!node->in)
        return;
    while (node->left != NULL && node->right != NULL)
        rotate_up(order, node->left->shuffle < node->right->shuffle ? node->left : node->right);
    child = node->left != NULL ? node->left : node->right;
    replace_child(order, node->parent, node, child);
    refresh_up(node->parent);
    node->parent = node->left = node->right = NULL;
    node->in = false;
    order->count--;
}

void sched_order_value(struct sched_node *node, uint64_t value)
{
    if (node->value == value)
        return;
    node->value = value;
    if (node->in)
        refresh_up(node);
}

struct sched_node *sched_order_first(const struct sched_order *order)
{
    struct sched_node *at = order->root;

    while (at != NULL && at->left != NULL)
        at = at->left;
    return at;
}

struct sched_node *sched_order_last(const struct sched_order *order)
{
    struct sched_node *at = order->root;

    while (at != NULL && at->right != NULL)
        at = at->right;
    return at;
}

struct sched_node *sched_order_next(const struct sched_node *node)
{
    struct sched_node *at = node->right;

    if (at != NULL) {
        while (at->left != NULL)
            at = at->left;
        return at;
    }
    while (node->parent != NULL && node->parent->right == node)
        node = node->parent;
    return node->parent;
}

struct sched_node *sched_order_find(const struct sched_order *order, uint64_t most)
{
    struct sched_node *at = order->root;

    while (at != NULL) {
        if (at->left != NULL && at->left->lowest <= most)
            at = at->left;
        else if (at->value <= most)
            return at;
        else if (at->right != NULL && at->right->lowest <= most)
            at = at->right;
        else
            return NULL;
    }
    return NULL;
}
