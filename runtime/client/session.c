/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c: owns the connection to the daemon: finds the daemon, receives its targets, connects
 * again after the connection was lost, and gives up if no daemon answers.
 *
 * State: one object, client thread only. Without a daemon the program keeps the memory that it
 * holds; after GS_ALONE_AFTER_NS it runs alone, and goes on looking. A program that had a
 * daemon waits for so long also where it cannot start a daemon: the daemon may be being replaced. A
 * program that never had a daemon and cannot start a daemon runs alone at once.
 */
#include "runtime/client/session.h"
#include "runtime/client/api.h"
#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"
#include "runtime/client/ipc.h"
#include "runtime/client/relocate.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/swap/common.h"

#define MS 1000000ull

/* If the client thread had no turn for longer than this, the process was stopped, or the machine
 * is busy, and so is the daemon. That time does not count. */
#define TURN_MOST_NS (2000 * MS)

#define UNHEARD_LEAST 5 /* connections that end before the daemon answers */

static struct {
    struct gs_own_fd connection;
    uint64_t
        lost_at; /* ns: no daemon since then; 0: the daemon is there, or none was needed yet */
    uint64_t next_try;      /* ns */
    uint64_t refused_since; /* ns: connections have ended before an answer; 0: none */
    unsigned refused;       /* number of such connections since then */
    uint64_t asked_at;  /* ns: this connection's daemon owes an answer since then; 0: none */
    uint64_t turned_at; /* ns: the last turn */
    bool heard;         /* this connection brought a target, or the end of a move */
    bool served;        /* a daemon has answered before */
    bool unstartable;   /* none could be started since the last connection ended ... */
    struct gs_err why;  /* ... for this reason */
} self GS_ZERO_IN_CHILD;

int gs_session_fd(void)
{
    return gs_own_fd(&self.connection);
}

static bool is_connected(void)
{
    return atomic_load_explicit(&self.connection.number, memory_order_relaxed) != 0;
}

void gs_session_give_up(const char *why)
{
    static bool said;

    gs_say_once(&said, "running without sharing: %s (`gpusharectl doctor %d` says more)", why,
                (int)getpid());
    gs_daemon_set_absent(true);
}

/* A daemon that has just come back takes memory of programs that it does not know yet for
 * foreign memory. So a smaller capacity counts a little later. */
static void take_capacity(struct gs_device *device, uint64_t now)
{
    const uint64_t told = device->target.told_capacity;

    if (!gs_daemon_is_new(now) ||
        told > atomic_load_explicit(&device->target.capacity, memory_order_relaxed))
        atomic_store_explicit(&device->target.capacity, told, memory_order_relaxed);
}

static void apply_target(const struct gs_wire_target *target, struct gs_descriptors *with,
                         uint64_t now)
{
    gs_each_device (device) {
        if (memcmp(device->uuid, target->uuid, sizeof device->uuid) != 0)
            continue;
        gs_handover_heard(device, target, with);
        atomic_store_explicit(&device->target.flags,
                              gs_relocate_is_asked() ? target->flags & ~GS_TARGET_GIVE
                                                     : target->flags,
                              memory_order_relaxed);
        device->target.told_capacity = target->capacity;
        take_capacity(device, now);
        if (target->answered > /* another daemon begins at 0 */
            atomic_load_explicit(&device->target.answered, memory_order_relaxed))
            atomic_store_explicit(&device->target.answered, target->answered,
                                  memory_order_release);
        atomic_store_explicit(&device->target.idle_ns, target->idle_ns, memory_order_relaxed);
        atomic_store_explicit(&device->target.shortfall, target->shortfall,
                              memory_order_relaxed);
        atomic_store_explicit(&device->target.overcommit, target->overcommit,
                              memory_order_relaxed);
        atomic_store_explicit(&device->target.budget, target->budget, memory_order_relaxed);
        gs_host_set_budget(target->host_budget);
        atomic_store_explicit(&device->target.seq, target->seq, memory_order_release);
        gs_log("target %u: %s%s budget %llu of %llu MiB", target->seq,
               (target->flags & GS_TARGET_RUN) != 0 ? "run" : "wait",
               (target->flags & GS_TARGET_BEYOND) != 0    ? " (beyond the card)"
               : (target->flags & GS_TARGET_WAITERS) != 0 ? " (others wait)"
                                                          : "",
               (unsigned long long)(target->budget >> 20),
               (unsigned long long)(target->capacity >> 20));
    }
}

/* The program runs without a daemon and needs none. A program that a guard moves does not run:
 * if the guard was killed, only the next daemon can bring it back. */
