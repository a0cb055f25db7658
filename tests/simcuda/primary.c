/* SPDX-License-Identifier: Apache-2.0
 *
 * primary.c: the primary context of each device: counted, given flags, reset. Threads: any, under
 * sim.lock.
 */
#include "tests/simcuda/sim.h"

CUresult sim_primary_retain(CUcontext *out, CUdevice number)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (number < 0 || (unsigned)number >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_device *device = &sim.device[number];
    if (!device->primary) {
        const CUresult result = sim_context_new((unsigned)number, device->primary_flags, 3020,
                                                NULL, &device->primary);
        if (result)
            return result;
        device->primary->primary = true;
    }
    device->primary_refs++;
    *out = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

static CUresult primary_drop(CUdevice number, bool reset)
{
    if (number < 0 || (unsigned)number >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    struct sim_device *device = &sim.device[number];
    struct sim_context *context = device->primary;
    if (!reset && !device->primary_refs)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!reset && --device->primary_refs > 0)
        return CUDA_SUCCESS;
    device->primary_refs = 0;
    device->primary = NULL;
    if (context)
        sim_context_free(context);
    return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice number)
{
    return primary_drop(number, false);
}

static CUresult primary_flags_set(CUdevice number, unsigned flags)
{
    if (number < 0 || (unsigned)number >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    sim.device[number].primary_flags = flags;
    if (sim.device[number].primary)
        sim.device[number].primary->flags = flags;
    return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice number, unsigned *flags, int *active)
{
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (number < 0 || (unsigned)number >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = sim.device[number].primary_flags;
    *active = sim.device[number].primary != NULL;
    return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice device), SIM_INIT,
        sim_primary_retain(out, device))
SIM_API(cuDevicePrimaryCtxRelease, (CUdevice device), SIM_INIT, primary_drop(device, false))
SIM_API(cuDevicePrimaryCtxRelease_v2, (CUdevice device), SIM_INIT, primary_drop(device, false))
SIM_API(cuDevicePrimaryCtxReset, (CUdevice device), SIM_INIT, primary_drop(device, true))
SIM_API(cuDevicePrimaryCtxReset_v2, (CUdevice device), SIM_INIT, primary_drop(device, true))
SIM_API(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags), SIM_INIT,
        primary_flags_set(device, flags))
SIM_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags), SIM_INIT,
        primary_flags_set(device, flags))
SIM_API(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active),
        SIM_INIT, primary_state(device, flags, active))
