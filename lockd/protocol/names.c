/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c: what the numbers of the protocol are called, for people and in files. No state.
 */
#include "lockd/protocol/names.h"

#include <string.h>

#include "lockd/protocol/wire.h"

static const char *const policy_names[GS_POLICY_COUNT] = {
    [GS_POLICY_FAIR] = "fair",
    [GS_POLICY_FIFO] = "fifo",
    [GS_POLICY_RR] = "rr",
    [GS_POLICY_PRIORITY] = "priority",
};

const char *lockd_policy_name(uint32_t policy)
{
    return policy < GS_POLICY_COUNT ? policy_names[policy] : NULL;
}

int lockd_policy_find(const char *name)
{
    for (int i = 0; i < GS_POLICY_COUNT; i++) {
        if (strcmp(policy_names[i], name) == 0)
            return i;
    }
    return -1;
}
