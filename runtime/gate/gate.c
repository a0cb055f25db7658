/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.c: owns the gate's state and the list of threads that have ever passed it.
 *
 * Invariants: a thread's seq is even exactly when it is registered and outside. Only the client
 * thread (and the child handler of fork) writes the state. Threads wait for the state on a futex;
 * the client thread wakes them all. Lock: `threads.lock` (rank GS_LOCK_THREADS) guards the list;
 * it is never held across a driver call or a wait.
 */
#include "runtime/gate/gate.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>

#include "runtime/gate/capture.h"
#include "runtime/gate/throttle.h"
#include "runtime/base/stats.h"

_Thread_local struct gs_gate_thread gs_gate_self = {.seq = 1};
_Atomic(uint32_t) gs_gate_state = GS_GATE_CLOSED;

static struct {
    pthread_mutex_t lock;
    struct gs_gate_thread *first;
    uint64_t ended_passes;
    pthread_key_t key;
    bool fenced; /* the kernel has no membarrier */
} threads = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(uint32_t) waiting GS_ZERO_IN_CHILD;
static _Atomic(bool) refusing GS_ZERO_IN_CHILD,
    observed GS_ZERO_IN_CHILD;                      /* gs_gate_refuse(), gs_gate_observe() */
static _Atomic(uint64_t) closed_stamp = UINT64_MAX; /* gs_gate_closed_stamp() */
static bool (*may_wait)(void); /* constant once gs_gate_init() was called */

