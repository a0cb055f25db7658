/* SPDX-License-Identifier: Apache-2.0
 *
 * step.h: what the plugin knows of the step that it is in, and what it does for it.
 */
#ifndef GS_CLUSTER_SLURM_STEP_H
#define GS_CLUSTER_SLURM_STEP_H

#include "cluster/slurm/share_option.h"
#include "common/err.h"

#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The job's record at the controller. */

#define GS_RECORD_MOST 16384 /* characters that steps may add to a job's AdminComment */

/* Adds the text, which has no newline, to the job's AdminComment. 0 or -errno. */
int gs_record_add(uint32_t job, const char *text, struct gs_err *err);

#define GS_STEP_GROUP_SIZE 32 /* as in the protocol */

struct gs_step {
    uint32_t job;
    uid_t uid;
    gid_t gid;
    char group
        [GS_STEP_GROUP_SIZE]; /* of its programs; "": the user has named one, or wants none */
    char node[64];
    uint32_t tasks; /* on this node */
};

/* Reads what Slurm says of the step, and sets its programs' environment. 0 or -errno. */
int gs_step_begin(spank_t spank, const struct gs_share_option *option, struct gs_step *step,
                  struct gs_err *err);
/* Whether Slurm gave the step shards of a GPU. */
bool gs_step_has_shards(spank_t spank);
/* In a task, before it gives up root: mounts the door in a namespace of its own. 0 or
 * -errno. */
int gs_step_mount(const struct gs_share_config *config, struct gs_err *err);
/* After the tasks: asks the daemon what they have used, into text. 0 or -errno. */
int gs_step_account(spank_t spank, const struct gs_share_config *config,
                    const struct gs_step *step, char *text, size_t size, struct gs_err *err);

#endif
