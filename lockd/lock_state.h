/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_state.h: the structures behind lock.h, shared by lock.c (events), lock_turns.c (who
 * runs), lock_budget.c (who holds how much) and lock_info.c (what a person is shown). Nobody
 * else includes it but the tests.
 */
#ifndef GS_LOCKD_LOCK_STATE_H
#define GS_LOCKD_LOCK_STATE_H

#include "lockd/list.h"
#include "lockd/lock.h"

#define MIB               (1024ull * 1024)
#define GIB               (1024 * MIB)
#define NS_PER_MS         1000000ull
#define QUANTUM_DEFAULT   (2000 * NS_PER_MS)
#define QUANTUM_MIN       (200 * NS_PER_MS)
#define QUANTUM_MAX       (30000 * NS_PER_MS)
#define QUANTUM_PER_COST  20 /* a switch may cost 5 % of the quantum */
#define SHARE_PPM         50000
#define IDLE_DEFAULT      (20 * NS_PER_MS)
#define IDLE_MIN          (5 * NS_PER_MS)
#define IDLE_MAX          (500 * NS_PER_MS)
#define GRACE             (10000 * NS_PER_MS) /* a turn without progress, a stop without an answer */
#define GRACE_SHORT       (1000 * NS_PER_MS) /* ... that the driver has no memory for */
#define ASK_AGAIN         (2000 * NS_PER_MS) /* a stuck holder */
#define SHORT_DECAY       (10000 * NS_PER_MS)
#define SHORT_REPEAT      (1000 * NS_PER_MS)
#define RESTART_WINDOW    (2000 * NS_PER_MS)
#define RESTART_SETTLE    (300 * NS_PER_MS)
#define EXTERNAL_CONFIRM  (20 * NS_PER_MS)
#define EXTERNAL_UNSAID   (1000 * NS_PER_MS)
#define SHARE_STEP        (2 * MIB)
#define CREDIT_STEP       (16 * MIB)
#define TARGETS_IN_FLIGHT 4

/* A budget that the client may still be acting on. */
struct lockd_outstanding {
    uint32_t seq;
    uint64_t budget;
};

/* One client on one device. */
struct lockd_member {
    struct lockd_client *client;
    struct lockd_device *device;
    struct lockd_list of_client;
    struct lockd_list of_device; /* least recently run first */
    struct lockd_list holder; /* on device->holders while run is set, in order of admission */
    struct lockd_list queued; /* on device->queue while it waits, in order of arrival */
    struct lockd_list
        unsent; /* on lock->unsent while a target has not been taken by the caller */

    /* as last reported */
    uint32_t flags;  /* GS_STATE_* */
    uint32_t echoed; /* newest seq taken over */
    uint64_t demand, resident;
    uint64_t moved_out, moved_in, calls, switch_ns;

    /* decided */
    bool run;
    bool backfilled;   /* admitted past a waiting head of the queue: gives way to it at once */
    bool skipped;      /* a turn ended without it coming to run */
    uint64_t progress; /* when its turn last got ahead */
    uint64_t started;  /* when it first ran in this turn; 0: not yet */
    uint64_t stopped;  /* when it was asked to stop */
    uint64_t short_at; /* when its last GS_STATE_SHORT was counted */
    uint64_t turns;
    uint64_t next; /* budget being worked out by lock_budget.c */

    /* the newest target */
    uint32_t seq, first_seq;
    uint32_t stop_seq; /* the target that first said RUN off */
    uint32_t sent_flags;
    uint64_t budget, sent_capacity, sent_idle, sent_at;
    uint32_t outstanding_count;
    struct lockd_outstanding
        outstanding[TARGETS_IN_FLIGHT + 2]; /* budgets falling, seq rising */
};

struct lockd_device {
    struct lockd_lock *lock;
    struct lockd_list link;
    struct lockd_list members, holders, queue;
    uint8_t uuid[16];
    char name[64];
    uint64_t total, external, capacity;
    uint64_t candidate, candidate_at; /* a higher external use that waits to be seen again */
    uint64_t short_bytes, short_until;
    uint64_t switch_ns;
    uint64_t settle_until; /* clients of an earlier daemon are still coming back */
    uint64_t deadline;
    uint64_t demand; /* sum over members */
    uint32_t member_count, holder_count, queue_count;
    bool measured, leases, restarted;
};

struct lockd_client {
    struct lockd_list link, members;
    void *owner;
    uint32_t member_count, weight, user;
    int32_t priority;
    uint64_t limit; /* on one device, bytes; UINT64_MAX: none */
    uint64_t host_used, host_wanted;
    char group[32];
    bool paused, evict;
};

struct lockd_lock {
    struct lockd_settings settings;
    uint64_t created;
    uint64_t host_available, host_total, host_used;
    struct lockd_list clients, devices, unsent;
};

static inline uint64_t lockd_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t lockd_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t lockd_clamp(uint64_t value, uint64_t low, uint64_t high)
{
    return lockd_min(lockd_max(value, low), high);
}

static inline uint64_t lockd_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What a member takes of the device while it runs; one that needs more than there is takes all
 * of it. */
static inline uint64_t lockd_need(const struct lockd_member *member)
{
    return lockd_min(member->demand, member->device->capacity);
}

static inline bool lockd_member_wants(const struct lockd_member *member)
{
    return (member->flags & GS_STATE_WANT) != 0 && !member->client->paused;
}

/* May it be running, by what it was told and what it says? */
static inline bool lockd_member_busy(const struct lockd_member *member)
{
    return member->run || (member->sent_flags & GS_TARGET_RUN) != 0 ||
           (member->flags & GS_STATE_RUNNING) != 0 || member->echoed < member->stop_seq;
}

static inline bool lockd_member_hopeless(const struct lockd_member *member)
{
    return member->demand > member->device->total;
}

/* The most it may hold on the device now or before it has read everything sent. */
uint64_t lockd_member_hold(const struct lockd_member *member);
bool lockd_member_stuck(const struct lockd_member *member, uint64_t now);
uint64_t lockd_device_quantum(const struct lockd_device *device);
uint64_t lockd_device_idle(const struct lockd_device *device);
uint64_t lockd_device_reserve(const struct lockd_device *device);

/* Decides everything about a device anew. */
void lockd_device_plan(struct lockd_device *device, uint64_t now);

/* Does anybody wait who can ever be served? */
bool lockd_device_waiters(const struct lockd_device *device);

/* lock_turns.c: decides member->run for all, keeps the queue; lowers device->deadline to when
 * it must look again. */
void lockd_turns_plan(struct lockd_device *device, uint64_t now);
/* Takes the member off every list of its device's turns. */
void lockd_turns_forget(struct lockd_member *member);

/* lock_budget.c: gives everybody a budget that goes with that, and puts out the targets that
 * changed. */
void lockd_budget_plan(struct lockd_device *device, uint64_t now);
/* Drops the budgets that the client has left behind with what it echoed. */
void lockd_budget_echo(struct lockd_member *member);

#endif
