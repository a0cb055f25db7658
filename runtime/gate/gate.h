/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.h: the gate around every call that submits GPU work or needs device memory in place.
 *
 * A thread is inside between gs_gate_enter() and gs_gate_leave(). The closing side (client
 * thread only) shuts the gate, then waits until no thread is inside; afterwards nothing new can
 * reach the GPU until it opens. The work is submitted before leaving, so nothing slips out
 * behind a closed gate.
 *
 * Asymmetric: entering is a thread-local store, a load and a branch, without a fence; closing
 * pays with membarrier(2) (MEMBARRIER_CMD_PRIVATE_EXPEDITED), which makes every running
 * thread's store visible and its later load fresh. Where the kernel does not have it, entering
 * uses a full fence.
 */
#pragma once

#include "runtime/base/base.h"

/* asked_to_wait is called before a thread waits at the closed gate; false: there is nothing to
 * wait for. To be called once, before any other function, and before the process has threads:
 * then the kernel registers membarrier at once, while later it waits for all processors. */
void gs_gate_init(bool (*asked_to_wait)(void));

enum gs_gate_state {
    GS_GATE_OPEN = 0,
    GS_GATE_WATCHED = 1, /* open, but others wait: unfinished submissions are bounded */
    GS_GATE_CLOSED = 2,  /* closed; also before the daemon's first target */
    GS_GATE_FENCED =
        3, /* open, but entering goes the slow way: this kernel has no membarrier, or
                            calls are looked at (gs_gate_observe) */
};

/* How a thread entered, as bits; to be passed to gs_gate_leave(). 0 is the fast path. */
enum gs_gate_pass {
    GS_PASS_FREE = 0,
    GS_PASS_NESTED = 1,  /* this thread was inside already */
    GS_PASS_WATCHED = 2, /* bound this thread's unfinished work */
    GS_PASS_REFUSED = 4, /* not inside: the memory cannot be brought back; the call must fail
                            with out of memory */
    GS_PASS_COUNTED = 8, /* went through the closed gate; its capture is counted already */
    GS_PASS_RECORDED =
        16, /* with GS_PASS_NESTED: went through the closed gate, to be recorded */
};

/* One for each thread. seq is odd while the thread is inside, and before it is registered (so
 * that the fast path needs no second test). Each pass adds 2, so seq also counts activity. Only
 * its thread writes it. */
struct gs_gate_thread {
    _Atomic(uint32_t) seq;
    uint32_t registered;
    _Atomic(uint32_t) syncing; /* inside a call that waits for the GPU */
    _Atomic(uint32_t) synced;  /* such calls that have returned */
    uint32_t submissions;      /* while watched */
    bool ended;                /* its destructors run: it is registered during each call only */
    struct gs_gate_thread *next, **link;
    struct gs_throttle *throttle; /* throttle.c */
};
extern _Thread_local struct gs_gate_thread gs_gate_self;

/* relaxed loads in the fast path; the closer orders by membarrier */
extern _Atomic(uint32_t) gs_gate_state;

/* Properties of a call that enters, as bits. */
enum gs_gate_call {
    GS_CALL_QUEUES = 1,     /* it queues work on its stream */
    GS_CALL_PER_THREAD = 2, /* stream 0 means the thread's own */
    GS_CALL_BUILDS = 4,     /* it touches no memory: makes a part of a capture or graph */
    GS_CALL_BEGINS = 8,     /* it begins a capture */
};

/* seq was odd: first pass of this thread, or nested */
unsigned gs_gate_enter_odd(CUstream stream, unsigned call);
/* seq was made odd, and then the gate was not plainly open */
unsigned gs_gate_enter_closed(CUstream stream, unsigned call);
void gs_gate_leave_slow(unsigned pass);

/* Enters; waits while the gate is closed (client.h says why the wait ends). Any thread. Result:
 * enum gs_gate_pass. call: enum gs_gate_call. A capture keeps the program from stopping, so it
 * must be able to end. While a capture is under way, three kinds of calls go through a closed
 * gate: work that is only recorded, because its stream is being captured, calls that only build,
 * and calls that begin another capture. */
