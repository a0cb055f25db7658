/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.c: owns the program's wishes (wish.h). Atomics only: each wish is one word, and the newest
 * counts.
 */
#include "runtime/client/wish.h"
#include "runtime/gate/gate.h"

static struct {
    /* GS_WISH_* and, from CLASS_SHIFT on, the class: in one word, so that both are from one
     * moment. Release, before the client thread is woken; it reads with acquire. */
    _Atomic(uint32_t) wanted;
    _Atomic(uint64_t)
        idle_since;         /* stamp of the gate, plus 1; 0: it did not say that it was idle.
                                     Relaxed: an old value costs a round */
    uint32_t reading, told; /* client thread only */
} self GS_ZERO_IN_CHILD;

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
    atomic_store_explicit(&self.idle_since, gs_gate_stamp() + 1, memory_order_relaxed);
    gs_worker_wake();
}

bool gs_wish_is_idle(void)
{
    uint64_t since = atomic_load_explicit(&self.idle_since, memory_order_relaxed);

    if (since == 0)
        return false;
    if (since == gs_gate_stamp() + 1)
        return true;
    atomic_compare_exchange_strong_explicit(&self.idle_since, &since, 0, memory_order_relaxed,
                                            memory_order_relaxed);
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
