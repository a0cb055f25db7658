/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile.c: the client's side of the protocol (lockd/protocol/wire.h): turns the newest
 * targets into actions of the gate and moves of memory.
 *
 * session.c has the connection and moving.c decides what moves; this file has the order of all
 * steps. State: one object, client thread only, but for the atomics at its head. Invariants:
 * memory moves out only while `stopped` (gate closed, nobody inside, everything submitted has
 * finished, no capture); the gate opens only when every device may run and nothing is missing;
 * resident memory never grows beyond the budget.
 */
#include "runtime/client/reconcile.h"
#include "runtime/client/api.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/drain.h"
#include "runtime/gate/gate.h"
#include "runtime/gate/throttle.h"
#include "runtime/base/rdma.h"
#include "runtime/base/others.h"
#include "runtime/base/past.h"
#include "runtime/swap/beyond.h"
#include "runtime/swap/common.h"
#include "runtime/swap/moving.h"
#include "runtime/swap/placement.h"
#include "runtime/client/evidence.h"
#include "runtime/client/ipc.h"
#include "runtime/client/relocate.h"
#include "runtime/client/report.h"
#include "runtime/client/session.h"
#include "runtime/range/uses.h"
#include "runtime/swap/swap.h"
#include "runtime/memory/dispose.h"
#include "runtime/memory/room.h"

#define MS 1000000ull

/* While the program is stopped, an object may be loaded whose calls go past gpushare, unless
 * imports are bound to gpushare first: such calls find memory missing until it is seen. */
#define PAST_LOOK (20 * MS)

/* A program that is to stop counts as stuck after this time. Either its work does not finish, or
 * a capture is open: most captures last for milliseconds, but some programs compile meanwhile,
 * and nothing can be waited for during a capture without spoiling it. */
#define DRAIN_LIMIT_NS   2000000000ull
#define CAPTURE_LIMIT_NS 5000000000ull

/* While a thread waits at the gate, work may take at most so long before the thread is let in. */
#define DRAIN_MOST_NS 10000000000ull

#define QUIET_NS  (500 * MS)
#define IDLE_LOOK (1000 * MS) /* four times as long as work may go unseen after a long rest */

static struct {
    _Atomic(bool) exiting;
    _Atomic(bool) begun; /* set by gs_reconcile_begin() */

    bool stopped; /* see above; true at the start, since nothing has run */
    bool drain_is_old;
    bool started_to_stop; /* the gate has been closed, and the drain is not over */
    bool stuck;
    uint64_t stop_since; /* ns; 0: no attempt is under way */
    uint64_t patience;   /* ns: how long the next drain may take; 0: DRAIN_LIMIT_NS */
    uint64_t on_until;   /* ns: the program runs on, with no attempt to stop before */
    uint64_t activity, active_at;
    bool idle;
} self = {.stopped = true};

int gs_reconcile_fd(void)
{
    /* at exit no thread reads messages any more */
    return atomic_load_explicit(&self.exiting, memory_order_relaxed) ? -1 : gs_session_fd();
}

/* --- stopping --- */

/* Acquire: the first device is there, with everything that its first report needs. */
static bool has_begun(void)
{
    return atomic_load_explicit(&self.begun, memory_order_acquire);
}

/* Without a device there is nothing to run yet: the rounds only look for the daemon. */
static bool all_may_run(void)
{
    return has_begun() && gs_device_at(0) != NULL &&
           !GS_ANY_DEVICE((gs_device_flags(device) & GS_TARGET_RUN) == 0);
}

/* Some of its calls go past gpushare: nothing may be moved under them. */
static bool is_partly_covered(void)
{
    return atomic_load_explicit(&gs_runtime.partial, memory_order_acquire);
}

/* The program must also stop while memory changes places, or is made anew for a process that
 * opens it. */
static bool must_stop(void)
{
    return !all_may_run() || gs_exporter_needs_stop() ||
           (!is_partly_covered() && (gs_placement_needs_stop() || gs_beyond_needs_stop()));
}

