/* SPDX-License-Identifier: Apache-2.0
 *
 * synchronize.c: waits for contexts. No state. Any thread.
 */
#include "runtime/memory/synchronize.h"
#include "runtime/gate/capture.h"

/* Beside a capture, which cuCtxSynchronize would invalidate. The driver's cuMemFree waits for the
 * same work and leaves captures alone. Without memory for that nothing is waited for. */
static CUresult wait_by_free(void)
{
    const CUstreamCaptureMode mode = gs_capture_relax();
    CUdeviceptr nothing;
    CUresult result = gs_driver.cuMemAlloc_v2(&nothing, 1);

    if (result == CUDA_SUCCESS)
        result = gs_driver.cuMemFree_v2(nothing);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    gs_capture_restore(mode);
    return result;
}

/* The failure of a single call is no reason to take memory away from a running kernel. In a
 * broken context every call fails. */
CUresult gs_synchronize_context(CUcontext context)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const bool quiet = gs_capture_hold_off();
    CUcontext current = NULL;
    CUresult result = CUDA_SUCCESS;

    gs_driver.cuCtxGetCurrent(&current);
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        const bool other = current != context && context != NULL;

        result = other ? gs_context_push(context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            continue;
        result = quiet ? gs_driver.cuCtxSynchronize() : wait_by_free();
        if (other)
            gs_context_pop();
        if (result == CUDA_SUCCESS || gs_capture_forbids(result))
            break;
    }
    if (quiet)
        gs_capture_release();
    if (result != CUDA_SUCCESS)
        gs_context_failed(context, result);
    return result;
}
