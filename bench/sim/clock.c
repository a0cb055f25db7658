/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c: timers under a virtual clock, on a binary heap whose elements know their place, so
 * that they can be moved and removed. Invariant: nodes[i]->place == i + 1.
 */
#include "bench/sim/clock.h"

#include <stdio.h>
#include <stdlib.h>

void *sim_new(size_t count, size_t size)
{
    void *memory = calloc(count == 0 ? 1 : count, size);

    if (memory == NULL) {
        fprintf(stderr, "gpushare-sim: out of memory for %zu x %zu bytes; simulate less\n",
                count, size);
        exit(1);
    }
    return memory;
}

void *sim_more(void *memory, size_t count, size_t size)
{
    void *more = reallocarray(memory, count, size);

    if (more == NULL) {
        fprintf(stderr, "gpushare-sim: out of memory for %zu x %zu bytes; simulate less\n",
                count, size);
        exit(1);
    }
    return more;
}

static bool is_before(const struct sim_node *a, const struct sim_node *b)
{
    return a->key < b->key || (a->key == b->key && a->order < b->order);
}

static void place_node(struct sim_heap *heap, struct sim_node *node, size_t at)
{
    heap->nodes[at] = node;
    node->place = at + 1;
}

static void sift_node(struct sim_heap *heap, struct sim_node *node, size_t at)
{
    while (at > 0 && is_before(node, heap->nodes[(at - 1) / 2])) {
        place_node(heap, heap->nodes[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    for (size_t child = 2 * at + 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && is_before(heap->nodes[child + 1], heap->nodes[child]))
            child++;
        if (!is_before(heap->nodes[child], node))
            break;
        place_node(heap, heap->nodes[child], at);
        at = child;
    }
    place_node(heap, node, at);
}

void sim_heap_put(struct sim_heap *heap, struct sim_node *node, double key)
{
    if (heap->count == heap->room) {
        heap->room = heap->room == 0 ? 64 : 2 * heap->room;
        heap->nodes = sim_more(heap->nodes, heap->room, sizeof(struct sim_node *));
    }
    node->key = key;
    node->order = heap->order++;
    heap->count++;
    sift_node(heap, node, heap->count - 1);
}

void sim_heap_remove(struct sim_heap *heap, struct sim_node *node)
{
    struct sim_node *last;

    if (node->place == 0)
        return;
    last = heap->nodes[--heap->count];
    if (last != node)
        sift_node(heap, last, node->place - 1);
    node->place = 0;
}

struct sim_node *sim_heap_first(const struct sim_heap *heap)
{
    return heap->count == 0 ? NULL : heap->nodes[0];
}

void sim_heap_deinit(struct sim_heap *heap)
{
    free(heap->nodes);
    *heap = (struct sim_heap){0};
}

void sim_clock_set(struct sim_clock *clock, struct sim_timer *timer, uint64_t at_ns)
{
    timer->at = at_ns > clock->now_ns ? at_ns : clock->now_ns;
    sim_heap_remove(&clock->timers, &timer->node);
    sim_heap_put(&clock->timers, &timer->node, (double)timer->at);
}

void sim_clock_cancel(struct sim_clock *clock, struct sim_timer *timer)
{
    sim_heap_remove(&clock->timers, &timer->node);
}

bool sim_clock_next(struct sim_clock *clock, uint64_t until_ns)
{
    struct sim_timer *timer = (struct sim_timer *)sim_heap_first(&clock->timers);

    if (timer == NULL || timer->at > until_ns) {
        clock->now_ns = until_ns > clock->now_ns ? until_ns : clock->now_ns;
        return false;
    }
    sim_heap_remove(&clock->timers, &timer->node);
    clock->now_ns = timer->at > clock->now_ns ? timer->at : clock->now_ns;
    clock->fired++;
    timer->fire(timer->owner);
    return true;
}