static inline __attribute__((always_inline)) unsigned gs_gate_enter_on(CUstream stream,
                                                                       unsigned call)
{
    struct gs_gate_thread *const self = &gs_gate_self;
    const uint32_t seq = atomic_load_explicit(&self->seq, memory_order_relaxed);

    if (__builtin_expect((seq & 1) != 0, 0))
        return gs_gate_enter_odd(stream, call);
    atomic_store_explicit(&self->seq, seq + 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* pairs with membarrier in gs_gate_close() */
    if (__builtin_expect(
            atomic_load_explicit(&gs_gate_state, memory_order_acquire) != GS_GATE_OPEN, 0))
        return gs_gate_enter_closed(stream, call);
    return GS_PASS_FREE;
}

/* The same for a call that queues nothing. */
static inline __attribute__((always_inline)) unsigned gs_gate_enter(void)
{
    return gs_gate_enter_on(NULL, 0);
}

static inline __attribute__((always_inline)) void gs_gate_leave(unsigned pass)
{
    struct gs_gate_thread *const self = &gs_gate_self;

    if (__builtin_expect(pass != GS_PASS_FREE, 0)) {
        gs_gate_leave_slow(pass);
        return;
    }
    /* release: what was done inside happens before the closer sees this thread outside */
    atomic_store_explicit(&self->seq,
                          atomic_load_explicit(&self->seq, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* The result of a call inside the gate, where nothing moves. */
#define GS_INSIDE(call)                                                                        \
    ({                                                                                         \
        CUresult inside = CUDA_ERROR_OUT_OF_MEMORY;                                            \
        const unsigned inside_pass = gs_gate_enter();                                          \
                                                                                               \
        if (inside_pass != GS_PASS_REFUSED) {                                                  \
            inside = (call);                                                                   \
            gs_gate_leave(inside_pass);                                                        \
        }                                                                                      \
        inside;                                                                                \
    })

/* As gs_gate_enter(), but never waits: false if the gate is closed (then not inside). */
bool gs_gate_try_enter(unsigned *pass);

/* Around a call that waits for GPU work; not inside the gate. Counts as activity. */
void gs_gate_sync_begin(void);
void gs_gate_sync_end(void);

/* Client thread only. close: closes the gate and waits until no thread is inside, for at most
 * timeout_ns; false: some thread still is. The gate stays closed then: only the caller can know
 * whether it may open again (memory may be missing by now). */
bool gs_gate_close(uint64_t timeout_ns);
void gs_gate_open(bool watched); /* also where there is no client thread */

/* From now on calls take the slow path (GS_PASS_WATCHED), so that they can be observed. Any
 * thread. */
void gs_gate_observe(void);

/* Any thread, under the memory lock: closes the gate without waiting for the threads inside. For
 * memory that is not resident yet: no thread that can know its address has submitted anything
 * with it. */
void gs_gate_shut(void);

/* Under the memory lock: from now on waiting and new threads are refused (true; client thread
 * only), or wait again (false). Opening the gate ends it, too. */
void gs_gate_refuse(bool refuse);

/* True while others wait for the device: then the caller, inside, bounds its unfinished work. */
bool gs_gate_is_watched(void);

/* Number of threads that wait at the gate. Any thread. */
unsigned gs_gate_waiting(void);

/* Changes whenever a thread goes through the gate or through a sync. *busy: some thread is
 * inside or waits for the GPU. */
uint64_t gs_gate_activity(bool *busy);

/* A count that changes with every pass. While the gate is closed with nobody inside, it is the
 * count of that closing, else the present count. If two stamps are equal, this process submitted
 * nothing between them. Any thread. */
uint64_t gs_gate_stamp(void);

/* The stamp of this closing; UINT64_MAX: the gate is not closed with nobody inside. */
uint64_t gs_gate_closed_stamp(void);

/* Number of passes since the start (approximate: passes of a thread that ends are added at its
 * end). */
uint64_t gs_gate_calls(void);

/* In a forked child: one thread, closed gate, no history. */
void gs_gate_after_fork(void);
