/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_multicast.c: memory of ours in multicast objects and logical endpoints. It is pinned. Each
 * of its chunks is bound by itself, since a driver binds one piece of memory at a time. Memory
 * must be unbound from a multicast object as it was bound (cuda.h, cuMulticastUnbind), so it is
 * unbound chunk by chunk. An endpoint unbinds all pieces at once (cuLogicalEndpointUnbind), so
 * its pieces are not noted.
 *
 * State, under gs_memory_lock: the bindings in more than one piece. An entry whose object has
 * ended stays until its handle is used again, at the next bind there. A bind may wait for other
 * processes (until the whole team is there), so it is outside the gate. Any thread.
 */
#include "runtime/gate/gate.h"
#include "runtime/calls/hooks.h"
#include "runtime/memory/foreign_mapping.h"
#include "runtime/memory/virtual.h"

/* the calls that bind: cuMulticastBind*, their second form, which names the device, and
 * cuLogicalEndpointBind* */
enum form { MULTICAST, MULTICAST_V2, ENDPOINT };

/* bytes at an offset of the object, which are bound in pieces */
struct bound {
    struct bound *next;
    enum form form;
    CUmemGenericAllocationHandle object; /* or the endpoint's number */
    CUdevice named;                      /* by the call, except in the first form */
    CUdevice device;                     /* the memory's */
    uint64_t at, bytes;
    uint64_t first, piece; /* bytes of the first, and of the others (the last: at most) */
};

/* The memory that is bound: by handles, or (range NULL) only by an address. */
struct source {
    const struct gs_range *range;
    uint64_t offset; /* in it */
    CUdeviceptr address;
};

static struct bound *in_pieces;

/* under the lock: the entry for something bound at one of these offsets, or the end of the list */
static struct bound **entry_in(const struct bound *bound)
{
    struct bound **at = &in_pieces;

    while (*at != NULL &&
           ((*at)->object != bound->object || (*at)->device != bound->device ||
            (*at)->at >= bound->at + bound->bytes || bound->at >= (*at)->at + (*at)->bytes))
        at = &(*at)->next;
    return at;
}

/* Replaces all entries at these offsets by what the driver has just bound. entry: NULL if that
 * is whole. */
static void note_bound(const struct bound *bound, struct bound *entry)
{
    GS_HOLD_MEMORY;
    struct bound **at;

    while (*(at = entry_in(bound)) != NULL) {
        struct bound *old = *at;

        *at = old->next;
        free(old);
    }
    if (entry != NULL) {
        *entry = *bound;
        entry->next = in_pieces;
        in_pieces = entry;
    }
}

static uint64_t piece_at(const struct bound *bound, uint64_t done)
{
    const uint64_t left = bound->bytes - done, piece = done == 0 ? bound->first : bound->piece;

    return left < piece ? left : piece;
}

/* Unbinds the first `bytes` of it, which end with a piece. */
static CUresult unbind_pieces(const struct bound *bound, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t piece;

    if (bound->form == ENDPOINT)
        return bytes == 0
                   ? CUDA_SUCCESS
                   : gs_driver.cuLogicalEndpointUnbind((CUlogicalEndpointId)bound->object,
                                                       bound->named, bound->at, bytes);
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS; done += piece) {
        piece = piece_at(bound, done);
        result =
            gs_driver.cuMulticastUnbind(bound->object, bound->device, bound->at + done, piece);
    }
    return result;
}

