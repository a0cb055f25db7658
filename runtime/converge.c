/* SPDX-License-Identifier: Apache-2.0
 *
 * converge.c: the client's side of the protocol (lockd/wire.h): from the newest targets to what
 * the gate and the memory do.
 *
 * State: one object, client thread only, but for the atomics at its head. Invariants: memory
 * moves out only while `stopped` (gate closed, nobody inside, everything submitted has
 * finished, no capture); the gate opens only when every device may run and nothing is missing;
 * resident never grows beyond the budget.
 */
#include "runtime/converge.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/connect.h"
#include "runtime/device.h"
#include "runtime/drain.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/host.h"
#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/report.h"
#include "runtime/runtime.h"
#include "runtime/swap.h"

#define MS             1000000ull
#define HOST_KEPT_NS   (10000 * MS) /* after everything fitted again */
#define KEPT_LOOK_NS   (1000 * MS)
#define SHORT_STEP_MIN (2ull << 20)
#define SHORT_STEP_MAX (512ull << 20)

static struct {
    _Atomic(bool) alone; /* no daemon: ungated */
    _Atomic(bool) exiting;
    _Atomic(uint64_t) short_asked; /* bytes; from gs_client_short() */
    _Atomic(bool) partial_pending;
    char partial_text[160]; /* written once, before partial_pending */

    int fd;            /* -1: not connected */
    uint64_t lost_at;  /* ns: since when there is no daemon; 0: there is one, or none was needed
                          yet */
    uint64_t next_try; /* ns */
    uint64_t refused_since; /* ns: connections end before a target came; 0: they do not */
    uint64_t connected_at;  /* ns */
    bool heard;             /* a target came on this connection */
    uint64_t trust_less_at; /* ns; see apply() */
    bool stopped;           /* see above; true at the start: nothing has run */
    bool drain_is_old;
    bool started_to_stop; /* the gate has been closed, the drain goes on */
    bool stuck;
    uint64_t stop_since; /* ns */
    uint64_t activity, active_at;
    uint64_t needed_at; /* ns: host memory may have been needed */
    bool idle;
} self = {.fd = -1, .stopped = true};

int gs_converge_fd(void)
{
    /* at the end nobody reads what comes */
    return atomic_load_explicit(&self.exiting, memory_order_relaxed) ? -1 : self.fd;
}

static uint32_t flags_of(const struct gs_device *device)
{
    return atomic_load_explicit(&device->target_flags, memory_order_relaxed);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- the connection --- */

void gs_converge_give_up(const char *why)
{
    static bool said;

    gs_say_once(&said, "running without sharing: %s (see docs/guide.md)", why);
    atomic_store_explicit(&self.alone, true, memory_order_release);
}

bool gs_client_is_alone(void)
{
    return atomic_load_explicit(&self.alone, memory_order_acquire);
}

static void apply(const struct gs_wire_target *target, uint64_t now)
{
    struct gs_device *device;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        if (memcmp(device->uuid, target->uuid, sizeof device->uuid) != 0)
            continue;
        atomic_store_explicit(&device->target_flags, target->flags, memory_order_relaxed);
        /* a daemon that has just come back takes what programs hold that it does not know yet
         * for foreign: its word on less room counts a little later */
        if (now >= self.trust_less_at ||
            target->capacity > atomic_load_explicit(&device->capacity, memory_order_relaxed))
            atomic_store_explicit(&device->capacity, target->capacity, memory_order_relaxed);
        atomic_store_explicit(&device->idle_ns, target->idle_ns, memory_order_relaxed);
        atomic_store_explicit(&device->shortfall, target->shortfall, memory_order_relaxed);
        atomic_store_explicit(&device->budget, target->budget, memory_order_relaxed);
        gs_host_set_budget(target->host_budget);
        atomic_store_explicit(&device->target_seq, target->seq, memory_order_release);
        gs_log("target %u: %s%s budget %llu MiB", target->seq,
               (target->flags & GS_TARGET_RUN) != 0 ? "run" : "wait",
               (target->flags & GS_TARGET_WAITERS) != 0 ? " (others wait)" : "",
               (unsigned long long)(target->budget >> 20));
    }
}

