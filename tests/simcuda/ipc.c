/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.c: owns the refusals of legacy IPC: memory that was mapped by hand cannot be shared that
 * way on a card either, and programs must see that answer; other memory is not shared by this
 * driver. Invariants: none of its own. Threads: any, under sim.lock.
 */
#include "tests/simcuda/sim.h"

static CUresult memory_handle(const CUipcMemHandle *out, CUdeviceptr address)
{
    if (!out || !sim_in_arena(address))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_allocation *allocation = sim_allocation_find(address);
    if (!allocation || allocation->kind != SIM_DEVICE || allocation->pool)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr address), SIM_CTX,
        memory_handle(out, address))
