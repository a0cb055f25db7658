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

static uint64_t lower_of(uint64_t value, const struct sched_node *node)
{
    return node != NULL && node->lowest < value ? node->lowest : value;
}

/* What a node says of its subtree, which has changed. */
static struct sched_node *refresh_node(struct sched_node *node)
{
    node->lowest = lower_of(lower_of(node->value, node->left), node->right);
    if (node->left != NULL)
        node->left->parent = node;
    if (node->right != NULL)
        node->right->parent = node;
    return node;
}

static void refresh_up(struct sched_node *node)
{
    for (; node != NULL; node = node->parent)
        refresh_node(node);
}

/* One tree of two; all of `a` is before all of `b`. */
static struct sched_node *join_trees(struct sched_node *a, struct sched_node *b)
{
    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    if (a->shuffle < b->shuffle) {
        a->right = join_trees(a->right, b);
        return refresh_node(a);
    }
    b->left = join_trees(a, b->left);
    return refresh_node(b);
}

/* Two trees of one: of the nodes before `node`, and of those after it. */
static void split_tree(struct sched_node *at, const struct sched_node *node,
                       struct sched_node **before, struct sched_node **after)
{
    if (at == NULL) {
        *before = *after = NULL;
    } else if (is_before(at, node)) {
        split_tree(at->right, node, &at->right, after);
        *before = refresh_node(at);
    } else {
        split_tree(at->left, node, before, &at->left);
        *after = refresh_node(at);
    }
}

void sched_order_insert(struct sched_order *order, struct sched_node *node)
{
    struct sched_node **place = &order->root, *parent = NULL;
    uint64_t x = order->random += 0x9e3779b97f4a7c15u; /* splitmix64 */

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    node->shuffle = x ^ (x >> 31);
    while (*place != NULL && (*place)->shuffle <= node->shuffle) {
        parent = *place;
        place = is_before(node, parent) ? &parent->left : &parent->right;
    }
    split_tree(*place, node, &node->left, &node->right);
    *place = node;
    node->parent = parent;
    node->in = true;
    order->count++;
    refresh_up(node);
}

void sched_order_remove(struct sched_order *order, struct sched_node *node)
{
    struct sched_node *parent = node->parent, *joined, **place;

    place = parent == NULL         ? &order->root
            : parent->left == node ? &parent->left
                                   : &parent->right;
    joined = join_trees(node->left, node->right);
    *place = joined;
    if (joined != NULL)
        joined->parent = parent;
    refresh_up(parent);
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
