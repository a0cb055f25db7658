/* SPDX-License-Identifier: Apache-2.0
 *
 * users.h: the account of each user: connections, programs, and how fast the user's messages
 * are read. What a user has in a container (of the system's, not of the user's session) is an
 * account of its own: root of one pod is not root of another.
 */
#ifndef GS_LOCKD_SERVER_USERS_H
#define GS_LOCKD_SERVER_USERS_H

#include "lockd/base/list.h"
#include "lockd/base/log.h"
#include "lockd/identity/identity.h"
#include "lockd/server/closer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One user with at least one connection. */
struct lockd_user {
    struct lockd_list link;
    uid_t uid;
    uint32_t number; /* for the scheduler: the uid, or one that is no user's */
    char container[LOCKD_CONTAINER_SIZE];
    uint32_t connections, programs, trace_listeners;
    uint32_t over; /* devices of the user's programs on which quota.c holds them back */
    struct lockd_closing closing;
    size_t queued; /* bytes that wait until the user's connections read them */
    uint64_t bucket;
    uint64_t said;     /* a bucket of lines in the log */
    uint32_t left_out; /* lines that the log did not get, since the last one that it got */
};

/* The account of a user in a container ("": in none), made if there is none. NULL without
 * memory. */
struct lockd_user *lockd_user_get(struct lockd_list *users, uid_t uid, const char *container);
/* Frees it when nothing is connected or being closed any more; one that has used up its rates
 * later, or who connects again and again would begin anew each time. */
void lockd_user_put(struct lockd_user *user);
void lockd_users_deinit(struct lockd_list *users);

/* Writes a line to the log that this user has caused. Of very many some are left out, and the
 * next line says how many, so that no program can fill the log. */
void lockd_user_say(struct lockd_user *user, enum lockd_log_level level, const char *format,
                    ...) __attribute__((format(printf, 3, 4)));

/* A bucket is the time at which everything taken so far is paid for, at `rate` a second. A
 * second's worth may be taken ahead. */
bool lockd_bucket_over(uint64_t bucket, uint64_t now);
void lockd_bucket_take(uint64_t *bucket, uint64_t rate, uint32_t count, uint64_t now);
/* When it will no longer be over. */
uint64_t lockd_bucket_ready(uint64_t bucket);

#endif
