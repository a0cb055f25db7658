/* SPDX-License-Identifier: Apache-2.0
 *
 * openings.h: memory of other processes that this process has open (CUDA IPC). It is mapped at
 * addresses of its own, chunk by chunk, and never moved by this process.
 *
 * Programs open and close the same memory again and again (PyTorch does with its segments). So
 * memory that was closed stays mapped for a short time, for the next open of its handle. The
 * program no longer sees it then.
 */
#pragma once

#include "runtime/memory/exports.h"

enum gs_opening_state {
    GS_OPENING_NEW,     /* a thread opens it */
    GS_OPENING_OPEN,    /* the program has it */
    GS_OPENING_CLOSING, /* a thread closes it; another thread may open the memory anew */
    GS_OPENING_KEPT,    /* closed, and mapped */
};

struct gs_opening {
    struct gs_range_tree_node node; /* the allocation, as the program knows it */
    struct gs_opening *next;
    uint8_t token[16];
    uint8_t exporter[16]; /* the number of the process whose memory it is */
    CUcontext context;    /* in which it was opened; it ends with it */
    struct gs_device *device;
    uint64_t id;
    enum gs_opening_state state;
    unsigned references; /* OPEN: opens minus closes */
    uint64_t kept_at;    /* KEPT: ns */

    /* `got`: filled in by the answer (client/ipc.c) */
    uint8_t uuid[16];            /* of the device whose memory it is */
    uint64_t bytes, chunk_bytes; /* of all chunks; of each but the last */
    uint64_t offset, size;       /* of the allocation in it */
    uint32_t chunk_count, got;
    CUmemGenericAllocationHandle *handles;
    struct gs_own_fd lifeline; /* while it is open, the exporter keeps the memory in place */
    bool tells; /* the exporter says over it when the memory is freed: it may be kept */

    CUdeviceptr mapped; /* address of the first chunk */
};

/* Opens a handle of another process in the current context; it has the same address as before if
 * it is open there. like: token and exporter. get: fills in the fields `got`; 0 or -errno.
 * *error is its last result. Any thread, outside the gate. */
CUresult gs_openings_open(const struct gs_ipc_handle *like, struct gs_device *device,
                          int (*get)(const void *context, struct gs_opening *opening),
                          const void *context, CUdeviceptr *address, int *error);

/* Ends one open; after the last one the address is unknown. *ours: the address is of such memory,
 * else nothing was done. Any thread, outside the gate. */
CUresult gs_openings_close(CUdeviceptr address, bool *ours);

/* Unmaps memory that is closed and was kept long enough, or that its exporter has freed; all: all
 * that is kept. Returns ns until it should be called again. Client thread. */
uint64_t gs_openings_tend(uint64_t now, bool all);

/* At exit: tells the exporters that what is kept is closed. The driver is not asked to unmap it:
 * that may wait for work, and comes with the end of the process. */
void gs_openings_let_go(void);

/* Releases the parts that have come and are not mapped. */
void gs_opening_drop(struct gs_opening *opening);

/* The context ends. */
void gs_openings_context_ended(CUcontext context);

/* Under gs_memory_lock: the opening that contains the address; NULL: none. */
const struct gs_opening *gs_openings_at(CUdeviceptr address);

/* Under gs_memory_lock: true if any memory is open, being opened or closed, or kept. */
bool gs_openings_any(void);
/* True if that is memory of that process. Any thread. */
bool gs_openings_of(const uint8_t exporter[16]);

void gs_openings_after_fork(void);
