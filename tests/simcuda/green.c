/* SPDX-License-Identifier: Apache-2.0
 *
 * green.c: owns green contexts: parts of a card with streams of their own. Their work is not
 * slower for having a part only.
 *
 * Invariants: a green context retains its device's primary one, which owns the memory that is
 * allocated in it and waits for its work as well. It is current to one thread at a time (as the
 * manual says); a second one gets CUDA_ERROR_INVALID_CONTEXT. Threads: any, under sim.lock.
 */
#include <string.h>
#include "tests/simcuda/sim.h"

#define MULTIPROCESSORS 132u

static const char description; /* of every set of resources */

static CUresult read_resource(CUdevResource *out, CUdevResourceType type)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memset(out, 0, sizeof *out);
    out->type = type;
    out->sm.smCount = MULTIPROCESSORS;
    return CUDA_SUCCESS;
}

static CUresult describe_resources(CUdevResourceDesc *out, const CUdevResource *resources,
                                   unsigned count)
{
    if (!out || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    if (resources->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = (CUdevResourceDesc)(uintptr_t)&description;
    return CUDA_SUCCESS;
}

static struct sim_context *green_of(CUgreenCtx handle)
{
    struct sim_context *context = (struct sim_context *)handle;

    return sim_handle_is(context, SIM_KIND_CONTEXT) && context->owner && !context->dying
               ? context
               : NULL;
}

static CUresult green_create(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device,
                             unsigned flags)
{
    struct sim_context *context = NULL;
    CUcontext primary = NULL;

    if (!out || (const void *)desc != &description || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_primary_retain(&primary, device);
    if (result)
        return result;
    result =
        sim_context_new((unsigned)device, 0, 3020, (struct sim_context *)primary, &context);
    if (result)
        sim_primary_release(device);
    else
        *out = (CUgreenCtx)context;
    return result;
}

static CUresult green_destroy(CUgreenCtx handle)
{
    struct sim_context *context = green_of(handle);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    const CUdevice device = (CUdevice)context->device;
    sim_context_free(context);
    return sim_primary_release(device);
}

static CUresult context_from(CUcontext *out, CUgreenCtx handle)
{
    struct sim_context *context = green_of(handle);

    if (!out || !context)
        return out ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, CUgreenCtx handle, unsigned flags, int priority)
{
    struct sim_context *context = green_of(handle);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return flags == CU_STREAM_NON_BLOCKING ? sim_stream_create(context, out, flags, priority)
                                           : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuDeviceGetDevResource, (CUdevice device, CUdevResource *out, CUdevResourceType type),
        SIM_INIT,
        device < 0 || (unsigned)device >= sim.device_count ? CUDA_ERROR_INVALID_DEVICE
                                                           : read_resource(out, type))
SIM_API(cuDevResourceGenerateDesc,
        (CUdevResourceDesc * out, CUdevResource *resources, unsigned int count), SIM_INIT,
        describe_resources(out, resources, count))
SIM_API(cuGreenCtxCreate,
        (CUgreenCtx * out, CUdevResourceDesc desc, CUdevice device, unsigned int flags),
        SIM_INIT | SIM_UNSAFE, green_create(out, desc, device, flags))
SIM_API(cuGreenCtxDestroy, (CUgreenCtx handle), SIM_INIT, green_destroy(handle))
SIM_API(cuCtxFromGreenCtx, (CUcontext * out, CUgreenCtx handle), SIM_INIT,
        context_from(out, handle))
SIM_API(cuGreenCtxStreamCreate,
        (CUstream * out, CUgreenCtx handle, unsigned int flags, int priority), SIM_INIT,
        stream_create(out, handle, flags, priority))
