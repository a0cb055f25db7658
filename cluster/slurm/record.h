/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: the job's record at the controller.
 */
#ifndef GS_CLUSTER_SLURM_RECORD_H
#define GS_CLUSTER_SLURM_RECORD_H

#include <stdint.h>

#include "common/err.h"

#define GS_RECORD_MOST 16384 /* characters that steps may add to a job's AdminComment */

/* Adds the text, which has no newline, to the job's AdminComment. 0 or -errno. */
int gs_record_add(uint32_t job, const char *text, struct gs_err *err);

#endif
