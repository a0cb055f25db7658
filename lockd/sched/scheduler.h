/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler.h: which program may run on which device, and with how many bytes. A pure state
 * machine: events with a clock go in, targets for clients and a deadline come out. No I/O, no
 * clock, no globals, one thread. The only header of this room for other rooms.
 *
 * After every event the caller takes all targets with sched_next_send(), and asks
 * sched_deadline() for the time at which it must call sched_tick() at the latest. Times are
 * nanoseconds of any clock that never goes back.
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define LOCKD_NEVER UINT64_MAX
#define LOCKD_AUTO  UINT64_MAX

#define LOCKD_DEVICES_PER_CLIENT 64 /* twice as many for a user, that nobody had named before */

struct sched;
struct sched_client;

struct sched_settings {
    uint64_t quantum_ns; /* length of a turn; LOCKD_AUTO: from the measured cost of a switch */
    uint64_t idle_ns;    /* what a holder may idle; LOCKD_AUTO: the cost of a
                            switch */
    uint64_t reserve; /* bytes of each device that nobody gets; LOCKD_AUTO: 1/64 of it, 2 MiB to
                         1 GiB */
    /* 0 in any of these: as a new daemon has it */
    enum gs_policy policy;
    bool exclusive;          /* turns also when everything fits */
    uint64_t quantum_min_ns; /* bounds of the automatic quantum */
    uint64_t quantum_max_ns;
    uint64_t host; /* bytes of host memory for all clients; 0 or LOCKD_AUTO: a share of what
                      sched_host() said */
    uint32_t share_ppm; /* what switches may cost of the time, in millionths */
    uint32_t floor_ppm; /* of their fair share, that is left to programs that do not go first */
    bool balance; /* programs may move to other devices: all say when they have nothing to do */
};

/* A target to be sent. Everything but its header and `overcommit`, of which nothing here
 * depends, is filled in. */
struct sched_send {
    void *owner; /* as given to sched_client_add() */
    struct gs_wire_target target;
    uint64_t rise; /* bytes, of the budget beyond all that the client may have there now */
};

/* Host memory of all clients, bytes. */
struct sched_host_info {
    uint64_t total; /* what they may have altogether; UINT64_MAX: not limited */
    uint64_t used;  /* what they say they have */
};

/* NULL without memory. */
struct sched *sched_new(const struct sched_settings *settings, uint64_t now_ns);
void sched_free(struct sched *sched);

struct sched_client *sched_client_add(struct sched *sched, void *owner);
/* The first report for a device registers the client there. 0, -ENOMEM, or -EMFILE when it
 * or its user names too many devices. */
int sched_state(struct sched_client *client, const struct gs_wire_state *state,
                uint64_t now_ns);
void sched_client_gone(struct sched_client *client, uint64_t now_ns);
/* The client has no memory on that device any more and does not use it: it was moved to another
 * device, which its next report names. Its times, its bursts and its share go with it. Nothing
 * happens if it does not use the device. */
void sched_left(struct sched_client *client, const uint8_t *uuid, uint64_t now_ns);
void sched_pause(struct sched_client *client, bool paused, uint64_t now_ns);
/* The client's HELLO. Groups of one name are one gang if `user` is the same. To be called
 * before its first state. */
void sched_describe(struct sched_client *client, const struct gs_wire_hello *hello,
                    uint32_t user);
/* The client was found to be in one job with all others of that number: together they are a
 * gang, as a group is. 0: in none. Nothing happens to a client that names a group. */
void sched_kin(struct sched_client *client, uint64_t kin, uint64_t now_ns);
/* The client is a rank of a job, by evidence of its own, also while no other rank is there.
 * ranks: of the job on this machine; 0: not known. */
void sched_rank(struct sched_client *client, uint32_t ranks, uint64_t now_ns);
/* Settings of one client. */
struct sched_client_settings {
    uint32_t weight;
    int32_t priority;
    enum gs_wire_class class;
    uint64_t limit; /* bytes, the most it may hold on one device; UINT64_MAX: no limit */
};
void sched_client_set(struct sched_client *client, struct sched_client_settings set,
                      uint64_t now_ns);
/* bytes: the most it may hold on that device; UINT64_MAX: no limit. If the client has not named
 * it, the quota is of the next device that it names. */
void sched_quota(struct sched_client *client, const uint8_t *uuid, uint64_t bytes,
                 uint64_t now_ns);
/* Stops it and moves all its memory out, or what can leave; then it waits for its turn like the
 * others, unless it is paused. sched_pause(false) ends it before. */
void sched_evict(struct sched_client *client, uint64_t now_ns);
/* A program is about to come to that device, with so many bytes that cannot be moved: the
 * others make room, as if the device were smaller by that much. No program is refused memory
 * for it. A claim is known by its key and its device; bytes 0: it ends. False: no memory. */
bool sched_claim(struct sched *sched, const void *key, const uint8_t *uuid, uint64_t bytes,
                 uint64_t now_ns);
/* A guard holds the client: nothing of it is on any device, whatever it reported last; or that is
 * over. Its claims say what it will need: nothing is planned before the next sched_claim(), so
 * that nothing counts twice, or not at all, in between. */
void sched_away(struct sched_client *client, bool away, uint64_t now_ns);
/* Bytes of a device that a client has named, else 0. */
uint64_t sched_device_total(const struct sched *sched, const uint8_t *uuid);
enum sched_claimed {
    SCHED_CLAIM_NOTHING, /* no program has memory there that could leave */
    SCHED_CLAIM_PENDING, /* they have more than there is beside the claims */
    SCHED_CLAIM_MET,
};
enum sched_claimed sched_claimed(const struct sched *sched, const uint8_t *uuid);
/* How much host memory the machine has left for whatever comes, bytes. To be called at the
 * start and every few seconds; never called: no limit, but settings.host. */
