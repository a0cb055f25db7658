/* SPDX-License-Identifier: Apache-2.0
 *
 * match.h: memory that another program handed over may hold what this program lacks. Shared by
 * swap.c and match.c. Client thread.
 */
#pragma once

#include "runtime/swap/swap_mover.h"

/* Memory begins to come in a new turn: its first pieces are looked at. */
void gs_match_begin(struct gs_mover *mover);

/* Memory that came lately held something, or little has come. */
bool gs_match_is_likely(const struct gs_mover *mover);

/* True if the memory that comes next should be looked at: what came before held something, or
 * little has come, or it is time to look again. */
bool gs_match_is_due(struct gs_mover *mover);

/* Waits for the hashes of what came for the jobs that have no copies queued yet, and gives each
 * piece to the chunk that it serves best: another job's, or a missing chunk of the same size that has
 * none. On error the memory of some may be mapped nowhere. */
CUresult gs_match_jobs(struct gs_mover *mover);
