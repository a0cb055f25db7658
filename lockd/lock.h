/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h: who may run on which device, and with how many bytes. A pure state machine: events
 * with a clock go in, targets for clients and a deadline come out. No I/O, no clock, no
 * globals, one thread.
 *
 * After every event the caller takes all targets with lockd_lock_next_send() and asks
 * lockd_lock_deadline() when to call lockd_lock_tick() at the latest. Times are nanoseconds of
 * any clock that never goes back.
 */
#ifndef GS_LOCKD_LOCK_H
#define GS_LOCKD_LOCK_H

#include "lockd/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define LOCKD_NEVER UINT64_MAX
#define LOCKD_AUTO  UINT64_MAX

#define LOCKD_DEVICES_PER_CLIENT 64

struct lockd_lock;
struct lockd_client;

struct lockd_settings {
    uint64_t quantum_ns; /* length of a turn; LOCKD_AUTO: from the measured cost of a switch */
    uint64_t idle_ns;    /* what a holder may idle while others wait; LOCKD_AUTO: the cost of a
                            switch */
    uint64_t reserve; /* bytes of each device that nobody gets; LOCKD_AUTO: 1/64 of it, 2 MiB to
                         1 GiB */
};

/* A target to be sent. Everything but its header is filled in. */
struct lockd_send {
    void *owner; /* as given to lockd_lock_client_add() */
    struct gs_wire_target target;
};

/* Sizes in bytes, times in nanoseconds. */
struct lockd_device_info {
    uint8_t uuid[16];
    char name[64];
    uint64_t total, capacity, external, reserve, short_bytes;
    uint64_t demand, resident; /* sums over the clients */
    uint64_t quantum_ns, switch_ns;
    uint32_t clients, waiting;
    bool leases; /* not everything fits: turns are taken */
};

enum lockd_member_condition {
    LOCKD_RUNS,   /* its gate is open */
    LOCKD_WAITS,  /* it has work and no lease */
    LOCKD_IDLE,   /* it has nothing to run */
    LOCKD_MOVING, /* it has the lease, its memory is being brought in (or room is being made) */
    LOCKD_STOPPING,    /* it was asked to stop and has not yet */
    LOCKD_STUCK,       /* ... and does not */
    LOCKD_PAUSED,      /* by gpusharectl */
    LOCKD_DOES_NOT_FIT /* it needs more than the device can ever give */
};

struct lockd_member_info {
    void *owner;
    enum lockd_member_condition condition;
    uint64_t demand, resident, budget, moved_out, moved_in, calls, switch_ns, turns;
    bool run, skipped, partial;
};

/* NULL without memory. */
struct lockd_lock *lockd_lock_new(const struct lockd_settings *settings, uint64_t now_ns);
void lockd_lock_free(struct lockd_lock *lock);

struct lockd_client *lockd_lock_client_add(struct lockd_lock *lock, void *owner);
/* The first report for a device registers the client there. 0, -ENOMEM, or -EMFILE when it
 * names too many devices. */
int lockd_lock_state(struct lockd_lock *lock, struct lockd_client *client,
                     const struct gs_wire_state *state, uint64_t now_ns);
void lockd_lock_client_gone(struct lockd_lock *lock, struct lockd_client *client,
                            uint64_t now_ns);
void lockd_lock_pause(struct lockd_lock *lock, struct lockd_client *client, bool paused,
                      uint64_t now_ns);
void lockd_lock_set(struct lockd_lock *lock, const struct lockd_settings *settings,
                    uint64_t now_ns);
void lockd_lock_tick(struct lockd_lock *lock, uint64_t now_ns);

/* Takes the next target to be sent; false when there is none. */
bool lockd_lock_next_send(struct lockd_lock *lock, struct lockd_send *send);
/* When lockd_lock_tick() must be called; LOCKD_NEVER: only after an event. */
uint64_t lockd_lock_deadline(const struct lockd_lock *lock);

const struct lockd_settings *lockd_lock_settings(const struct lockd_lock *lock);
bool lockd_client_paused(const struct lockd_client *client);
bool lockd_client_unused(const struct lockd_client *client); /* it has not named a device */
/* Calls visit for each device, then for each client on it. */
typedef void lockd_visit_device(void *context, const struct lockd_device_info *info);
typedef void lockd_visit_member(void *context, const struct lockd_device_info *device,
                                const struct lockd_member_info *info);
void lockd_lock_visit(const struct lockd_lock *lock, lockd_visit_device *device,
                      lockd_visit_member *member, void *context, uint64_t now_ns);

#endif