static bool somebody_waits(void)
{
    return GS_ANY_DEVICE((gs_device_flags(device) & GS_TARGET_WAITERS) != 0);
}

/* The time of idleness after which it is reported: the shortest that a device asks for. 0: no
 * turns are taken. */
static uint64_t idle_limit(void)
{
    uint64_t least = 0;

    gs_each_device (device) {
        const uint64_t ns = atomic_load_explicit(&device->target.idle_ns, memory_order_relaxed);

        if (ns != 0)
            least = least == 0 ? ns : gs_smaller(least, ns);
    }
    return least;
}

static void open_gate(void)
{
    gs_gate_open(somebody_waits());
}

static void reopen_if_complete(void)
{
    self.started_to_stop = false;
    gs_memory_if_complete(open_gate);
}

/* A thread waits at the gate for memory that is missing. */
static bool lacks_memory(void)
{
    return GS_ANY_DEVICE(gs_memory_accounts(device).missing != 0) && gs_gate_waiting() != 0;
}

/* Closes the gate when nobody is inside and no capture is under way. Returns ns until the next
 * attempt, 0 when it is closed. */
static uint64_t close_gate(uint64_t now)
{
    if (gs_capture_active()) {
        self.stuck = now - self.stop_since > CAPTURE_LIMIT_NS || lacks_memory();
        reopen_if_complete();
        return MS;
    }
    if (!gs_gate_close(100 * MS)) {
        reopen_if_complete();
        self.stuck = now - self.stop_since > DRAIN_LIMIT_NS;
        self.on_until = now + 110 * MS;
        return 10 * MS;
    }
    if (gs_capture_active()) { /* a capture began just before the gate closed */
        reopen_if_complete();
        return MS;
    }
    self.started_to_stop = true;
    self.drain_is_old = gs_drain_busy(); /* the drain began before the gate was last open */
    return 0;
}

/* Waits for the submitted work, for a short time. Returns ns until the next attempt, 0 when all of
 * it has finished. */
static uint64_t drain_work(uint64_t now)
{
    const enum gs_drained drained = gs_drain(20 * MS);

    self.stuck |= drained != GS_DRAIN_OVER && now - self.stop_since > DRAIN_LIMIT_NS;
    if (drained == GS_DRAIN_GOES_ON) {
        const uint64_t waited = self.patience;

        if (now - self.stop_since <= waited || gs_gate_waiting() == 0)
            return 1; /* read the daemon's messages, then wait on */
        /* The work may wait for an action of the host that follows the call which waits at the gate.
         * So the program runs on for as long as was waited, and has a longer limit the next time,
         * since its work may also just be long. */
        gs_log("submitted work does not finish: the program continues to run");
        self.patience = gs_smaller(2 * waited, DRAIN_MOST_NS);
        self.on_until = now + waited;
        self.stop_since = 0;
        reopen_if_complete();
        return waited;
    }
    if (self.drain_is_old) {
        self.drain_is_old = false;
        return 1;
    }
    if (drained == GS_DRAIN_FAILED) { /* a capture that was not counted */
        reopen_if_complete();
        self.on_until = now + 10 * MS;
        return 10 * MS;
    }
    return 0;
}

/* Makes one attempt to stop the program. Returns ns until the next step, 0 when it is stopped. */
static uint64_t stop_program(uint64_t now)
{
    /* The program is to stop for others that may lack memory which it has, so memory that it frees
     * now need not be moved. (The shortfall says so later than RUN off, which may come first.) */
    const bool may_leave =
        GS_ANY_DEVICE((gs_device_flags(device) & (GS_TARGET_RUN | GS_TARGET_SOLE)) == 0);
    uint64_t again = self.started_to_stop || !may_leave ? 0 : gs_pressure_wait(now);

    if (again != 0)
        return again;
    if (now < self.on_until)
        return self.on_until - now;
    if (self.patience == 0)
        self.patience = DRAIN_LIMIT_NS;
    if (self.stop_since == 0)
        self.stop_since = now;
    if (!self.started_to_stop) {
        again = close_gate(now);
        if (again != 0)
            return again;
    }
    again = drain_work(now);
    if (again != 0)
        return again;
    self.stopped = true;
    self.started_to_stop = self.stuck = false;
    self.stop_since = self.patience = 0;
    return 0;
}

