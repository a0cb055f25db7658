/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: the simulator's virtual clock: timers that fire in order, and the heap under them.
 * Times are nanoseconds since the simulation began. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An element of a heap; lives inside what it orders. Of equal keys the one put in first is
 * first. */
struct sim_node {
    double key;
    uint64_t order;
    size_t place; /* index in the heap + 1; 0: in none */
};

struct sim_heap {
    struct sim_node **nodes;
    size_t count, room;
    uint64_t order;
};

void sim_heap_put(struct sim_heap *heap, struct sim_node *node, double key);
void sim_heap_remove(struct sim_heap *heap, struct sim_node *node);
/* NULL when it is empty. */
struct sim_node *sim_heap_first(const struct sim_heap *heap);
void sim_heap_deinit(struct sim_heap *heap);

struct sim_timer {
    struct sim_node node; /* first */
    uint64_t at;
    void (*fire)(void *owner);
    void *owner;
};

struct sim_clock {
    uint64_t now_ns;
    uint64_t fired;
    struct sim_heap timers;
};

static inline void sim_timer_init(struct sim_timer *timer, void (*fire)(void *owner),
                                  void *owner)
{
    *timer = (struct sim_timer){.fire = fire, .owner = owner};
}

static inline bool sim_timer_is_set(const struct sim_timer *timer)
{
    return timer->node.place != 0;
}

/* Sets it, or moves it when it is set; a time in the past is now. */
void sim_clock_set(struct sim_clock *clock, struct sim_timer *timer, uint64_t at_ns);
void sim_clock_cancel(struct sim_clock *clock, struct sim_timer *timer);
/* Fires the next timer that is due up to until_ns; false, with the clock at until_ns, when
 * there is none. */
bool sim_clock_next(struct sim_clock *clock, uint64_t until_ns);

/* calloc() and realloc() that end the program without memory: it holds nothing to be saved. */
void *sim_new(size_t count, size_t size);
void *sim_more(void *memory, size_t count, size_t size);
