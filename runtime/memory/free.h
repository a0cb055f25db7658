/* SPDX-License-Identifier: Apache-2.0
 *
 * free.h: frees the memory that memory.h has given out.
 */
#pragma once

#include "runtime/memory/stream_position.h"

/* Frees memory of gs_memory_allocate(), as cuMemFree does (position NULL), or behind everything
 * that the stream has run so far. *ours is false if the address is not of our memory: ask the
 * driver. */
CUresult gs_memory_free(CUdeviceptr address, const struct gs_stream_position *position,
                        bool *ours);
