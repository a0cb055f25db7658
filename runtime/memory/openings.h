/* SPDX-License-Identifier: Apache-2.0
 *
 * openings.h: memory of other processes that this one has open (CUDA IPC). It is mapped at
 * addresses of its own, chunk by chunk, and never moved by this process.
 */
#ifndef GS_RUNTIME_MEMORY_OPENINGS_H
#define GS_RUNTIME_MEMORY_OPENINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/base/device.h"
#include "runtime/base/own_fd.h"
#include "runtime/memory/exports.h"
#include "runtime/range/range_tree.h"

struct gs_opening {
    struct gs_range_tree_node node; /* the allocation, as the program knows it */
    struct gs_opening *next;
    uint8_t token[16];
    uint8_t exporter[16]; /* the number of the process whose memory it is */
    CUcontext context;    /* in which it was opened; it ends with it */
    struct gs_device *device;
    uint64_t id;
    unsigned references; /* opens minus closes; 0: the first open is under way */

    /* `got`: filled in by the answer (client/opener.c) */
    uint8_t uuid[16];            /* of the device whose memory it is */
    uint64_t bytes, chunk_bytes; /* of all chunks; of each but the last */
    uint64_t offset, size;       /* of the allocation in it */
    uint32_t chunk_count, got;
    CUmemGenericAllocationHandle *handles;
    struct gs_own_fd lifeline; /* while it is open, the exporter keeps the memory in place */

    CUdeviceptr mapped; /* address of the first chunk */
};

/* Opens a handle of another process in the current context; it has the same address as before if
 * it is open there. like: token and exporter. get: fills in the fields `got`; 0 or -errno.
 * *error is its last result. Any thread, outside the gate. */
CUresult gs_openings_open(const struct gs_ipc_handle *like, struct gs_device *device,
                          int (*get)(const void *context, struct gs_opening *opening),
                          const void *context, CUdeviceptr *address, int *error);

/* Ends one open; the last one unmaps the memory. *ours: the address is of such memory, else
 * nothing was done. Any thread, outside the gate. */
CUresult gs_openings_close(CUdeviceptr address, bool *ours);

/* Releases the parts that have come and are not mapped. */
void gs_opening_drop(struct gs_opening *opening);

/* The context ends. */
void gs_openings_context_ended(CUcontext context);

/* Under gs_memory_lock: the opening that contains the address; NULL: none. */
const struct gs_opening *gs_openings_at(CUdeviceptr address);

/* Under gs_memory_lock: true if any memory is open, or being opened. */
bool gs_openings_any(void);
/* True if memory of that process is open, or being opened. Any thread. */
bool gs_openings_of(const uint8_t exporter[16]);

void gs_openings_after_fork(void);

#endif