static void lost(uint64_t now)
{
    struct gs_device *device;

    gs_log("the daemon is gone");
    close(self.fd);
    self.fd = -1;
    self.lost_at = now;
    self.next_try = now;
    if (!self.heard) { /* it refuses us: another release, or too many programs */
        self.next_try = now + (gs_client_is_alone() ? 5000 * MS : 200 * MS);
        if (self.refused_since == 0)
            self.refused_since = now;
        else if (now - self.refused_since > GS_ALONE_AFTER_NS && !gs_client_is_alone())
            gs_converge_give_up("gpushare-lockd refuses it");
    }
    self.trust_less_at = UINT64_MAX; /* set by the new connection */
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        gs_report_forget(device); /* the next daemon gets everything anew */
}

static void receive(uint64_t now)
{
    struct gs_wire_target target;
    int got = 0;

    while (self.fd >= 0 && (got = gs_connect_receive(self.fd, &target)) > 0) {
        self.heard = true;
        self.refused_since = 0;
        atomic_store_explicit(&self.alone, false, memory_order_release);
        apply(&target, now);
    }
    if (got < 0)
        lost(now);
}

/* The kernel takes connections for a daemon that is stopped or hangs. */
static void wait_for_first_word(uint64_t now)
{
    if (self.fd >= 0 && !self.heard && !gs_client_is_alone() &&
        now - self.connected_at > GS_ALONE_AFTER_NS)
        gs_converge_give_up("gpushare-lockd does not answer");
}

/* With no daemon, what we hold is kept; after a while the gate opens without one. */
static void reconnect(uint64_t now)
{
    int fd;

    if (self.fd >= 0 || now < self.next_try)
        return;
    if (self.lost_at == 0)
        self.lost_at = now;
    fd = gs_connect(!gs_client_is_alone());
    if (fd >= 0) {
        self.fd = fd;
        self.heard = false;
        self.connected_at = now;
        self.lost_at = 0;
        if (self.trust_less_at != 0)
            self.trust_less_at = now + 3000 * MS;
        return;
    }
    self.next_try = now + (gs_client_is_alone() ? 5000 * MS : 50 * MS);
    if (!gs_client_is_alone() && (now - self.lost_at > GS_ALONE_AFTER_NS || fd == -ENOENT ||
                                  fd == -EPERM || fd == -EACCES)) {
        char why[160];

        snprintf(why, sizeof why, "gpushare-lockd is not running and could not be started (%s)",
                 fd == -ECHILD   ? "it ended at once; run it by hand to see why"
                 : fd == -ENOENT ? "the program was not found; see GPUSHARE_LOCKD"
                                 : strerror(-fd));
        gs_converge_give_up(why);
    }
}

/* without a daemon: everything is allowed */
static void allow_everything(void)
{
    struct gs_device *device;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        atomic_store_explicit(&device->target_flags, GS_TARGET_RUN, memory_order_relaxed);
        atomic_store_explicit(&device->budget, UINT64_MAX / 2, memory_order_relaxed);
        gs_host_set_budget(UINT64_MAX);
        atomic_store_explicit(&device->capacity, device->total, memory_order_relaxed);
    }
}

/* --- stopping --- */

static bool all_may_run(void)
{
    struct gs_device *device;
    bool may = true;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        may &= (flags_of(device) & GS_TARGET_RUN) != 0;
    return may;
}

static bool somebody_waits(void)
{
    struct gs_device *device;
    bool waits = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        waits |= (flags_of(device) & GS_TARGET_WAITERS) != 0;
    return waits;
}