static bool is_content_alone(void)
{
    return gs_daemon_is_absent() && !gs_relocate_holds();
}

static void move_on(uint64_t *time, uint64_t ns)
{
    if (*time != 0)
        *time += ns;
}

static void forgive_stall(uint64_t now)
{
    const uint64_t gap = self.turned_at != 0 ? now - self.turned_at : 0;

    self.turned_at = now;
    if (gap <= TURN_MOST_NS)
        return;
    move_on(&self.lost_at, gap - TURN_MOST_NS);
    move_on(&self.refused_since, gap - TURN_MOST_NS);
    move_on(&self.asked_at, gap - TURN_MOST_NS);
}

/* A connection has ended before the daemon answered: the daemon is of another release, or has
 * too many programs, or somebody kills each of them. On a busy machine a daemon that is killed
 * now and then does not answer either. So several connections must have ended, over some time. */
static void count_unheard(uint64_t now, bool refused)
{
    if (self.refused_since == 0)
        self.refused_since = now;
    if (++self.refused < UNHEARD_LEAST || now - self.refused_since <= GS_ALONE_AFTER_NS ||
        gs_daemon_is_absent())
        return;
    gs_session_give_up(
        refused
            ? "gpushare-lockd refuses it"
            : "gpushare-lockd repeatedly ends before it answers; run it by hand to see why");
}

/* refused: the daemon said that it refuses the program. */
static void lose_connection(uint64_t now, bool refused)
{
    gs_log("the daemon is gone");
    gs_daemon_set_socket(-1);
    gs_own_fd_close(&self.connection);
    self.lost_at = now;
    self.next_try = now;
    if (!self.heard) {
        self.next_try = now + (is_content_alone() ? 5000 * MS : 200 * MS);
        if (!gs_relocate_holds()) /* else it sends nothing that needs an answer */
            count_unheard(now, refused);
    }
    gs_daemon_set_new_until(UINT64_MAX);
    gs_handover_lost();
    gs_common_lost();
    gs_evidence_lost();
    gs_exporter_lost();
    gs_opener_lost();
    gs_relocate_lost();
    gs_each_device (device)
        device->report.known = false; /* the next daemon gets everything anew */
}

static void note_answer(void)
{
    self.heard = self.served = true;
    self.refused_since = 0;
    self.refused = 0;
}

static void take_message(const union gs_connect_message *message, struct gs_descriptors *with,
                         uint64_t now)
{
    switch (message->header.type) {
    case GS_WIRE_OPEN:
        gs_exporter_asked(&message->open, now);
        break;
    case GS_WIRE_SHARE:
        gs_opener_heard(&message->share, with);
        break;
    case GS_WIRE_COPY:
        gs_common_heard(&message->copy, with);
        break;
    case GS_WIRE_MOVE:
        note_answer();
        gs_relocate_heard(&message->move);
        break;
    default:
        note_answer();
        gs_daemon_set_absent(false);
        apply_target(&message->target, with, now);
    }
}

static void receive_targets(uint64_t now)
{
    struct gs_descriptors with = {.count = 0};
    union gs_connect_message message;
    int got = 0;

    gs_daemon_set_reading(true);
    do {
        const unsigned most = gs_handover_expect(gs_opener_expects());
        const int fd = gs_session_fd();

        got = fd >= 0          ? gs_connect_receive(fd, &message, most, &with)
              : is_connected() ? -EBADF /* the program has closed it */
                               : 0;
        if (got > 0) {
            take_message(&message, &with, now);
            gs_descriptors_close(&with);
        }
        gs_handover_end();
    } while (got > 0);
    gs_daemon_set_reading(false);
    if (gs_connect_is_forbidden(got) && !gs_daemon_is_absent())
        gs_session_give_up("this process may not receive from gpushare-lockd (seccomp?)");
    if (got < 0)
        lose_connection(now, got == -ECONNREFUSED);
}

void gs_session_asked(uint64_t now)
{
    if (self.asked_at == 0)
        self.asked_at = now;
}

/* A new daemon assumes two things until its first target: the memory that is there, and the
 * memory that a running program may need (docs/protocol.md). The rest of the old budget may be
 * another program's now. */
static void claim_no_more(void)
{
    gs_each_device (device) {
        const struct gs_accounts accounts = gs_memory_accounts(device);
        const uint64_t kept = atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
        uint64_t most = accounts.resident > kept ? accounts.resident - kept : 0;

        if (accounts.missing == 0 && accounts.demand > most)
            most = accounts.demand;
        if (atomic_load_explicit(&device->target.budget, memory_order_relaxed) > most)
            atomic_store_explicit(&device->target.budget, most, memory_order_relaxed);
    }
}

