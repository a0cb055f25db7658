/* SPDX-License-Identifier: Apache-2.0
 *
 * api.c: the functions of gpushare.h, which programs call, with the program's callback and its
 * wishes. Arguments come from the program: each is checked here, or where it is looked up.
 */
#define GPUSHARE_INSIDE
#include "runtime/client/api.h"
#include "runtime/client/gpushare.h"
#include "runtime/gate/gate.h"
#include "runtime/range/discard.h"

/* Owns the thread in which the program's callback runs. The thread is made with the first
 * callback, with all signals blocked, like the library's own. State: one object under its lock
 * (rank GS_LOCK_CLIENT), which is held neither while the callback runs nor across a driver call;
 * the last three fields are the client thread's. The callback may do anything, also set another
 * one or never return: then it is not called any more. */

/* The longest time for which memory waits for the callback. */
#define GS_PRESSURE_NS 100000000ull

#define LOOK_NS 1000000ull /* a lost wake-up costs so long */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t asked_for;
    bool started, asked, running;
    void (*callback)(void *);
    void *argument;
    /* client thread only */
    bool warned, waits;
    uint64_t until;          /* ns */
} pressure GS_ZERO_IN_CHILD; /* asked_for: start_thread() */

static void *pressure_main(void *unused)
{
    (void)unused;
    gs_lock(&pressure.lock, GS_LOCK_CLIENT);
    for (;;) {
        void (*callback)(void *);
        void *argument;

        while (!pressure.asked)
            pthread_cond_wait(&pressure.asked_for, &pressure.lock);
        pressure.asked = false;
        callback = pressure.callback;
        argument = pressure.argument;
        pressure.running = callback != NULL;
        if (callback == NULL)
            continue;
        gs_unlock(&pressure.lock, GS_LOCK_CLIENT);
        callback(argument);
        GS_WITH(&pressure.lock, GS_LOCK_CLIENT, pressure.running = false);
        gs_worker_wake();
        gs_lock(&pressure.lock, GS_LOCK_CLIENT);
    }
    return NULL;
}

/* under the lock */
static int start_thread(void)
{
    if (pressure.started)
        return 0;
    gs_condition_init(&pressure.asked_for);
    pressure.started = gs_worker_thread("gpushare-call", pressure_main) == 0;
    return pressure.started ? 0 : -EAGAIN;
}

/* Sets the callback; NULL: none. 0; -EAGAIN: no thread. Any thread. */
static int gs_pressure_set(void (*callback)(void *), void *argument)
{
    int error = 0;

    GS_HOLD(&pressure.lock, GS_LOCK_CLIENT);
    if (callback != NULL)
        error = start_thread();
    if (error == 0) {
        pressure.callback = callback;
        pressure.argument = argument;
    }
    return error;
}

/* Calls the callback, unless its last call still runs. True if it is to be waited for. */
static bool ask_callback(void)
{
    GS_HOLD(&pressure.lock, GS_LOCK_CLIENT);
    bool asks =
        pressure.started && pressure.callback != NULL && !pressure.running && !pressure.asked;

    if (asks) {
        pressure.asked = true;
        pthread_cond_signal(&pressure.asked_for);
    }
    return asks;
}

uint64_t gs_pressure_wait(uint64_t now)
{
    if (!pressure.warned) {
        pressure.warned = true;
        pressure.waits = ask_callback();
        pressure.until = now + GS_PRESSURE_NS;
    }
    if (pressure.waits &&
        (now >= pressure.until ||
         GS_WITH(&pressure.lock, GS_LOCK_CLIENT, !pressure.asked && !pressure.running)))
        pressure.waits = false;
    return pressure.waits ? LOOK_NS : 0;
}

void gs_pressure_over(void)
{
    pressure.warned = pressure.waits = false;
}

/* The program's wishes. Atomics only: each wish is one word, and the newest counts. */