/* --- idleness --- */

/* Idle after idle_ns without a gated call or a waiting synchronisation. Returns ns until the
 * next look: a program that has been idle for long is looked at less often. */
static uint64_t watch_idleness(uint64_t now)
{
    const uint64_t idle_ns = idle_limit();
    uint64_t idle_for;
    bool busy, said;
    const uint64_t activity = gs_gate_activity(&busy);

    busy = busy || gs_gate_waiting() != 0 || gs_capture_active();
    said = !busy && gs_wish_is_idle();
    if (activity != self.activity || busy || self.stopped) {
        self.activity = activity;
        self.active_at = now;
    }
    if (self.stopped || idle_ns == 0) {
        self.idle = false;
        return UINT64_MAX;
    }
    idle_for = now - self.active_at;
    self.idle = said || idle_for >= idle_ns;
    return (idle_for >= idle_ns ? gs_smaller(idle_for / 4, IDLE_LOOK) : idle_ns) / 4 + 1;
}

/* Not while memory comes in. Work without an end that nobody waits for is the exception that is not
 * seen. */
static bool is_quiet(uint64_t now)
{
    return (self.stopped && !all_may_run()) ||
           (!self.stopped && !self.started_to_stop && now - self.active_at >= QUIET_NS);
}

/* --- a round --- */

static uint64_t report_all(uint64_t now)
{
    struct gs_report report = {
        .running = !self.stopped,
        .want =
            gs_gate_waiting() != 0 || (!self.stopped && !self.idle) || gs_exporter_waits() ||
            gs_room_is_wanted() ||
            /* a partly covered program may use its memory also while it waits for its turn */
            (is_partly_covered() && GS_ANY_DEVICE(gs_memory_accounts(device).missing != 0)),
        .stuck = self.stuck,
        .partial = is_partly_covered(),
    };
    struct gs_device *device;
    uint64_t due = UINT64_MAX;
    int unsaid;

    if (!has_begun())
        return UINT64_MAX;
    gs_session_send_wish();
    unsaid = gs_evidence_send(gs_session_fd(), now);
    if (unsaid >= 0)
        unsaid = gs_relocate_send(gs_session_fd());
    if (unsaid < 0 && unsaid != -EAGAIN)
        gs_session_failed(now);
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && gs_session_fd() >= 0; i++) {
        const uint64_t asked =
            atomic_exchange_explicit(&device->report.short_asked, 0, memory_order_relaxed);
        uint64_t after;
        int error;

        if (asked != 0 && device->report.short_bytes == 0)
            device->report.short_bytes = asked;
        error = gs_report_send(device, &report, now, &after);
        gs_session_asked(now);
        if (error != 0 && error != -EAGAIN)
            gs_session_failed(now);
        if (after < due)
            due = after;
    }
    gs_session_send_copies();
    gs_session_send_note();
    return due;
}

/* A guard moves the program to another device, or is about to: it only listens to the daemon. */
static uint64_t hold_still(uint64_t now)
{
    uint64_t due;
    int unsaid;

    gs_session_turn(now);
    due = gs_relocate_step(self.stopped, gs_session_fd());
    unsaid = gs_relocate_send(gs_session_fd());
    if (unsaid < 0 && unsaid != -EAGAIN)
        gs_session_failed(now);
    if (!gs_relocate_holds())
        return 0; /* the program goes on */
    return gs_session_fd() < 0 || unsaid < 0 ? gs_smaller(due, 20 * MS) : due;
}