static bool something_leaves(void)
{
    struct gs_device *device;
    bool leaves = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        leaves |= gs_swap_is_under_way(device, true);
    return leaves;
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

/* One attempt to come to a stop. Returns ns until the next one, 0 when stopped. */
static uint64_t stop(uint64_t now)
{
    if (self.stop_since == 0)
        self.stop_since = now;
    if (!self.started_to_stop) {
        if (gs_capture_active())
            return MS;
        if (!gs_gate_close(100 * MS)) {
            reopen_if_complete();
            self.stuck = now - self.stop_since > GS_DRAIN_LIMIT_NS;
            return 10 * MS;
        }
        if (gs_capture_active()) { /* began just before the gate closed */
            reopen_if_complete();
            return MS;
        }
        self.started_to_stop = true;
        self.drain_is_old = gs_drain_busy(); /* it began before the gate was last open */
    }
    if (!gs_drain(20 * MS)) {
        if (now - self.stop_since > GS_DRAIN_LIMIT_NS) {
            gs_log("submitted work does not finish: running on");
            self.stuck = true;
            self.stop_since = now;
            reopen_if_complete();
            return 2000 * MS;
        }
        return 1; /* look at the daemon's messages, then wait on */
    }
    if (self.drain_is_old) {
        self.drain_is_old = false;
        return 1;
    }
    self.stopped = true;
    self.started_to_stop = self.stuck = false;
    self.stop_since = 0;
    return 0;
}

/* --- moving --- */

static void note_short(struct gs_device *device, uint64_t lacking, uint64_t now)
{
    device->short_bytes = lacking;
    device->retry_at = now + 20 * MS;
    if (device->short_since == 0)
        device->short_since = now;
    if (now - device->short_since > GS_SHORT_LIMIT_NS)
        gs_gate_refuse(true);
}

static void keep(struct gs_device *device, uint64_t bytes)
{
    atomic_store_explicit(&device->kept, bytes, memory_order_relaxed);
}

/* What is kept is tried again now and then: there may be host memory. */
static bool should_leave(const struct gs_device *device, const struct gs_accounts *accounts,
                         uint64_t budget, uint64_t now)
{
    const uint64_t kept = atomic_load_explicit(&device->kept, memory_order_relaxed);

    return self.stopped && accounts->resident > budget &&
           (accounts->resident > budget + kept || now - device->kept_looked_at > KEPT_LOOK_NS);
}

static bool move_out(struct gs_device *device, uint64_t excess, uint64_t now)
{
    if (atomic_load_explicit(&self.exiting, memory_order_relaxed))
        return false; /* all of it is about to be freed */
    switch (gs_swap_out(device, excess)) {
    case GS_SWAP_SHORT:
        device->retry_at = now + 20 * MS;
        return false;
    case GS_SWAP_KEPT:
        device->kept_looked_at = now;
        keep(device, excess);
        return false;
    default:
        device->was_out = true;
        return true;
    }
}

/* What is kept is never more than what is there beyond the budget; alone, nothing need leave.
 */
static void update_kept(struct gs_device *device, uint64_t resident, uint64_t budget)
{
    const uint64_t kept = atomic_load_explicit(&device->kept, memory_order_relaxed);

    if (kept == 0)
        return;
    if ((flags_of(device) & GS_TARGET_SOLE) != 0 || resident <= budget)
        keep(device, 0);
    else if (kept > resident - budget)
        keep(device, resident - budget);
}

/* More is needed than the program may ever have (others took it for good): its calls must not
 * wait for ever. */
static void watch_never(struct gs_device *device, const struct gs_accounts *accounts,
                        uint64_t now)
{
    if (accounts->missing == 0 || accounts->demand <= gs_device_room(device))
        device->never_since = 0;
    else if (device->never_since == 0)
        device->never_since = now;
    else if (now - device->never_since > GS_SHORT_LIMIT_NS)
        gs_gate_refuse(true);
}

static bool move_in(struct gs_device *device, uint64_t room, uint64_t now)
{
    uint64_t lacking;

    switch (gs_swap_in(device, room, &lacking)) {
    case GS_SWAP_MOVED:
        device->short_since = 0;
        return true;
    case GS_SWAP_SHORT:
        note_short(device, lacking, now);
        return false;
    default:
        return false;
    }
}

/* One step on every device. True: there may be more to do at once. */
static bool move(uint64_t now)
{
    struct gs_device *device;
    bool more = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        const uint64_t budget = atomic_load_explicit(&device->budget, memory_order_relaxed);
        struct gs_accounts accounts = gs_memory_accounts(device);
        uint64_t here;

        /* it may stay after all; what has come in counts */
        if (((!self.stopped || accounts.resident <= budget) &&
             gs_swap_is_under_way(device, true)) ||
            ((flags_of(device) & GS_TARGET_RUN) == 0 && gs_swap_is_under_way(device, false))) {
            gs_swap_settle();
            accounts = gs_memory_accounts(device);
        }
        update_kept(device, accounts.resident, budget);
        watch_never(device, &accounts, now);
        here = accounts.resident - atomic_load_explicit(&device->kept, memory_order_relaxed);
        if (now < device->retry_at)
            continue;
        if (should_leave(device, &accounts, budget, now))
            more |= move_out(device, accounts.resident - budget, now);
        else if ((flags_of(device) & GS_TARGET_RUN) != 0 && accounts.missing != 0 &&
                 here < budget)
            more |= move_in(device, budget - here, now);
        else
            continue;
        device->moving_ns += gs_now() - now;
        now = gs_now();
    }
    return more;
}

