/* SPDX-License-Identifier: Apache-2.0
 *
 * child.h: runs one of gpushare's programs and takes what it prints.
 */
#ifndef GS_CLUSTER_SLURM_CHILD_H
#define GS_CLUSTER_SLURM_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* As whom it runs. */
struct gs_child_user {
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t group_count;
};

struct gs_child {
    char *const *argv;                /* argv[0] is the full path */
    char *const *environment;         /* NULL: this process's */
    const struct gs_child_user *user; /* NULL: as this process */
};

#define GS_CHILD_SECONDS 20 /* it is killed after that */

/* Its standard output (if it succeeded) or standard error (if not) goes into out, without the last newline. 0: it ended with 0;
 * -errno, with what was wrong in err. Safe in a process with several threads. */
int gs_child_run(const struct gs_child *child, char *out, size_t size, struct gs_err *err);

#endif