uint64_t gs_reconcile(void)
{
    const bool exiting = atomic_load_explicit(&self.exiting, memory_order_acquire);
    uint64_t now = gs_now(), due = 1000 * MS;
    bool more = false, quiet, beside_others;

    if (gs_relocate_holds())
        return hold_still(now);
    if (exiting && gs_gate_waiting() == 0)
        return 50 * MS;
    gs_session_turn(now);
    gs_past_look();
    gs_capture_look(now);
    if (self.stopped &&
        !is_partly_covered()) /* an object that is loaded now finds memory missing */
        due = gs_smaller(due, PAST_LOOK);
    beside_others = /* other programs use one of its devices, too */
        GS_ANY_DEVICE(atomic_load_explicit(&device->target.seq, memory_order_acquire) != 0 &&
                      (gs_device_flags(device) & GS_TARGET_SOLE) == 0);
    due = gs_smaller(due,
                     gs_evidence_look(somebody_waits() || !all_may_run(), beside_others, now));
    if (gs_session_fd() < 0)
        due = 20 * MS;
    gs_opener_send(gs_session_fd());
    if (!is_partly_covered())
        due = gs_smaller(due, gs_beyond_look(now, all_may_run() && !exiting, self.stopped));
    if (must_stop() && !self.stopped)
        due = gs_smaller(due, stop_program(now));
    else if (!must_stop() && self.started_to_stop)
        reopen_if_complete();
    if (!is_partly_covered() &&
        gs_beyond_put(self.stopped || self.started_to_stop, self.stopped))
        due = 0;
    if (gs_memory_dispose_dead(self.stopped))
        due = gs_smaller(due, MS);
    if (all_may_run() || self.stopped)
        more = gs_moving_step(now, self.stopped, !exiting, gs_session_fd());
    if (!is_partly_covered())
        due = gs_smaller(due, gs_placement_look(now, all_may_run() && !exiting));
    if (self.stopped && !more && !is_partly_covered())
        more = gs_beyond_step(now) || gs_placement_step(all_may_run());
    due = gs_smaller(due, gs_exporter_step(gs_now(), self.stopped, gs_session_fd()));
    due = gs_smaller(due, gs_openings_tend(gs_now(), !all_may_run()));
    now = gs_now();
    if (all_may_run() &&
        GS_ANY_DEVICE(gs_swap_is_under_way(device, true))) /* a budget below what is resident */
        gs_swap_settle();
    if (!must_stop() && !self.started_to_stop && gs_memory_if_complete(open_gate)) {
        /* The program may run, and does: an attempt to stop it is forgotten. */
        self.stopped = self.stuck = false;
        self.stop_since = self.on_until = 0;
        gs_pressure_over();
        gs_moving_arrived();
    } else if (self.stopped && !more) {
        gs_each_device (device)
            due = gs_smaller(due, device->moving.retry_at > now ? device->moving.retry_at - now
                                                                : UINT64_MAX);
    }
    due = gs_smaller(due, watch_idleness(now));
    quiet = is_quiet(now);
    if (!more)
        due = gs_smaller(due,
                         gs_moving_keep_host(now, somebody_waits() || !all_may_run(), quiet));
    due = gs_smaller(due, report_all(now));
    due = gs_smaller(due, gs_relocate_step(self.stopped, gs_session_fd()));
    /* last: others may wait for the report, and no news would interrupt this before it is sent */
    due =
        gs_smaller(due, gs_common_step(now, !more && !self.started_to_stop && !exiting, quiet));
    return more || gs_relocate_holds() ? 0 : due;
}

void gs_reconcile_begin(void)
{
    atomic_store_explicit(&self.begun, true, memory_order_release);
}

void gs_reconcile_exiting(void)
{
    atomic_store_explicit(&self.exiting, true, memory_order_release);
}

void gs_reconcile_after_fork(void)
{
    gs_session_after_fork();
    gs_exporter_lost();
    gs_placement_after_fork();
    gs_beyond_after_fork();
    gs_common_lost();
    gs_relocate_after_fork();
    memset(&self, 0, sizeof self);
    self.stopped = true;
}
