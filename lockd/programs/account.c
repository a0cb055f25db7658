/* SPDX-License-Identifier: Apache-2.0
 *
 * account.c: the accounts of groups. The table has a fixed size: when it is full, a new account
 * replaces an account that has not changed for long (base/slots.h).
 */
#include "lockd/programs/account.h"

#include <stddef.h>
#include <string.h>

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

        if (slot->stamp.at != 0 && slot->stamp.owner == uid &&
            strcmp(slot->sum.group, group) == 0)
            return slot;
    }
    return NULL;
}

struct gs_wire_account *lockd_account_open(struct lockd_accounts *accounts, uid_t uid,
                                           const char *group, uint64_t now)
{
    const struct lockd_account *known = lockd_account_find(accounts, uid, group);
    const size_t index = known != NULL ? (size_t)(known - accounts->slot)
                                       : lockd_slots_choose(accounts->slot, LOCKD_ACCOUNTS,
                                                            sizeof accounts->slot[0], uid);
    struct lockd_account *account = &accounts->slot[index];

    if (known == NULL) {
        *account = (struct lockd_account){.stamp.owner = uid};
        strncpy(account->sum.group, group, sizeof account->sum.group - 1);
    }
    account->stamp.at = now;
    return &account->sum;
}
