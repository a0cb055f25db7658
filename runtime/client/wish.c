/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.c: owns the program's wishes (wish.h). Atomics only: each wish is one word, and the newest
 * counts.
 */
#include "runtime/client/wish.h"
#include "runtime/gate/gate.h"

#define IDLE_NEVER UINT64_MAX /* no stamp of the gate */

static struct {
    /* GS_WISH_* and, from CLASS_SHIFT on, the class: in one word, so that both are from one
     * moment. Release, before the client thread is woken; it reads with acquire. */
    _Atomic(uint32_t) wanted;
    _Atomic(uint64_t) idle_since; /* stamp of the gate; relaxed: an old value costs a round */
    uint32_t reading, told;       /* client thread only */
} self = {.idle_since = IDLE_NEVER};

#define CLASS_SHIFT 8

static void change_wish(uint32_t clear, uint32_t set)
{
    uint32_t before = atomic_load_explicit(&self.wanted, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&self.wanted, &before,
                                                  (before & ~clear) | set, memory_order_release,
                                                  memory_order_relaxed))
        continue;
    gs_worker_wake();
}

void gs_wish_class(uint32_t class_number)
{
    change_wish(UINT32_MAX << CLASS_SHIFT, class_number << CLASS_SHIFT | GS_WISH_CLASS);
}

void gs_wish_suspend(bool suspended)
{
    change_wish(GS_WISH_SUSPEND, suspended ? GS_WISH_SUSPEND : 0);
}

void gs_wish_idle(void)
{
    atomic_store_explicit(&self.idle_since, gs_gate_stamp(), memory_order_relaxed);
    gs_worker_wake();
}

bool gs_wish_is_idle(void)
{
    const uint64_t since = atomic_load_explicit(&self.idle_since, memory_order_relaxed);

    if (since == IDLE_NEVER)
        return false;
    if (since == gs_gate_stamp())
        return true;
    atomic_compare_exchange_strong_explicit(&self.idle_since, &(uint64_t){since}, IDLE_NEVER,
                                            memory_order_relaxed, memory_order_relaxed);
    return false;
}

bool gs_wish_news(struct gs_wire_wish *wish)
{
    self.reading = atomic_load_explicit(&self.wanted, memory_order_acquire);
    if (self.reading == self.told)
        return false;
    memset(wish, 0, sizeof *wish);
    wish->flags = self.reading & GS_WISH_ALL;
    wish->class_number = self.reading >> CLASS_SHIFT;
    return true;
}

void gs_wish_sent(void)
{
    self.told = self.reading;
}

void gs_wish_anew(void)
{
    self.told = 0;
}

void gs_wish_after_fork(void)
{
    atomic_store(&self.wanted, 0);
    atomic_store(&self.idle_since, IDLE_NEVER);
    self.reading = self.told = 0;
}
