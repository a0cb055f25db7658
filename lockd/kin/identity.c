/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.c: who a program is. No state.
 */
#include "lockd/kin/identity.h"

#include <stdio.h>
#include <sys/stat.h>

static uint64_t namespace_of(pid_t pid, const char *name)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
    return pid > 0 && stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

struct kin_identity kin_identity_of(uid_t user, pid_t pid)
{
    return (struct kin_identity){.user = (uint32_t)user,
                                 .user_namespace = namespace_of(pid, "user"),
                                 .container = namespace_of(pid, "pid")};
}

bool kin_identity_is_same(const struct kin_identity *a, const struct kin_identity *b)
{
    return a->user == b->user && a->user_namespace == b->user_namespace &&
           a->container == b->container;
}
