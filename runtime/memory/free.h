/* SPDX-License-Identifier: Apache-2.0
 *
 * free.h: the end of what memory.h has given out.
 */
#ifndef GS_RUNTIME_MEMORY_FREE_H
#define GS_RUNTIME_MEMORY_FREE_H

#include <stdbool.h>

#include <cudaTypedefs.h>

#include "runtime/memory/stream_position.h"

/* Frees what gs_memory_allocate() gave, cuMemFree's way (position NULL) or behind what the
 * stream has run so far. *ours is false when the address is nobody's here: ask the driver. */
CUresult gs_memory_free(CUdeviceptr address, const struct gs_stream_position *position,
                        bool *ours);

#endif