void sched_host(struct sched *sched, uint64_t available, uint64_t now_ns);
/* A device as the driver knows it, asked by another way than through the programs. */
struct sched_card {
    uint8_t uuid[16];
    uint64_t total, free; /* bytes */
    uint64_t asked_at;    /* the figures are newer than that */
    /* bytes there of the process of that program; UINT64_MAX: not known */
    uint64_t (*shown)(const void *context, const void *owner);
    const void *context;
};
/* From now on, and for some seconds, the reports of the programs there count as far as they agree
 * with the card. */
void sched_card(struct sched *sched, const struct sched_card *card, uint64_t now_ns);
/* How often the card is to be asked, ns; LOCKD_NEVER: there is no use for it. */
uint64_t sched_card_pause(const struct sched *sched, uint64_t now_ns);
/* So many bytes of the device are no client's any more, and will be free in a moment. */
void sched_releasing(struct sched *sched, const uint8_t *uuid, uint64_t bytes, uint64_t now_ns);
void sched_set(struct sched *sched, const struct sched_settings *settings, uint64_t now_ns);
void sched_tick(struct sched *sched, uint64_t now_ns);

/* Takes the next target to be sent; false when there is none. */
bool sched_next_send(struct sched *sched, struct sched_send *send);
struct sched_remark {
    void *owner; /* as given to sched_client_add() */
    bool
        contradicted; /* its reports contradict the card, or another user's: they are not used */
    bool silent;      /* it has begun not to answer while others lack memory */
    /* Its group's programs need more of that device together than they can get: each takes turns by
     * itself from now on. NULL: nothing new. Valid until the next event. */
    const char *group, *device;
};

/* Takes the next program of which there is something to tell people; false when there is none. */
bool sched_next_remark(struct sched *sched, struct sched_remark *remark);
/* When sched_tick() must be called; LOCKD_NEVER: only after an event. */
uint64_t sched_deadline(const struct sched *sched);

/* The settings that are in force: no 0 and no LOCKD_AUTO where there is a fixed value. */
const struct sched_settings *sched_settings(const struct sched *sched);
struct sched_host_info sched_host_info(const struct sched *sched);
struct sched_client_info {
    bool paused, unused; /* unused: it has not named a device */
    struct sched_client_settings set;
};
struct sched_client_info sched_client_info(const struct sched_client *client);
/* Bytes that the client has on that device, as far as it is believed, and bytes that it needs
 * there; 0: it has not named the device. */
uint64_t sched_client_resident(const struct sched_client *client, const uint8_t *uuid);
uint64_t sched_client_demand(const struct sched_client *client, const uint8_t *uuid);

/* A client's activity, as far as it matters for a hang. */
struct sched_progress {
    uint64_t devices; /* that it has named: one bit each, the 64th for all that are left */
    uint64_t calls;   /* gated calls, by its last reports */
    uint64_t turns;   /* that began */
    bool runs;        /* somewhere */
    bool waits;       /* it has work and may not run somewhere */
    bool stuck;       /* it was asked to stop and has not */
    bool leases;      /* turns are taken on one of its devices */
    bool apart;       /* its group is too large for a device */
};
struct sched_progress sched_client_progress(const struct sched_client *client, uint64_t now_ns);

/* A program's activity on one of its devices, as far as it matters for the choice of a better
 * device. */
struct sched_load {
    uint8_t uuid[16];
    bool alone;      /* it uses no other device, and no other program is to run with it */
    bool waits;      /* now: it has work and does not run */
    bool turns;      /* are taken on the device; else all run at the same time */
    uint32_t class;  /* enum gs_wire_class, never GS_CLASS_AUTO */
    uint64_t run_ns; /* so far: had work and ran; had work and did not run */
    uint64_t wait_ns;
    uint64_t demand, resident, pinned; /* bytes */
    uint64_t capacity;                 /* of the device, for programs */
};
/* The number-th of its devices, from 0; false: it uses no more of them. */
bool sched_client_load(const struct sched_client *client, uint32_t number,
                       struct sched_load *load, uint64_t now_ns);

/* For which program a client waits on a device. owner: of that program, as given to
 * sched_client_add(); NULL: for none. most_ns: until that program must stop, at the latest;
 * LOCKD_NEVER: not known. */
struct sched_why {
    enum gs_why why;
    void *owner;
    uint64_t most_ns;
};
struct sched_why sched_client_why(const struct sched_client *client, const uint8_t *uuid,
                                  uint64_t now_ns);

/* Calls visit for each device, then for each client on it. The scheduler knows the figures and
 * flags; the header, process, user, name and version of a client are 0. owner: as given to
 * sched_client_add(). */
typedef void sched_visit_device(void *context, const struct gs_wire_device *device);
typedef void sched_visit_member(void *context, void *owner,
                                const struct gs_wire_client *client);
void sched_visit(const struct sched *sched, sched_visit_device *device,
                 sched_visit_member *member, void *context, uint64_t now_ns);
/* ... for the totals of each device, also of those that no client uses any more. */
typedef void sched_visit_total(void *context, const struct gs_wire_totals *totals);
void sched_visit_totals(const struct sched *sched, sched_visit_total *visit, void *context,
                        uint64_t now_ns);
/* ... for one program, on each of its devices. */
void sched_visit_client(const struct sched_client *client, sched_visit_member *visit,
                        void *context, uint64_t now_ns);