/* --- host memory --- */

/* What may have to go out when somebody else has his turn. */
static uint64_t may_leave(const struct gs_device *device)
{
    const uint64_t shortfall = atomic_load_explicit(&device->shortfall, memory_order_relaxed);
    const uint64_t demand = gs_memory_accounts(device).demand;

    return device->movable && !device->managed ? smaller(demand, shortfall) : 0;
}

static bool register_one(void)
{
    const struct gs_context *context = NULL;
    struct gs_device *device;
    CUcontext popped;
    bool more = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && context == NULL; i++)
        context = gs_context_for(device);
    if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
        return false;
    more = gs_host_register_one();
    gs_driver.cuCtxPopCurrent_v2(&popped);
    return more;
}

static void give_back_host_memory(uint64_t keep)
{
    const struct gs_context *context;
    struct gs_device *device;
    CUcontext popped;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        if (gs_host_used() <= keep)
            return;
        gs_swap_drop_copies(device);
        context = gs_context_for(device);
        if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
            continue;
        gs_host_trim(keep);
        gs_driver.cuCtxPopCurrent_v2(&popped);
    }
}

/* Makes ready what may be needed, and gives back what is not needed any more. Nothing moves
 * now. Returns ns until there is more to do. */
static uint64_t keep_host_memory(uint64_t now)
{
    struct gs_device *device;
    uint64_t leaving = 0;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        leaving += may_leave(device);
    if (leaving != 0)
        gs_host_prepare(leaving);
    if (leaving != 0 || somebody_waits() || !all_may_run())
        self.needed_at = now;
    if (gs_host_has_unregistered() && register_one())
        return 1;
    if (gs_host_used() > gs_host_budget())
        give_back_host_memory(gs_host_budget());
    else if (gs_host_used() != 0 && now - self.needed_at > HOST_KEPT_NS)
        give_back_host_memory(0);
    return gs_host_used() != 0 ? 200 * MS : UINT64_MAX;
}

/* the gate is open: what was moving has arrived */
static void arrived(void)
{
    struct gs_device *device;
    bool switched = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        if (device->was_out) {
            device->switch_ns = device->moving_ns; /* its way out and its way back */
            switched = true;
        }
        device->moving_ns = 0;
        device->was_out = false;
        device->short_bytes = 0;
    }
    if (switched)
        atomic_fetch_add_explicit(&gs_runtime.switches, 1, memory_order_relaxed);
}

/* --- idleness --- */

/* While others wait: idle after idle_ns without a gated call or a waiting sync. Returns ns
 * until the next look. */
static uint64_t watch_idleness(uint64_t now)
{
    struct gs_device *device = gs_device_at(0);
    const uint64_t idle_ns =
        device != NULL ? atomic_load_explicit(&device->idle_ns, memory_order_relaxed) : 0;
    bool busy;
    const uint64_t activity = gs_gate_activity(&busy);

    if (activity != self.activity || busy || self.stopped || gs_gate_waiting() != 0 ||
        gs_capture_active()) {
        self.activity = activity;
        self.active_at = now;
    }
    if (!somebody_waits() || self.stopped || idle_ns == 0) {
        self.idle = false; /* but how long it has been is known when somebody comes */
        return UINT64_MAX;
    }
    self.idle = now - self.active_at >= idle_ns;
    return idle_ns / 4 + 1;
}

/* --- a round --- */

