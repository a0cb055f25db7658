/* SPDX-License-Identifier: Apache-2.0
 *
 * hostmem.h: how much host memory the programs can have together.
 */
#pragma once

#include "common/memory_left.h"

struct lockd_host {
    const char *root;              /* in the place of /; "": the real root */
    struct gs_memory_group common; /* the narrowest cgroup that holds all programs */
};

/* No program has come yet. */
void lockd_host_init(struct lockd_host *host);
/* A program has connected. first: there is no other program. pid: 0 when its process cannot be seen
 * from here. True if the available memory may have changed. */
bool lockd_host_came(struct lockd_host *host, bool first, pid_t pid);
/* The bytes that all programs together can have without swapping: the rest of the machine's
 * memory, or of the cgroups that hold all of them. A limit that holds for some of them only does
 * not count. UINT64_MAX when it cannot be read. */
uint64_t lockd_host_available(const struct lockd_host *host);

/* The same for this process alone. */
uint64_t lockd_host_own(void);