static CUresult bind_piece(const struct bound *bound, const struct source *source,
                           uint64_t done, uint64_t piece, unsigned long long flags)
{
    const struct gs_range *range = source->range;
    const uint64_t at = bound->at + done, offset = source->offset + done;
    const CUdeviceptr address = source->address + done;
    CUmemGenericAllocationHandle memory = 0;
    uint64_t in_memory = 0;

    if (range != NULL) {
        memory = range->chunks[offset / range->chunk_bytes].handle;
        in_memory = offset % range->chunk_bytes;
    }
    switch (bound->form) {
    case ENDPOINT:
        return range != NULL
                   ? gs_driver.cuLogicalEndpointBindMem((CUlogicalEndpointId)bound->object,
                                                        bound->named, at, memory, in_memory,
                                                        piece, flags)
                   : gs_driver.cuLogicalEndpointBindAddr(
                         (CUlogicalEndpointId)bound->object, bound->named, at,
                         (void *)(uintptr_t)address, piece, flags);
    case MULTICAST_V2:
        return range != NULL ? gs_driver.cuMulticastBindMem_v2(bound->object, bound->named, at,
                                                               memory, in_memory, piece, flags)
                             : gs_driver.cuMulticastBindAddr_v2(bound->object, bound->named, at,
                                                                address, piece, flags);
    case MULTICAST:
        break;
    }
    return range != NULL
               ? gs_driver.cuMulticastBindMem(bound->object, at, memory, in_memory, piece,
                                              flags)
               : gs_driver.cuMulticastBindAddr(bound->object, at, address, piece, flags);
}

