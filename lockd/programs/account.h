/* SPDX-License-Identifier: Apache-2.0
 *
 * account.h: the sums of what the ended programs of a group used, so that a batch system can ask
 * for them after a step, however its programs ended.
 */
#ifndef GS_LOCKD_PROGRAMS_ACCOUNT_H
#define GS_LOCKD_PROGRAMS_ACCOUNT_H

#include "lockd/base/slots.h"
#include "lockd/protocol/wire.h"

#include <stdint.h>
#include <sys/types.h>

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

#endif
