/* SPDX-License-Identifier: Apache-2.0
 *
 * match.h: memory that another program handed over may hold what this program lacks. Shared by
 * swap.c and match.c. Client thread.
 */
#pragma once

#include "runtime/swap/swap_mover.h"

/* Memory that came lately held something, or little has come. */
bool gs_match_is_likely(const struct gs_mover *mover);

/* True if the memory that came next should be looked at: what came before held something, or
 * little has come, or it is time to look again. */
bool gs_match_is_due(struct gs_mover *mover);

/* The hashes of what the job's memory holds have arrived. If it suits another missing chunk of the
 * same size better than its own, the job is for that chunk from now on. On error its memory may be
 * mapped nowhere. */
CUresult gs_match_job(struct gs_mover *mover, struct gs_job *job);