/* Binds all pieces or none. The memory is pinned. */
static CUresult bind_pieces(const struct bound *bound, const struct source *source,
                            unsigned long long flags)
{
    struct bound *entry = NULL;
    CUresult result = CUDA_SUCCESS;
    uint64_t done = 0;

    if (bound->first < bound->bytes && bound->form != ENDPOINT) {
        entry = malloc(sizeof *entry);
        if (entry == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    while (done < bound->bytes && result == CUDA_SUCCESS) {
        const uint64_t piece = piece_at(bound, done);

        result = bind_piece(bound, source, done, piece, flags);
        done += result == CUDA_SUCCESS ? piece : 0;
    }
    if (result == CUDA_SUCCESS) {
        if (bound->form != ENDPOINT)
            note_bound(bound, entry);
        return result;
    }
    unbind_pieces(bound, done);
    free(entry);
    return result;
}

static void set_pieces(struct bound *bound, const struct gs_range *range, uint64_t offset)
{
    bound->device = range->device->ordinal;
    bound->piece = range->chunk_bytes;
    bound->first = range->chunk_bytes - offset % range->chunk_bytes;
}

/* Binds memory of the program's own, which is held. */
static CUresult bind_own(struct bound *bound, struct gs_range *range, uint64_t offset,
                         unsigned long long flags)
{
    const struct source source = {.range = range, .offset = offset};
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (bound->bytes != 0 && offset <= range->reserved &&
        bound->bytes <= range->reserved - offset) {
        set_pieces(bound, range, offset);
        result = gs_virtual_pin(range);
    }
    if (result == CUDA_SUCCESS)
        result = bind_pieces(bound, &source, flags);
    gs_virtual_drop(range);
    return result;
}

/* Whether the call has its answer before the memory is looked at; else *result is that of an
 * invalid argument. */
static bool is_answered(const struct bound *bound, CUresult *result)
{
    *result = GS_READY(CUDA_ERROR_INVALID_VALUE);
    return *result == CUDA_ERROR_NOT_INITIALIZED ||
           (bound->form != ENDPOINT && GS_WITH_MEMORY(gs_virtual_is_ours(bound->object)));
}

/* Binds memory by its handle. False: the memory is the driver's, and the driver binds it. */
static bool bind_handle(struct bound *bound, CUmemGenericAllocationHandle memory,
                        uint64_t offset, unsigned long long flags, CUresult *result)
{
    struct gs_range *range;
    bool ours;

    if (is_answered(bound, result))
        return true;
    range = gs_virtual_hold(memory, &ours);
    if (range != NULL)
        *result = bind_own(bound, range, offset, flags);
    return range != NULL || ours;
}

/* Pins memory of cuMemAllocAsync from the address to the end of its range. The driver refuses
 * memory of cuMemAlloc. */
static CUresult pin_pooled(struct bound *bound, CUdeviceptr address)
{
    const unsigned pass = gs_gate_enter(); /* inside the gate it is resident */
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct gs_range *range;

    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    if (range != NULL && range->pool != NULL &&
        bound->bytes <= range->node.base + range->reserved - address) {
        gs_range_pin(range);
        set_pieces(bound, range, address - range->node.base);
        result = CUDA_SUCCESS;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_gate_leave(pass);
    return result;
}

/* The same by the address of memory. */
static bool bind_address(struct bound *bound, CUdeviceptr address, unsigned long long flags,
                         CUresult *result)
{
    const struct source source = {.address = address};
    struct gs_range *range;
    uint64_t offset, left;
    bool ours;

    if (is_answered(bound, result))
        return true;
    range = gs_virtual_hold_at(address, &offset, &left, &ours);
    if (range != NULL) {
        bound->bytes = bound->bytes <= left ? bound->bytes : 0; /* 0 is refused */
        *result = bind_own(bound, range, offset, flags);
    } else if (ours && bound->bytes != 0) {
        *result = pin_pooled(bound, address);
        if (*result == CUDA_SUCCESS)
            *result = bind_pieces(bound, &source, flags);
    }
    return range != NULL || ours;
}

/* bind: the call of ours, which has answered if it returns true; then the members of struct bound */
#define BIND(symbol, params, args, bind, ...)                                                  \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        struct bound bound = {.at = at, .bytes = size, __VA_ARGS__};                           \
        CUresult result;                                                                       \
                                                                                               \
        return (bind) ? result : gs_driver.symbol args;                                        \
    }
#define BY_HANDLE  bind_handle(&bound, memory, offset, flags, &result)
#define BY_ADDRESS bind_address(&bound, (CUdeviceptr)(uintptr_t)address, flags, &result)

BIND(cuMulticastBindMem,
     (CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle memory,
      size_t offset, size_t size, unsigned long long flags),
     (object, at, memory, offset, size, flags), BY_HANDLE, .form = MULTICAST, .object = object)
BIND(cuMulticastBindMem_v2,
     (CUmemGenericAllocationHandle object, CUdevice device, size_t at,
      CUmemGenericAllocationHandle memory, size_t offset, size_t size,
      unsigned long long flags),
     (object, device, at, memory, offset, size, flags), BY_HANDLE, .form = MULTICAST_V2,
     .object = object, .named = device)
BIND(cuLogicalEndpointBindMem,
     (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at,
      CUmemGenericAllocationHandle memory, cuuint64_t offset, cuuint64_t size,
      unsigned long long flags),
     (endpoint, device, at, memory, offset, size, flags), BY_HANDLE, .form = ENDPOINT,
     .object = endpoint, .named = device)
BIND(cuMulticastBindAddr,
     (CUmemGenericAllocationHandle object, size_t at, CUdeviceptr address, size_t size,
      unsigned long long flags),
     (object, at, address, size, flags), BY_ADDRESS, .form = MULTICAST, .object = object)
BIND(cuMulticastBindAddr_v2,
     (CUmemGenericAllocationHandle object, CUdevice device, size_t at, CUdeviceptr address,
      size_t size, unsigned long long flags),
     (object, device, at, address, size, flags), BY_ADDRESS, .form = MULTICAST_V2,
     .object = object, .named = device)
BIND(cuLogicalEndpointBindAddr,
     (CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at, void *address,
      cuuint64_t size, unsigned long long flags),
     (endpoint, device, at, address, size, flags), BY_ADDRESS, .form = ENDPOINT,
     .object = endpoint, .named = device)

CUresult __wrap_cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                  size_t mcOffset, size_t size)
{
    struct bound bound = {.object = mcHandle, .device = dev, .at = mcOffset, .bytes = size};
    struct bound *entry, **at;
    CUresult result;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (GS_WITH_MEMORY(gs_virtual_is_ours(mcHandle)))
        return CUDA_ERROR_INVALID_VALUE;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    at = entry_in(&bound);
    entry = *at;
    if (entry != NULL && entry->at == mcOffset && entry->bytes == size)
        *at = entry->next; /* ours now */
    else
        entry = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (entry == NULL)
        return gs_driver.cuMulticastUnbind(mcHandle, dev, mcOffset, size);
    result = unbind_pieces(entry, size);
    free(entry);
    return result;
}

CUresult __wrap_cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
    return GS_READY(GS_WITH_MEMORY(gs_virtual_is_ours(mcHandle))
                        ? CUDA_ERROR_INVALID_VALUE
                        : gs_driver.cuMulticastAddDevice(mcHandle, dev));
}