/* Without a daemon the program keeps its memory; after a while the gate opens all the same. */
static void reconnect_daemon(uint64_t now)
{
    static bool said;
    struct gs_err why = {0};
    int error;

    if (is_connected() || now < self.next_try)
        return;
    if (self.lost_at == 0)
        self.lost_at = now;
    /* what could not be started once is not tried again and again, but by a program that needs it */
    error = gs_connect(!is_content_alone() && (!self.unstartable || gs_relocate_holds()),
                       &self.connection, &why);
    if (error == 0) {
        self.heard = false;
        gs_daemon_set_socket(gs_session_fd());
        gs_wish_anew();
        if (!gs_daemon_is_absent())
            claim_no_more();
        self.asked_at = 0;
        self.lost_at = 0;
        self.unstartable = false;
        if (gs_daemon_was_lost())
            gs_daemon_set_new_until(now + 3000 * MS);
        return;
    }
    /* a daemon that was there is expected back */
    self.next_try = now + (!is_content_alone() ? 50 * MS : self.served ? 100 * MS : 5000 * MS);
    if (error != -EAGAIN && !self.unstartable) {
        self.unstartable = true;
        self.why = why;
    }
    if (now - self.lost_at <= GS_ALONE_AFTER_NS && (error == -EAGAIN || self.served))
        return;
    if (gs_relocate_holds()) { /* the guard that is at work needs no daemon */
        self.next_try = now + 1000 * MS;
        if (now - self.lost_at > GS_ALONE_AFTER_NS)
            gs_say_once(&said,
                        "waiting for gpushare-lockd, which was moving it to another GPU: %s",
                        why.text);
    } else if (!gs_daemon_is_absent()) {
        gs_session_give_up(self.unstartable ? self.why.text : why.text);
    }
}

void gs_session_allow_everything(void)
{
    gs_each_device (device) {
        atomic_store_explicit(&device->target.flags, GS_TARGET_RUN, memory_order_relaxed);
        atomic_store_explicit(&device->target.budget, UINT64_MAX / 2, memory_order_relaxed);
        gs_host_set_budget(UINT64_MAX);
        atomic_store_explicit(&device->target.capacity, device->total, memory_order_relaxed);
    }
}

void gs_session_turn(uint64_t now)
{
    forgive_stall(now);
    reconnect_daemon(now);
    receive_targets(now);
    /* The kernel accepts connections for a daemon that is stopped or hangs. */
    if (is_connected() && !self.heard && !gs_daemon_is_absent() && !gs_relocate_holds() &&
        self.asked_at != 0 && now - self.asked_at > GS_ALONE_AFTER_NS)
        gs_session_give_up("gpushare-lockd does not answer");
    if (gs_daemon_is_absent())
        gs_session_allow_everything();
    else
        gs_each_device (device)
            if (atomic_load_explicit(&device->target.seq, memory_order_relaxed) != 0)
                take_capacity(device, now);
}

void gs_session_failed(uint64_t now)
{
    receive_targets(now); /* the reason may have been sent before the end */
    if (is_connected())
        lose_connection(now, false);
}

void gs_session_send_note(void)
{
    const int fd = gs_session_fd();
    struct gs_wire_note note;
    char remark[GS_REMARK_BYTES];

    while (fd >= 0 && gs_daemon_take_remark(remark)) {
        gs_connect_note(&note, GS_NOTE_OTHER, remark);
        gs_connect_send(fd, &note, sizeof note, NULL);
    }
}

void gs_session_send_wish(void)
{
    const int fd = gs_session_fd();
    struct gs_wire_wish wish;

    if (fd < 0 || !gs_wish_news(&wish))
        return;
    gs_connect_header(&wish.header, GS_WIRE_WISH, sizeof wish);
    if (gs_connect_send(fd, &wish, sizeof wish, NULL) == 0)
        gs_wish_sent(); /* else in one of the next rounds */
}

void gs_session_send_copies(void)
{
    struct gs_wire_copy copy = {.zero = 0};
    struct gs_descriptors with = {.count = 0};
    int error = 0;

    while (error == 0 && gs_session_fd() >= 0 && gs_common_say(&copy, &with.fd[0])) {
        with.count = with.fd[0] >= 0;
        gs_connect_header(&copy.header, GS_WIRE_COPY, sizeof copy);
        error = gs_connect_send(gs_session_fd(), &copy, sizeof copy, &with);
        if (error != -EAGAIN)
            gs_common_said(&copy);
    }
}

void gs_session_after_fork(void)
{
    gs_own_fd_close(&self.connection);
    gs_daemon_after_fork();
}
