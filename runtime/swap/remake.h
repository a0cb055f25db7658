/* SPDX-License-Identifier: Apache-2.0
 *
 * remake.h: puts memory that a descriptor can be made of behind chunks whose memory is not of
 * that kind. Client thread.
 */
#ifndef GS_RUNTIME_SWAP_REMAKE_H
#define GS_RUNTIME_SWAP_REMAKE_H

#include <stdbool.h>

#include "runtime/range/range.h"

/* A descriptor can be made of each of its chunks. */
bool gs_remake_is_done(const struct gs_range *range);

/* One chunk that is not so, with what is in it. The range is whole, the gate is closed and
 * everything submitted has finished. CUDA_ERROR_OUT_OF_MEMORY: another chunk has left for it,
 * try again. */
CUresult gs_remake_next(struct gs_range *range);

#endif