static uint64_t report_all(uint64_t now)
{
    struct gs_report report = {
        .running = !self.stopped,
        .want = gs_gate_waiting() != 0 || (!self.stopped && !self.idle),
        .stuck = self.stuck,
        .partial = atomic_load_explicit(&gs_runtime.partial, memory_order_relaxed),
    };
    const uint64_t asked = atomic_exchange_explicit(&self.short_asked, 0, memory_order_relaxed);
    struct gs_device *device;
    uint64_t due = UINT64_MAX;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && self.fd >= 0; i++) {
        uint64_t after;
        int error;

        if (asked != 0 && device->short_bytes == 0)
            device->short_bytes = asked;
        error = gs_report_send(self.fd, device, &report, now, &after);
        if (error < 0 && error != -EAGAIN)
            lost(now);
        if (after < due)
            due = after;
    }
    if (self.fd >= 0 &&
        atomic_exchange_explicit(&self.partial_pending, false, memory_order_acq_rel)) {
        struct gs_wire_note note;

        gs_connect_note(&note, GS_NOTE_OTHER, self.partial_text);
        gs_connect_send(self.fd, &note, sizeof note);
    }
    return due;
}

uint64_t gs_converge(void)
{
    uint64_t now = gs_now(), due = 1000 * MS;
    bool more = false;

    if (atomic_load_explicit(&self.exiting, memory_order_acquire) && gs_gate_waiting() == 0)
        return 50 * MS;
    reconnect(now);
    receive(now);
    wait_for_first_word(now);
    if (gs_client_is_alone())
        allow_everything();
    if (self.fd < 0)
        due = 20 * MS;
    if (!all_may_run() && !self.stopped)
        due = smaller(due, stop(now));
    else if (all_may_run() && self.started_to_stop)
        reopen_if_complete();
    if (gs_memory_dispose_dead(self.stopped))
        due = smaller(due, MS);
    if (all_may_run() || self.stopped)
        more = move(now);
    now = gs_now();
    if (all_may_run() && something_leaves()) /* a target with less budget than is in place */
        gs_swap_settle();
    if (all_may_run() && !self.started_to_stop && gs_memory_if_complete(open_gate)) {
        self.stopped = false;
        self.stop_since = 0;
        arrived();
    } else if (self.stopped && !more) {
        struct gs_device *device;

        for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
            due = smaller(due, device->retry_at > now ? device->retry_at - now : UINT64_MAX);
    }
    if (!more)
        due = smaller(due, keep_host_memory(now));
    due = smaller(due, watch_idleness(now));
    due = smaller(due, report_all(now));
    return more ? 0 : due;
}

/* --- what other threads say --- */

bool gs_client_short(void)
{
    const struct gs_device *device = gs_device_current();
    uint64_t step;

    if (device == NULL)
        device = gs_device_at(0);
    if (gs_runtime.config.disabled || gs_client_is_alone() || device == NULL ||
        (flags_of(device) & GS_TARGET_SOLE) != 0)
        return false;
    step = device->total / 64; /* at a time: the driver does not say how much it lacks */
    step = step < SHORT_STEP_MIN ? SHORT_STEP_MIN : step;
    atomic_store_explicit(&self.short_asked, smaller(step, SHORT_STEP_MAX),
                          memory_order_relaxed);
    gs_client_wake();
    return true;
}

void gs_client_await_target(struct gs_device *device)
{
    const uint64_t until = gs_now() + 1000 * MS;
    const struct timespec pause = {0, 200000};

    while (atomic_load_explicit(&device->target_seq, memory_order_acquire) == 0 &&
           !gs_client_is_alone() && gs_now() < until)
        nanosleep(&pause, NULL);
}

void gs_client_note_partial(const char *text)
{
    static _Atomic(bool) taken;

    atomic_store_explicit(&gs_runtime.partial, true, memory_order_relaxed);
    if (atomic_exchange_explicit(&taken, true, memory_order_relaxed))
        return;
    snprintf(self.partial_text, sizeof self.partial_text, "%s", text);
    atomic_store_explicit(&self.partial_pending, true, memory_order_release);
    gs_client_wake();
}

void gs_converge_exiting(void)
{
    atomic_store_explicit(&self.exiting, true, memory_order_release);
}

void gs_converge_after_fork(void)
{
    if (self.fd >= 0)
        close(self.fd);
    memset(&self, 0, sizeof self);
    gs_report_after_fork();
    self.fd = -1;
    self.stopped = true;
}
