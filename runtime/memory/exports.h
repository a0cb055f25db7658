/* SPDX-License-Identifier: Apache-2.0
 *
 * exports.h: handles by which other processes open memory of cuMemAlloc (CUDA IPC). A handle is
 * of ours: it names this process and a random token, and pins nothing. client/opener.c
 * opens it in another process; client/exporter.c answers.
 */
#ifndef GS_RUNTIME_MEMORY_EXPORTS_H
#define GS_RUNTIME_MEMORY_EXPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/range/range.h"

#define GS_IPC_MAGIC "gpushIPC"

/* The contents of a CUipcMemHandle of ours. */
struct gs_ipc_handle {
    char magic[8];
    int32_t pid; /* of the exporter, as it sees itself */
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

/* A handle of the allocation at the address, the same one as long as that lives. *ours: the
 * address is of memory that can have one, else nothing was done. Any thread. */
CUresult gs_exports_handle(CUdeviceptr address, struct gs_ipc_handle *handle, bool *ours);

struct gs_exported {
    struct gs_range *range;
    uint64_t id; /* the range's */
    CUdeviceptr base;
    uint64_t bytes; /* of the allocation */
};

/* The live allocation of that token; the range stays as long as the client thread does not go
 * on. opens: another process asks for it. */
bool gs_exports_find(const uint8_t token[16], bool opens, struct gs_exported *found);

/* The number of this process that is in its handles. Any thread. */
void gs_exports_number(uint8_t exporter[16]);

/* Since when (ns) a handle is there that nobody has asked for; 0: there is none. */
uint64_t gs_exports_unasked_since(void);

/* Under gs_memory_lock: a piece of the range has been freed. */
void gs_exports_end(struct gs_range *range, CUdeviceptr base);

void gs_exports_after_fork(void);

#endif