static bool register_membarrier(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void gs_gate_init(bool (*asked_to_wait)(void))
{
    may_wait = asked_to_wait;
    register_membarrier(); /* prepare_threads() asks again, which is then quick */
}

/* Takes the thread off the list; the memory of its entry ends with the thread. */
static void forget_thread(struct gs_gate_thread *thread)
{
    gs_lock(&threads.lock, GS_LOCK_THREADS);
    *thread->link = thread->next;
    if (thread->next != NULL)
        thread->next->link = thread->link;
    threads.ended_passes += atomic_load_explicit(&thread->seq, memory_order_relaxed) / 2;
    gs_unlock(&threads.lock, GS_LOCK_THREADS);
    gs_throttle_thread_ends(thread->throttle);
    thread->throttle = NULL;
    thread->registered = 0;
    atomic_store_explicit(&thread->seq, 1, memory_order_relaxed);
}

/* Later destructors may still call the driver, in this round or the last. After the last one
 * no destructor of ours is called any more. */
static void thread_ends(void *argument)
{
    struct gs_gate_thread *thread = argument;

    thread->ended = true;
    gs_capture_thread_ends();
    forget_thread(thread);
}

static void forget_ended(struct gs_gate_thread *self)
{
    if (self->ended && self->registered != 0 &&
        (atomic_load_explicit(&self->seq, memory_order_relaxed) & 1) == 0 &&
        atomic_load_explicit(&self->syncing, memory_order_relaxed) == 0)
        forget_thread(self);
}

static void prepare_threads(void)
{
    pthread_key_create(&threads.key, thread_ends);
    threads.fenced = !register_membarrier();
}

static void register_thread(struct gs_gate_thread *self)
{
    pthread_once(&once, prepare_threads);
    gs_stats_called();
    gs_lock(&threads.lock, GS_LOCK_THREADS);
    self->next = threads.first;
    if (self->next != NULL)
        self->next->link = &self->next;
    self->link = &threads.first;
    threads.first = self;
    gs_unlock(&threads.lock, GS_LOCK_THREADS);
    if (!self->ended)
        pthread_setspecific(threads.key, self);
    self->registered = 1;
    atomic_store_explicit(&self->seq, 0, memory_order_relaxed);
}

static void futex_wait(_Atomic(uint32_t) *word, uint32_t value, uint64_t timeout_ns)
{
    const struct timespec timeout = {(time_t)(timeout_ns / 1000000000u),
                                     (long)(timeout_ns % 1000000000u)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &timeout, NULL, 0);
}

static void futex_wake_all(_Atomic(uint32_t) *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Marks this thread as inside and reads the gate, with the fence that the fast path leaves to
 * membarrier. */
static uint32_t step_in(struct gs_gate_thread *self)
{
    const uint32_t seq = atomic_load_explicit(&self->seq, memory_order_relaxed);

    atomic_store_explicit(&self->seq, seq | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&gs_gate_state, memory_order_acquire);
}

static void step_out(struct gs_gate_thread *self)
{
    const uint32_t seq = atomic_load_explicit(&self->seq, memory_order_relaxed);

    atomic_store_explicit(&self->seq, (seq | 1) + 1, memory_order_release);
}

/* A call that waits; call: enum gs_gate_call. */
struct request {
    CUstream stream;
    unsigned call;
};

/* The pass of a call that may go through a closed gate; GS_PASS_REFUSED: it may not. A capture is
 * counted at the moment at which another capture is seen under way: that may end at any time, and
 * then the program stops. */
static unsigned go_through(const struct request *request)
{
    if ((request->call & GS_CALL_BEGINS) != 0)
        return gs_capture_begins(request->stream, (request->call & GS_CALL_PER_THREAD) != 0,
                                 true)
                   ? GS_PASS_COUNTED
                   : GS_PASS_REFUSED;
    if ((request->call & GS_CALL_BUILDS) != 0 && gs_capture_active())
        return GS_PASS_NESTED;
    return (request->call & GS_CALL_QUEUES) != 0 &&
                   gs_capture_status(request->stream, (request->call & GS_CALL_PER_THREAD) !=
                                                          0) != CU_STREAM_CAPTURE_STATUS_NONE
               ? GS_PASS_NESTED | GS_PASS_RECORDED
               : GS_PASS_REFUSED;
}

static unsigned wait_until_open(struct gs_gate_thread *self, const struct request *request)
{
    GS_UNCANCELLED cancel = gs_cancel_off(); /* else `waiting` stays */
    unsigned pass = GS_PASS_REFUSED;
    uint32_t state;

    step_out(self);
    atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
    if (!may_wait()) { /* there is no context: the driver itself has the right answer */
        atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
        return GS_PASS_NESTED;
    }
    for (;;) {
        if (atomic_load_explicit(&refusing, memory_order_acquire))
            break;
        pass = go_through(request);
        if (pass != GS_PASS_REFUSED)
            break;
        /* without stepping in: waiting must not count as activity */
        state = atomic_load_explicit(&gs_gate_state, memory_order_relaxed);
        if (state != GS_GATE_CLOSED && step_in(self) != GS_GATE_CLOSED) {
            pass = GS_PASS_WATCHED; /* a state of 3 or 0 is handled the same way: leaving is the
                                       slow way */
            break;
        }
        if (state != GS_GATE_CLOSED)
            step_out(self);
        futex_wait(&gs_gate_state, GS_GATE_CLOSED,
                   1000000000u); /* bounded: a lost wake-up costs a second */
    }
    atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
    return pass;
}

/* seq is odd and this thread is registered. Reads the gate with the fence. request NULL: does
 * not wait. */
static unsigned enter_gate(const struct request *request)
{
    struct gs_gate_thread *self = &gs_gate_self;

    if (step_in(self) != GS_GATE_CLOSED)
        return GS_PASS_WATCHED;
    if (request != NULL)
        return wait_until_open(self, request);
    step_out(self);
    return GS_PASS_REFUSED;
}

unsigned gs_gate_enter_odd(CUstream stream, unsigned call)
{
    GS_KEEP_ERRNO;
    const struct request request = {stream, call};
    unsigned pass;

    if (gs_gate_self.registered != 0)
        return GS_PASS_NESTED;
    register_thread(&gs_gate_self);
    pass = enter_gate(&request);
    if (pass == GS_PASS_REFUSED)
        forget_ended(&gs_gate_self);
    return pass;
}

unsigned gs_gate_enter_closed(CUstream stream, unsigned call)
{
    GS_KEEP_ERRNO;
    const struct request request = {stream, call};
    const unsigned pass = enter_gate(&request);

    return pass;
}

bool gs_gate_try_enter(unsigned *pass)
{
    GS_KEEP_ERRNO;

    if (gs_gate_self.registered == 0)
        register_thread(&gs_gate_self);
    if ((atomic_load_explicit(&gs_gate_self.seq, memory_order_relaxed) & 1) != 0)
        *pass = GS_PASS_NESTED;
    else
        *pass = enter_gate(NULL);
    if (*pass == GS_PASS_REFUSED)
        forget_ended(&gs_gate_self);
    return *pass != GS_PASS_REFUSED;
}

void gs_gate_leave_slow(unsigned pass)
{
    if (pass == GS_PASS_WATCHED)
        step_out(&gs_gate_self);
    forget_ended(&gs_gate_self);
}

bool gs_gate_is_watched(void)
{
    return atomic_load_explicit(&gs_gate_state, memory_order_relaxed) == GS_GATE_WATCHED;
}

void gs_gate_sync_begin(void)
{
    if (gs_gate_self.registered == 0)
        register_thread(&gs_gate_self);
    atomic_fetch_add_explicit(&gs_gate_self.syncing, 1, memory_order_relaxed);
}

void gs_gate_sync_end(void)
{
    struct gs_gate_thread *self = &gs_gate_self;

    atomic_fetch_sub_explicit(&self->syncing, 1, memory_order_relaxed);
    atomic_store_explicit(&self->synced,
                          atomic_load_explicit(&self->synced, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    forget_ended(self);
}

static bool somebody_inside(void)
{
    bool inside = false;

    GS_HOLD(&threads.lock, GS_LOCK_THREADS);
    for (struct gs_gate_thread *thread = threads.first; thread != NULL && !inside;
         thread = thread->next)
        inside = (atomic_load_explicit(&thread->seq, memory_order_acquire) & 1) != 0;
    return inside;
}

static uint64_t count_passes(void)
{
    GS_HOLD(&threads.lock, GS_LOCK_THREADS);
    uint64_t sum = threads.ended_passes * 2;

    for (struct gs_gate_thread *thread = threads.first; thread != NULL; thread = thread->next)
        sum += atomic_load_explicit(&thread->seq, memory_order_acquire);
    return sum;
}

/* A thread that is inside, or waits, changes the count when it leaves, so what it submits
 * meanwhile is counted behind the stamp. The stamp of a closing that has just ended is older
 * than everything submitted since. */
uint64_t gs_gate_stamp(void)
{
    const uint64_t closed = gs_gate_closed_stamp();

    return closed != UINT64_MAX ? closed : count_passes();
}

uint64_t gs_gate_closed_stamp(void)
{
    return atomic_load_explicit(&closed_stamp, memory_order_seq_cst);
}

bool gs_gate_close(uint64_t timeout_ns)
{
    const uint64_t deadline = gs_now() + timeout_ns;
    unsigned rounds = 0;

    atomic_store_explicit(&gs_gate_state, GS_GATE_CLOSED, memory_order_seq_cst);
    pthread_once(&once, prepare_threads);
    if (!threads.fenced)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    while (somebody_inside()) {
        if (gs_now() > deadline)
            return false;
        if (rounds++ < 100)
            sched_yield();
        else
            gs_pause(20000);
    }
    atomic_store_explicit(&closed_stamp, count_passes(), memory_order_seq_cst);
    return true;
}

void gs_gate_shut(void)
{
    atomic_store_explicit(&gs_gate_state, GS_GATE_CLOSED, memory_order_seq_cst);
}

/* Threads that are inside already are not observed, which does no harm. */
void gs_gate_observe(void)
{
    uint32_t state = GS_GATE_OPEN;

    atomic_store_explicit(&observed, true, memory_order_relaxed);
    atomic_compare_exchange_strong_explicit(&gs_gate_state, &state, GS_GATE_FENCED,
                                            memory_order_acq_rel, memory_order_relaxed);
}

void gs_gate_open(bool watched)
{
    uint32_t state = watched ? GS_GATE_WATCHED : GS_GATE_OPEN;

    pthread_once(&once, prepare_threads);
    if (!watched && (threads.fenced || atomic_load_explicit(&observed, memory_order_relaxed)))
        state = GS_GATE_FENCED;
    atomic_store_explicit(&refusing, false, memory_order_release);
    atomic_store_explicit(&closed_stamp, UINT64_MAX, memory_order_seq_cst);
    if (atomic_exchange_explicit(&gs_gate_state, state, memory_order_acq_rel) == GS_GATE_CLOSED)
        futex_wake_all(&gs_gate_state);
}

void gs_gate_refuse(bool refuse)
{
    if (atomic_load_explicit(&refusing, memory_order_relaxed) == refuse)
        return;
    atomic_store_explicit(&refusing, refuse, memory_order_release);
    if (refuse)
        futex_wake_all(&gs_gate_state);
}

unsigned gs_gate_waiting(void)
{
    return atomic_load_explicit(&waiting, memory_order_relaxed);
}

uint64_t gs_gate_activity(bool *busy)
{
    uint64_t sum;

    *busy = false;
    GS_HOLD(&threads.lock, GS_LOCK_THREADS);
    sum = threads.ended_passes * 2;
    for (struct gs_gate_thread *thread = threads.first; thread != NULL; thread = thread->next) {
        const uint32_t seq = atomic_load_explicit(&thread->seq, memory_order_relaxed);

        sum += seq + (uint64_t)atomic_load_explicit(&thread->synced, memory_order_relaxed);
        *busy |=
            (seq & 1) != 0 || atomic_load_explicit(&thread->syncing, memory_order_relaxed) != 0;
    }
    return sum;
}

uint64_t gs_gate_calls(void)
{
    GS_HOLD(&threads.lock, GS_LOCK_THREADS);
    uint64_t sum = threads.ended_passes;

    for (struct gs_gate_thread *thread = threads.first; thread != NULL; thread = thread->next)
        sum += atomic_load_explicit(&thread->seq, memory_order_relaxed) / 2;
    return sum;
}

void gs_gate_after_fork(void)
{
    struct gs_gate_thread *self = &gs_gate_self;

    pthread_mutex_init(&threads.lock, NULL);
    threads.first = NULL;
    threads.ended_passes = 0;
    atomic_store(&closed_stamp, UINT64_MAX);
    atomic_store(&gs_gate_state, GS_GATE_CLOSED);
    self->registered = 0;
    self->throttle = NULL; /* left to the parent */
    atomic_store(&self->syncing, 0);
    atomic_store(&self->seq, 1);
}
