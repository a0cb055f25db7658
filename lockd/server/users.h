/* SPDX-License-Identifier: Apache-2.0
 *
 * users.h: the account of each user or container (lockd_identity_account()): connections,
 * programs, and the rate at which messages are read.
 *
 * Closers close descriptors whose sender may have made the close slow. The last close of a file of
 * FUSE or NFS waits for its server, and that of a socket with SO_LINGER for its peer, for as long as
 * the sender of the descriptor likes. A connection with unread packets holds the descriptors that
 * came with them.
 */
#pragma once

#include "common/packet.h"
#include "lockd/base/list.h"
#include "lockd/base/log.h"
#include "lockd/programs/identity.h"

struct lockd_connection;
struct lockd_server;
struct lockd_user;

struct lockd_closers {
    struct lockd_list list;
    uint32_t descriptors; /* from packets, that are not closed yet */
    bool guarded; /* the kernel keeps descriptors from connections that do not want them */
};

/* The closers of one user. */
struct lockd_closing {
    uint32_t closers, running; /* running: those that have begun */
    uint32_t descriptors;      /* from packets, that are not closed yet */
};

#define LOCKD_COPIES_MOST 64u /* offers of all programs of a user; a program has 8 */

struct lockd_copy { /* an offer of contents (struct gs_wire_copy) that nobody has taken yet */
    uint64_t number, from; /* 0: none; id of the connection that it came from */
};

/* A user with at least one connection. */
struct lockd_user {
    struct lockd_list link;
    uid_t uid; /* for a container: of its first process, for the log */
    /* For the scheduler: the uid, or for a container a number that is no uid. */
    uint32_t number;
    char container[LOCKD_CONTAINER_SIZE];
    uint32_t connections, programs, trace_listeners;
    uint32_t over; /* devices on which quota.c holds a program back, over all programs */
    struct lockd_closing closing;
    size_t queued;    /* bytes that wait until the user's connections read them */
    uint64_t move_at; /* not before then may it request a move of its programs (connection.c) */
    uint64_t bucket;
    uint64_t copies; /* the bucket for offers of contents (handover.h) */
    struct lockd_copy copy[LOCKD_COPIES_MOST]; /* a ring, of which so many have been used: */
    unsigned count_copies;
    uint64_t said;     /* the bucket for lines in the log */
    uint32_t left_out; /* lines left out since the last line in the log */
};

/* The account of a container, or of the user if it is ""; made if there is none. NULL without
 * memory. */
struct lockd_user *lockd_user_get(struct lockd_list *users, uid_t uid, const char *container);
/* Frees the account when nothing is connected or being closed any more. An account that has used
 * up its rates is freed later; else a user could reset them by connecting again. */
void lockd_user_put(struct lockd_user *user);
void lockd_users_deinit(struct lockd_list *users);

/* Writes a line to the log that this user has caused. Of very many lines some are left out, and
 * the next line tells how many, so that no program can fill the log. */
void lockd_user_say(struct lockd_user *user, enum lockd_log_level level, const char *format,
                    ...) __attribute__((format(printf, 3, 4)));

/* A bucket is the time at which everything taken so far is paid for, at `rate` a second. The
 * amount of one second may be taken in advance. */
bool lockd_bucket_over(uint64_t bucket, uint64_t now);
void lockd_bucket_take(uint64_t *bucket, uint64_t rate, uint32_t count, uint64_t now);
/* The time from which the bucket is no longer over. */
uint64_t lockd_bucket_ready(uint64_t bucket);

/* From now on new connections refuse descriptors, if the kernel can refuse them (Linux 6.16). */
void lockd_closer_init(struct lockd_server *server);
/* Lets this connection accept descriptors, or not. */
void lockd_closer_allow(struct lockd_connection *connection, bool allow);
/* It is about to be asked for some, and is let send them from now on, whatever the settings say. */
void lockd_closer_ask(struct lockd_connection *connection);
/* Closes descriptors of that user in a thread of their own; with->count is 0 afterwards. */
void lockd_closer_take(struct lockd_server *server, struct lockd_user *user,
                       struct gs_descriptors *with);
/* Closes a connection: at once if no descriptors can be in it, otherwise in a thread. passed:
 * its peer was sent some; then it is closed once the peer has read them or has closed its end.
 * The connection counts until it is closed. */
void lockd_closer_take_connection(struct lockd_server *server, struct lockd_user *user, int fd,
                                  bool descriptors, bool passed);
/* The bytes that the peer of a connection has not read, as the kernel counts them. */
size_t lockd_closer_unread(int fd);
/* The same, of all connections of a user that wait for their peers before they are closed. */
size_t lockd_closer_unread_of(const struct lockd_server *server, const struct lockd_user *user);
/* Whether so many descriptors of this user are being closed that the daemon stops reading the
 * user's messages. */
bool lockd_closer_is_full(const struct lockd_server *server, const struct lockd_user *user);
/* Frees closers that are done, and starts those that had to wait. Returns when to call it
 * again. */
uint64_t lockd_closer_tend(struct lockd_server *server, uint64_t now);
/* Waits a moment for the closers. Those that are left end with the process. */
void lockd_closer_deinit(struct lockd_server *server);
