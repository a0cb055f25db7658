/* SPDX-License-Identifier: Apache-2.0
 *
 * track.h: the devices of one program, as its last reports and targets describe them;
 * accounts of programs that have ended.
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <sys/types.h>
#include <stddef.h>

/* A table of fixed size to which programs of all users write. The first member of an entry: */
struct lockd_stamp {
    uint64_t at; /* when it changed last; 0: the slot is free */
    uint32_t owner;
};

/* The index of the slot for a new entry of that owner. slots: `count` entries of `size` bytes
 * each. A free slot; else the oldest entry of the owner with the most entries, so that no owner
 * replaces the few entries of others. */
size_t lockd_slots_choose(const void *slots, size_t count, size_t size, uint32_t owner);

/* Its state under max-memory (server/quota.c). */
struct lockd_quota {
    uint64_t allowed; /* the last demand within max-memory */
    bool over;        /* its demand exceeds max-memory: it is held back */
    bool limited;     /* the scheduler knows a limit */
};

/* One device of one program. */
struct lockd_track {
    uint8_t uuid[16];
    uint32_t flags;        /* GS_STATE_* of the last report */
    uint32_t target_flags; /* GS_TARGET_* of the newest target */
    uint32_t phase;        /* enum gs_phase */
    uint32_t seq;          /* of the newest target */
    uint64_t budget;       /* of the newest target */
    uint64_t demand, resident, moved_out, moved_in, saved;
    struct lockd_quota quota;
};

struct lockd_tracks {
    struct lockd_track *track;
    size_t count;
};

/* The track of a device; NULL if there is none. */
struct lockd_track *lockd_track_find(const struct lockd_tracks *tracks, const uint8_t *uuid);
/* The same, made if there is none; NULL without memory, or if there are too many. */
struct lockd_track *lockd_track_get(struct lockd_tracks *tracks, const uint8_t *uuid);
/* The program does not use the device any more. Nothing happens without a track. */
void lockd_track_drop(struct lockd_tracks *tracks, const uint8_t *uuid);
void lockd_track_deinit(struct lockd_tracks *tracks);

/* --- accounts: the sums of what the ended programs of a group used, so that a batch system can ask
 * for them after a step, however its programs ended --- */

#define LOCKD_ACCOUNTS 512

/* One group of one user, after the first of its programs has ended. */
struct lockd_account {
    struct lockd_stamp stamp;   /* when its last program ended */
    struct gs_wire_account sum; /* of the programs that have ended */
};

struct lockd_accounts {
    struct lockd_account slot[LOCKD_ACCOUNTS];
};

/* Adds the figures of a program on one device. */
void lockd_account_count(struct gs_wire_account *sum, const struct gs_wire_client *client);
/* The account of a group; NULL: none of its programs has ended. */
const struct lockd_account *lockd_account_find(const struct lockd_accounts *accounts, uid_t uid,
                                               const char *group);
/* The same, to add a program that ends now. Made if there is none. */
struct gs_wire_account *lockd_account_open(struct lockd_accounts *accounts, uid_t uid,
                                           const char *group, uint64_t now);

/* --- the devices that a program says it sees, whether it uses them or not --- */

struct lockd_seen {
    uint8_t uuid[16];
    uint64_t total;
    char name[64];
};

struct lockd_sees {
    struct lockd_seen *device; /* devices that it has not named yet are 0 */
    uint32_t count;
};

/* Takes over one message. Returns the device; NULL without memory: then the program cannot be
 * moved. */
const struct lockd_seen *lockd_sees_take(struct lockd_sees *sees,
                                         const struct gs_wire_sees *message);
/* NULL: it does not see that device. */
const struct lockd_seen *lockd_sees_find(const struct lockd_sees *sees, const uint8_t uuid[16]);
void lockd_sees_deinit(struct lockd_sees *sees);
