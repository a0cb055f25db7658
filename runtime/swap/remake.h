/* SPDX-License-Identifier: Apache-2.0
 *
 * remake.h: replaces the memory of chunks of which no descriptor can be made by memory of which
 * one can. Client thread.
 */
#pragma once

#include "runtime/range/range.h"

/* True if a descriptor can be made of each chunk of the range. */
bool gs_remake_is_done(const struct gs_range *range);

/* Replaces the memory of the first chunk of which none can be made, and keeps its contents. The
 * range is whole, the gate is closed and everything submitted has finished.
 * CUDA_ERROR_OUT_OF_MEMORY: another chunk has left to make room, try again. */
CUresult gs_remake_next(struct gs_range *range);
