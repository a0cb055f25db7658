/* SPDX-License-Identifier: Apache-2.0
 *
 * exports.h: handles by which other processes open memory of cuMemAlloc (CUDA IPC). These handles
 * are ours: they name this process and a random token, and pin nothing. client/ipc.c opens
 * them in another process, and client/ipc.c answers it.
 */
#pragma once

#include "runtime/range/shares.h"

#define GS_IPC_MAGIC "gpushIPC"

/* The contents of a CUipcMemHandle of ours. */
struct gs_ipc_handle {
    char magic[8];
    int32_t pid; /* process id of the exporter, in its own namespace */
    uint32_t zero;
    uint8_t token[16];
    uint8_t exporter[16]; /* random: the same in all handles of one process */
    uint8_t unused[16];
};
_Static_assert(sizeof(struct gs_ipc_handle) == sizeof(CUipcMemHandle), "a handle of ours");

static inline bool gs_ipc_handle_is_ours(const struct gs_ipc_handle *handle)
{
    return __builtin_memcmp(handle->magic, GS_IPC_MAGIC, sizeof handle->magic) == 0;
}

/* A handle of the allocation at the address; the same handle for as long as the allocation lives.
 * *ours: memory at this address can have a handle; else nothing was done. Any thread. */
CUresult gs_exports_handle(CUdeviceptr address, struct gs_ipc_handle *handle, bool *ours);

struct gs_exported {
    struct gs_range *range;
    uint64_t id; /* the range's */
    CUdeviceptr base;
    uint64_t bytes; /* of the allocation */
};

/* Finds the live allocation of that token. Its range stays until the client thread goes on.
 * opens: another process asks for it. */
bool gs_exports_find(const uint8_t token[16], bool opens, struct gs_exported *found);

/* Begins a share of it with one more process (range/shares.h). The other end of its line is in
 * *theirs, the caller's. *error: 0; or, with NULL, -ENOENT: it has been freed meanwhile; -EIO: out
 * of memory or descriptors. Client thread, between gs_handover_begin() and _end(). */
struct gs_share *gs_exports_share(const struct gs_exported *found, const uint8_t token[16],
                                  int *theirs, int *error);

/* Ends it: the other process has closed the memory, or did not get it. Client thread. */
void gs_exports_unshare(struct gs_share *share);

/* The number of this process that is in its handles. Any thread. */
void gs_exports_number(uint8_t exporter[16]);

/* The time (ns) of the first handle, if no process has asked for one; else 0. */
uint64_t gs_exports_unasked_since(void);

/* Under gs_memory_lock: a piece of the range has been freed. */
void gs_exports_end(struct gs_range *range, CUdeviceptr base);