static struct {
    /* GS_WISH_* and, from CLASS_SHIFT on, the class: in one word, so that both are from one
     * moment. Release, before the client thread is woken; it reads with acquire. */
    _Atomic(uint32_t) wanted;
    _Atomic(uint64_t)
        idle_since;         /* stamp of the gate, plus 1; 0: it did not say that it was idle.
                                     Relaxed: an old value costs a round */
    uint32_t reading, told; /* client thread only */
} wishes GS_ZERO_IN_CHILD;

#define CLASS_SHIFT 8

static void change_wish(uint32_t clear, uint32_t set)
{
    uint32_t before = atomic_load_explicit(&wishes.wanted, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&wishes.wanted, &before,
                                                  (before & ~clear) | set, memory_order_release,
                                                  memory_order_relaxed))
        continue;
    gs_worker_wake();
}

bool gs_wish_is_idle(void)
{
    uint64_t since = atomic_load_explicit(&wishes.idle_since, memory_order_relaxed);

    if (since == 0)
        return false;
    if (since == gs_gate_stamp() + 1)
        return true;
    atomic_compare_exchange_strong_explicit(&wishes.idle_since, &since, 0, memory_order_relaxed,
                                            memory_order_relaxed);
    return false;
}

bool gs_wish_news(struct gs_wire_wish *wish)
{
    wishes.reading = atomic_load_explicit(&wishes.wanted, memory_order_acquire);
    if (wishes.reading == wishes.told)
        return false;
    memset(wish, 0, sizeof *wish);
    wish->flags = wishes.reading & GS_WISH_ALL;
    wish->class_number = wishes.reading >> CLASS_SHIFT;
    return true;
}

void gs_wish_sent(void)
{
    wishes.told = wishes.reading;
}

void gs_wish_anew(void)
{
    wishes.told = 0;
}

_Static_assert((int)GPUSHARE_CLASS_AUTO == GS_CLASS_AUTO, "one numbering");
_Static_assert((int)GPUSHARE_CLASS_INTERACTIVE == GS_CLASS_INTERACTIVE, "one numbering");
_Static_assert((int)GPUSHARE_CLASS_BATCH == GS_CLASS_BATCH, "one numbering");
_Static_assert((int)GPUSHARE_CLASS_BACKGROUND == GS_CLASS_BACKGROUND, "one numbering");

/* GPUSHARE_DISABLE=1, or another copy of this library is the one that works. */
static bool is_off(void)
{
    return gs_runtime.config.disabled;
}

int64_t gpushare_1_discard(const void *address, size_t bytes)
{
    return is_off() ? -ENOSYS : gs_discard_mark((uintptr_t)address, bytes);
}

int64_t gpushare_1_keep(const void *address, size_t bytes)
{
    return is_off() ? -ENOSYS : gs_discard_keep((uintptr_t)address, bytes);
}

int gpushare_1_idle(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (is_off())
        return -ENOSYS;
    atomic_store_explicit(&wishes.idle_since, gs_gate_stamp() + 1, memory_order_relaxed);
    gs_worker_wake();
    return 0;
}

int gpushare_1_set_class(int class_number)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (is_off())
        return -ENOSYS;
    if (class_number < 0 || class_number >= GS_CLASS_COUNT)
        return -EINVAL;
    change_wish(UINT32_MAX << CLASS_SHIFT,
                (uint32_t)class_number << CLASS_SHIFT | GS_WISH_CLASS);
    return 0;
}

static int wish_suspended(bool suspended)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (is_off())
        return -ENOSYS;
    change_wish(GS_WISH_SUSPEND, suspended ? GS_WISH_SUSPEND : 0);
    return 0;
}

int gpushare_1_suspend(void)
{
    return wish_suspended(true);
}

int gpushare_1_resume(void)
{
    return wish_suspended(false);
}

int gpushare_1_on_pressure(gpushare_callback *callback, void *argument)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    GS_KEEP_ERRNO;

    return is_off() ? -ENOSYS : gs_pressure_set(callback, argument);
}
