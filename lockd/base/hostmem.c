/* SPDX-License-Identifier: Apache-2.0
 *
 * hostmem.c: the machine's available memory and the limits that all programs share.
 *
 * The daemon's own cgroup does not tell these limits: the daemon may be a service with a limit of
 * its own, or live in the group of the program that started it.
 */
#include "lockd/base/hostmem.h"
#include "lockd/base/clock.h"

void lockd_host_init(struct lockd_host *host)
{
    *host = (struct lockd_host){.root = ""};
}

bool lockd_host_came(struct lockd_host *host, bool first, pid_t pid)
{
    struct gs_memory_group group = {.known = false};

    if (pid > 0)
        gs_memory_group_of(&group, host->root, pid);
    if (!first)
        return gs_memory_group_join(&host->common, &group);
    host->common = group;
    return true;
}

uint64_t lockd_host_available(const struct lockd_host *host)
{
    return lockd_lesser(gs_memory_machine(host->root),
                        gs_memory_group_left(&host->common, host->root));
}

uint64_t lockd_host_own(void)
{
    struct lockd_host host;

    lockd_host_init(&host);
    gs_memory_group_of(&host.common, "", 0);
    return lockd_host_available(&host);
}
