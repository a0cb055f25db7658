/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.c: owns memory that processes share by handles (legacy IPC): what this process has opened,
 * and a file that says what it has exported and not freed.
 *
 * As on a card: a handle is of one allocation of cuMemAlloc (memory that was mapped by hand, and
 * pools, have none); it cannot be opened where it was made; a second open of a context gives the
 * same address; one that means nothing is an invalid value. Whoever opens finds the memory
 * among the exporter's descriptors, as that process's other files in /proc. Counted on the card
 * is the exporter's allocation alone. Threads: any, under sim.lock.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "common/fd.h"
#include "tests/simcuda/sim.h"

#define MAGIC "simcuIPC"

struct handle { /* what is in a CUipcMemHandle */
    char magic[8];
    int32_t pid;
    int32_t memory_fd, books_fd; /* of that process */
    uint32_t slot;               /* of the books: has `id` as long as the memory lives */
    uint64_t id, offset, size;   /* offset: in the file of the memory */
    uint64_t unused;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "fits");

struct opened {
    struct opened *next;
    uint64_t id, context_id;
    int32_t pid;
    unsigned references;
    struct sim_range *place;
    struct sim_allocation *allocation;
};

static struct opened *opened;
static int books_fd = -1;
static uint32_t slots;

static bool write_slot(uint32_t slot, uint64_t id)
{
    return pwrite(books_fd, &id, sizeof id, (off_t)(slot * sizeof id)) == sizeof id;
}

void sim_ipc_freed(const struct sim_allocation *allocation)
{
    write_slot(allocation->ipc_slot, 0);
}

static CUresult memory_handle(CUipcMemHandle *out, CUdeviceptr address)
{
    struct handle handle = {.pid = sim.pid};

    if (!out || !sim_in_arena(address))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_allocation *allocation = sim_allocation_find(address);
    if (!allocation || allocation->kind != SIM_DEVICE || allocation->pool)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_mapping *mapping =
        (struct sim_mapping *)sim_ranges_find(&sim_mappings, allocation->range.start);
    if (!mapping)
        return CUDA_ERROR_INVALID_VALUE;
    if (books_fd < 0)
        books_fd = memfd_create("simcuda-ipc", MFD_CLOEXEC);
    if (!allocation->ipc_slot)
        allocation->ipc_slot = ++slots;
    if (books_fd < 0 || !write_slot(allocation->ipc_slot, allocation->id))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(handle.magic, MAGIC, sizeof handle.magic);
    handle.memory_fd = mapping->physical->fd;
    handle.books_fd = books_fd;
    handle.slot = allocation->ipc_slot;
    handle.id = allocation->id;
    handle.offset = mapping->physical->offset + mapping->offset +
                    (allocation->range.start - mapping->range.start);
    handle.size = allocation->range.size;
    memset(out, 0, sizeof *out);
    memcpy(out, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

static int open_theirs(const struct handle *handle, int fd)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* The exporter lives, and has not freed it. */
static bool is_alive(const struct handle *handle)
{
    GS_CLOSE_FD int books = open_theirs(handle, handle->books_fd);
    uint64_t id = 0;

    return books >= 0 &&
           pread(books, &id, sizeof id, (off_t)(handle->slot * sizeof id)) == sizeof id &&
           id == handle->id;
}

static CUresult map_theirs(const struct sim_context *context, const struct handle *handle,
                           struct opened *into)
{
    GS_CLOSE_FD int fd = open_theirs(handle, handle->memory_fd);
    const uint64_t in = handle->offset % SIM_PAGE;
    const size_t whole = (in + handle->size + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
    struct sim_allocation *allocation = calloc(1, sizeof *allocation);

    into->place = fd >= 0 ? sim_place_take(whole, SIM_PAGE, 0) : NULL;
    if (!allocation || !into->place ||
        mmap((void *)into->place->start, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             fd, (off_t)(handle->offset - in)) == MAP_FAILED) {
        free(allocation);
        if (into->place)
            sim_place_drop(into->place);
        return CUDA_ERROR_MAP_FAILED;
    }
    madvise((void *)into->place->start, whole, MADV_DONTFORK);
    *allocation = (struct sim_allocation){.range = {into->place->start + in, handle->size},
                                          .kind = SIM_IPC,
                                          .device = context->device,
                                          .id = sim.next_id++,
                                          .context_id = context->id};
    into->allocation = allocation;
    return sim_ranges_insert(&sim_allocations, &allocation->range) ? CUDA_ERROR_OUT_OF_MEMORY
                                                                   : CUDA_SUCCESS;
}

static struct opened *find_opened(const struct sim_context *context,
                                  const struct handle *handle)
{
    struct opened *each = opened;

    while (each && (each->id != handle->id || each->pid != handle->pid ||
                    each->context_id != context->id))
        each = each->next;
    return each;
}

static CUresult memory_open(const struct sim_context *context, CUdeviceptr *out,
                            const CUipcMemHandle *from, unsigned flags)
{
    struct handle handle;

    memcpy(&handle, from, sizeof handle);
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || /* 0 too: seen on an H200 */
        memcmp(handle.magic, MAGIC, sizeof handle.magic) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == sim.pid)
        return is_alive(&handle) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    struct opened *known = find_opened(context, &handle);
    if (known) {
        known->references++;
        *out = known->allocation->range.start;
        return CUDA_SUCCESS;
    }
    if (!is_alive(&handle))
        return CUDA_ERROR_INVALID_VALUE;
    struct opened *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = map_theirs(context, &handle, fresh);
    if (result) {
        free(fresh);
        return result;
    }
    fresh->id = handle.id;
    fresh->pid = handle.pid;
    fresh->context_id = context->id;
    fresh->references = 1;
    fresh->next = opened;
    opened = fresh;
    *out = fresh->allocation->range.start;
    return CUDA_SUCCESS;
}

void sim_ipc_closed(const struct sim_allocation *allocation)
{
    struct opened **at = &opened;

    while (*at && (*at)->allocation != allocation)
        at = &(*at)->next;
    struct opened *gone = *at;
    if (!gone)
        return;
    *at = gone->next;
    if (mmap((void *)gone->place->start, gone->place->size, PROT_NONE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        madvise((void *)gone->place->start, gone->place->size, MADV_DONTFORK);
    sim_place_drop(gone->place);
    free(gone);
}

static CUresult memory_close(struct sim_context *context, CUdeviceptr address)
{
    struct sim_allocation *allocation = sim_allocation_find(address);
    struct opened *each = opened;

    while (each && each->allocation != allocation)
        each = each->next;
    if (!each || !allocation || allocation->range.start != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (--each->references)
        return CUDA_SUCCESS;
    const CUresult result = sim_context_drain(context);
    sim_free(allocation);
    return result;
}

SIM_API(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr address), SIM_CTX,
        memory_handle(out, address))
SIM_API(cuIpcOpenMemHandle, (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags),
        SIM_CTX, memory_open(call.context, out, &handle, flags))
SIM_API(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags),
        SIM_CTX, memory_open(call.context, out, &handle, flags))
SIM_API(cuIpcCloseMemHandle, (CUdeviceptr address), SIM_CTX,
        memory_close(call.context, address))
