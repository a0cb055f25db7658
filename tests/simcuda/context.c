/* SPDX-License-Identifier: Apache-2.0
 *
 * context.c: owns contexts, primary and created, and each thread's stack of them.
 *
 * Invariants: a context takes properties.context_memory bytes of its card from creation to
 * destruction. It is destroyed only when all of its streams have drained; stacks may still hold
 * its handle, which is then found dead. A fault (sticky) ends all contexts of the process on the
 * device (an H200, driver 580): every call in them returns the fault until they are destroyed or
 * reset. Threads: any, under sim.lock; sticky is set by stream workers (atomic, relaxed: it only
 * has to arrive at last).
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"
#include "tests/simcuda/module.h"

struct sim_context *sim_context_check(CUcontext handle)
{
    struct sim_context *context = (struct sim_context *)handle;

    if (!handle)
        context = sim_thread.depth ? sim_thread.stack[sim_thread.depth - 1] : NULL;
    return sim_handle_is(context, SIM_KIND_CONTEXT) && !context->dying ? context : NULL;
}

struct sim_device *sim_context_device(const struct sim_context *context)
{
    return &sim.device[context->device];
}

static bool faulted; /* atomic: set by workers */

void sim_context_fault(struct sim_context *context, CUresult result)
{
    CUresult none = CUDA_SUCCESS;

    __atomic_compare_exchange_n(&context->sticky, &none, result, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    __atomic_store_n(&faulted, true, __ATOMIC_RELEASE);
}

void sim_context_spread_faults(void)
{
    if (!__atomic_exchange_n(&faulted, false, __ATOMIC_ACQUIRE))
        return;
    for (const struct sim_context *from = sim.contexts; from; from = from->next)
        for (struct sim_context *to = from->sticky ? sim.contexts : NULL; to; to = to->next)
            if (to->device == from->device && !to->sticky)
                __atomic_store_n(&to->sticky, from->sticky, __ATOMIC_RELAXED);
}

/* The first of its green contexts that has unfinished work. */
static struct sim_context *busy_green(const struct sim_context *owner)
{
    for (struct sim_context *context = sim.contexts; context; context = context->next)
        for (const struct sim_stream *stream = context->owner == owner ? context->streams
                                                                       : NULL;
             stream; stream = stream->next)
            if (stream->last && !stream->last->done)
                return context;
    return NULL;
}

CUresult sim_context_drain(struct sim_context *context)
{
    const CUresult result = sim_streams_wait(context, false);
    struct sim_context *green = NULL;

    while (!result && (green = busy_green(context)) != NULL)
        sim_streams_wait(green, false);
    return result;
}

static void default_limits(struct sim_context *context)
{
    context->limit[CU_LIMIT_STACK_SIZE] = 1024;
    context->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 6291456;
    context->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608;
    context->limit[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
}

CUresult sim_context_new(unsigned device, unsigned flags, unsigned version,
                         struct sim_context *owner, struct sim_context **out)
{
    struct sim_device *card = &sim.device[device];
    struct sim_context *context = calloc(1, sizeof *context);

    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t memory = owner ? 0 : card->card->properties.context_memory;
    if (sim_card_charge(card->card, card->client, memory)) {
        free(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = device;
    context->owner = owner;
    context->flags = flags;
    context->api_version = version;
    context->id = sim.next_id++;
    default_limits(context);
    context->legacy = sim_stream_new(context, 0, 0);
    if (!context->legacy || sim_handle_add(context, SIM_KIND_CONTEXT)) {
        sim_card_refund(card->card, card->client, memory);
        if (context->legacy)
            sim_stream_close(context->legacy);
        free(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->legacy->legacy = true;
    context->next = sim.contexts;
    sim.contexts = context;
    *out = context;
    return CUDA_SUCCESS;
}

/* One of its green contexts, out of the list; NULL: none is left. */
static struct sim_context *take_green(const struct sim_context *owner)
{
    struct sim_context **link = &sim.contexts, *green;

    while (*link && (*link)->owner != owner)
        link = &(*link)->next;
    green = *link;
    if (green)
        *link = green->next;
    return green;
}

static void context_end(struct sim_context *context)
{
    struct sim_device *device = sim_context_device(context);
    struct sim_context **link = &sim.contexts;

    __atomic_store_n(&context->dying, true, __ATOMIC_RELAXED); /* waiting operations give up */
    while (context->streams) {
        for (struct sim_stream *stream = context->streams; stream;) {
            struct sim_stream *next = stream->next;
            if (!stream->closing)
                sim_stream_close(stream);
            stream = next;
        }
        if (context->streams)
            pthread_cond_wait(&sim.progress, &sim.lock);
    }
    sim_modules_of_context_free(context->id);
    for (size_t i = sim_allocations.count; i-- > 0;) {
        struct sim_allocation *allocation = (struct sim_allocation *)sim_allocations.item[i];
        if (allocation->context_id == context->id)
            sim_free(allocation);
    }
    while (*link && *link != context)
        link = &(*link)->next;
    if (*link) /* else it was taken out before */
        *link = context->next;
    sim_handle_remove(context);
    if (!context->owner)
        sim_card_refund(device->card, device->client, device->card->properties.context_memory);
    free(context);
}

void sim_context_free(struct sim_context *context)
{
    struct sim_context *green = NULL;

    while ((green = take_green(context)) != NULL) /* they end with their primary one */
        context_end(green);
    context_end(context);
}

static CUresult push_context(struct sim_context *context)
{
    if (sim_thread.depth == SIM_STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (context->owner) { /* current to one thread at a time */
        if (context->held && context->holder != &sim_thread)
            return CUDA_ERROR_INVALID_CONTEXT;
        context->holder = &sim_thread;
        context->held++;
    }
    sim_thread.stack[sim_thread.depth++] = context;
    return CUDA_SUCCESS;
}

static struct sim_context *pop_context(void)
{
    struct sim_context *context = sim_thread.stack[--sim_thread.depth];

    if (sim_handle_is(context, SIM_KIND_CONTEXT) && context->held)
        context->held--;
    return context;
}

static CUresult context_create(CUcontext *out, unsigned flags, CUdevice device)
{
    struct sim_context *context = NULL;

    if (!out || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || (unsigned)device >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = sim_context_new((unsigned)device, flags, 3020, NULL, &context);
    if (result)
        return result;
    result = push_context(context);
    if (result)
        sim_context_free(context);
    else
        *out = (CUcontext)context;
    return result;
}

static CUresult context_destroy(CUcontext handle)
{
    struct sim_context *context = handle ? sim_context_check(handle) : NULL;

    if (!context || context->primary || context->owner)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_thread.depth && sim_thread.stack[sim_thread.depth - 1] == context)
        sim_thread.depth--;
    sim_context_free(context);
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext handle)
{
    struct sim_context *context = handle ? sim_context_check(handle) : NULL;

    return context ? push_context(context) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult context_pop(CUcontext *out)
{
    if (!sim_thread.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_context *context = pop_context();
    if (out)
        *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext handle)
{
    struct sim_context *context = handle ? sim_context_check(handle) : NULL;

    if (handle && !context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_thread.depth)
        pop_context();
    return context ? push_context(context) : CUDA_SUCCESS;
}

static CUresult context_current(CUcontext *out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_thread.depth ? (CUcontext)sim_thread.stack[sim_thread.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult context_device(CUdevice *device, CUcontext handle)
{
    const struct sim_context *context = sim_context_check(handle);

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = (CUdevice)context->device;
    return CUDA_SUCCESS;
}

static CUresult context_synchronize(CUcontext handle)
{
    struct sim_context *context = sim_context_check(handle);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult result = sim_capture_check_sync(context);
    return result ? result : sim_context_drain(context);
}

static CUresult number_out(unsigned *out, unsigned value)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = value;
    return CUDA_SUCCESS;
}

static CUresult api_version(CUcontext handle, unsigned *version)
{
    const struct sim_context *context = sim_context_check(handle);

    return context ? number_out(version, context->api_version) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult context_id(CUcontext handle, unsigned long long *id)
{
    const struct sim_context *context = sim_context_check(handle);

    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->id;
    return CUDA_SUCCESS;
}

static CUresult flags_set(struct sim_context *context, unsigned flags)
{
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    if (context->primary)
        sim_context_device(context)->primary_flags = flags;
    return CUDA_SUCCESS;
}

static CUresult limit_access(struct sim_context *context, CUlimit limit, size_t *out,
                             const size_t *value)
{
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (!out && !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (value)
        context->limit[limit] = *value;
    else
        *out = context->limit[limit];
    return CUDA_SUCCESS;
}

static CUresult priority_range(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult peer_access(struct sim_context *context, CUcontext handle)
{
    const struct sim_context *peer = handle ? sim_context_check(handle) : NULL;

    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    return peer->device == context->device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SIM_API(cuCtxCreate_v2, (CUcontext * out, unsigned int flags, CUdevice device),
        SIM_INIT | SIM_UNSAFE, context_create(out, flags, device))
SIM_API(cuCtxCreate_v3,
        (CUcontext * out, CUexecAffinityParam *parameters, int count, unsigned int flags,
         CUdevice device),
        SIM_INIT | SIM_UNSAFE,
        count && !parameters ? CUDA_ERROR_INVALID_VALUE : context_create(out, flags, device))
SIM_API(cuCtxCreate_v4,
        (CUcontext * out, CUctxCreateParams *parameters, unsigned int flags, CUdevice device),
        SIM_INIT | SIM_UNSAFE,
        parameters && parameters->cigParams ? CUDA_ERROR_NOT_SUPPORTED
                                            : context_create(out, flags, device))
SIM_API(cuCtxDestroy, (CUcontext handle), SIM_INIT, context_destroy(handle))
SIM_API(cuCtxDestroy_v2, (CUcontext handle), SIM_INIT, context_destroy(handle))
SIM_API(cuCtxPushCurrent, (CUcontext handle), SIM_INIT, context_push(handle))
SIM_API(cuCtxPushCurrent_v2, (CUcontext handle), SIM_INIT, context_push(handle))
SIM_API(cuCtxPopCurrent, (CUcontext * out), SIM_INIT, context_pop(out))
SIM_API(cuCtxPopCurrent_v2, (CUcontext * out), SIM_INIT, context_pop(out))
SIM_API(cuCtxSetCurrent, (CUcontext handle), SIM_INIT, context_set(handle))
SIM_API(cuCtxGetCurrent, (CUcontext * out), SIM_INIT, context_current(out))
SIM_API(cuCtxGetDevice, (CUdevice * device), SIM_INIT, context_device(device, NULL))
SIM_API(cuCtxGetDevice_v2, (CUdevice * device, CUcontext handle), SIM_INIT,
        context_device(device, handle))
SIM_API(cuCtxSynchronize, (void), SIM_CTX, context_synchronize(NULL))
SIM_API(cuCtxSynchronize_v2, (CUcontext handle), SIM_INIT, context_synchronize(handle))
SIM_API(cuCtxGetFlags, (unsigned int *flags), SIM_CTX, number_out(flags, call.context->flags))
SIM_API(cuCtxSetFlags, (unsigned int flags), SIM_CTX, flags_set(call.context, flags))
SIM_API(cuCtxGetId, (CUcontext handle, unsigned long long *id), SIM_INIT,
        context_id(handle, id))
SIM_API(cuCtxGetApiVersion, (CUcontext handle, unsigned int *version), SIM_INIT,
        api_version(handle, version))
SIM_API(cuCtxGetLimit, (size_t * value, CUlimit limit), SIM_CTX,
        limit_access(call.context, limit, value, NULL))
SIM_API(cuCtxSetLimit, (CUlimit limit, size_t value), SIM_CTX | SIM_UNSAFE,
        limit_access(call.context, limit, NULL, &value))
SIM_API(cuCtxGetStreamPriorityRange, (int *least, int *greatest), SIM_CTX,
        priority_range(least, greatest))
SIM_API(cuCtxGetCacheConfig, (CUfunc_cache * cache), SIM_CTX,
        cache ? (*cache = call.context->cache, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuCtxSetCacheConfig, (CUfunc_cache cache), SIM_CTX,
        (call.context->cache = cache, CUDA_SUCCESS))
SIM_API(cuCtxGetSharedMemConfig, (CUsharedconfig * shared), SIM_CTX,
        shared ? (*shared = call.context->shared, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuCtxSetSharedMemConfig, (CUsharedconfig shared), SIM_CTX,
        (call.context->shared = shared, CUDA_SUCCESS))
SIM_API(cuCtxResetPersistingL2Cache, (void), SIM_CTX, CUDA_SUCCESS)
SIM_API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags), SIM_CTX,
        flags ? CUDA_ERROR_INVALID_VALUE : peer_access(call.context, peer))
SIM_API(cuCtxDisablePeerAccess, (CUcontext peer), SIM_CTX, peer_access(call.context, peer))
