/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_host.c: host memory that the program registers with the driver. NCCL registers the memory
 * that the ranks of a communicator share, before the first collective. No state.
 */
#include "runtime/calls/hooks.h"
#include "runtime/client/evidence.h"

/* Both variants of the driver's function have the same type; `driver` is the variant that was
 * called. */
static CUresult register_host(typeof(*gs_driver.cuMemHostRegister_v2) *const *driver,
                              void *address, size_t bytes, unsigned flags)
{
    CUresult result;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    result = (*driver)(address, bytes, flags);
    if (result == CUDA_SUCCESS && !gs_runtime.config.disabled)
        gs_evidence_registered(address);
    return result;
}

CUresult __wrap_cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    return register_host(&gs_driver.cuMemHostRegister, p, bytesize, Flags);
}

CUresult __wrap_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    return register_host(&gs_driver.cuMemHostRegister_v2, p, bytesize, Flags);
}
