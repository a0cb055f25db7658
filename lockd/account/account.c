/* SPDX-License-Identifier: Apache-2.0
 *
 * account.c: the accounts of groups. The memory is fixed: a new account takes the place of the one that has changed least
 * recently. A user with a quarter of the slots replaces accounts of its own, so that no user can push out the accounts of
 * others.
 */
#include "lockd/account/account.h"

#include <stddef.h>
#include <string.h>

#define OF_ONE_USER (LOCKD_ACCOUNTS / 4)

void lockd_account_count(struct gs_wire_account *sum, const struct gs_wire_client *client)
{
    sum->moved_out += client->moved_out;
    sum->moved_in += client->moved_in;
    sum->gpu_ns += client->gpu_ns;
    sum->wait_ns += client->wait_ns;
    if (client->wait_longest_ns > sum->wait_longest_ns)
        sum->wait_longest_ns = client->wait_longest_ns;
}

const struct lockd_account *lockd_account_find(const struct lockd_accounts *accounts, uid_t uid,
                                               const char *group)
{
    for (int i = 0; i < LOCKD_ACCOUNTS; i++) {
        const struct lockd_account *slot = &accounts->slot[i];

        if (slot->at != 0 && slot->uid == uid && strcmp(slot->sum.group, group) == 0)
            return slot;
    }
    return NULL;
}

/* The slot for another one of that user. */
static struct lockd_account *find_oldest(struct lockd_accounts *accounts, uid_t uid)
{
    struct lockd_account *oldest = &accounts->slot[0], *own = NULL;
    int count = 0;

    for (int i = 0; i < LOCKD_ACCOUNTS; i++) {
        struct lockd_account *slot = &accounts->slot[i];

        if (slot->at < oldest->at)
            oldest = slot;
        if (slot->at == 0 || slot->uid != uid)
            continue;
        count++;
        if (own == NULL || slot->at < own->at)
            own = slot;
    }
    return count >= OF_ONE_USER ? own : oldest;
}

struct gs_wire_account *lockd_account_open(struct lockd_accounts *accounts, uid_t uid,
                                           const char *group, uint64_t now)
{
    const struct lockd_account *known = lockd_account_find(accounts, uid, group);
    struct lockd_account *account =
        known != NULL ? &accounts->slot[known - accounts->slot] : find_oldest(accounts, uid);

    if (known == NULL) {
        *account = (struct lockd_account){.uid = uid};
        strncpy(account->sum.group, group, sizeof account->sum.group - 1);
    }
    account->at = now;
    return &account->sum;
}
