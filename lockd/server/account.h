/* SPDX-License-Identifier: Apache-2.0
 *
 * account.h: what the programs of a group have used together, those that have ended included.
 */
#ifndef GS_LOCKD_SERVER_ACCOUNT_H
#define GS_LOCKD_SERVER_ACCOUNT_H

#include "lockd/protocol/wire.h"

#include <stdint.h>
#include <sys/types.h>

struct lockd_connection;
struct sched_client;

#define LOCKD_ACCOUNTS 512

/* One group of one user, after the first of its programs has ended. */
struct lockd_account {
    uint64_t at; /* when a program of it ended last; 0: the slot is free */
    uid_t uid;
    struct gs_wire_account sum; /* of the programs that have ended */
};

struct lockd_accounts {
    struct lockd_account slot[LOCKD_ACCOUNTS];
};

/* A program with a group has ended; the scheduler still knows it. */
void lockd_account_gone(const struct lockd_connection *connection,
                        const struct sched_client *client);
/* Answers GS_WIRE_ACCOUNT for a group of the caller's user. */
void lockd_account_answer(struct lockd_connection *connection,
                          const struct gs_wire_account *asked);

#endif
