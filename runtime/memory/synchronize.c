/* SPDX-License-Identifier: Apache-2.0
 *
 * synchronize.c: waits for contexts. No state. Any thread.
 */
#include "runtime/memory/synchronize.h"

#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/gate/capture.h"
#include "runtime/base/uncancelled.h"

/* The failure of a single call is no reason to take memory away from a running kernel. In a
 * broken context every call fails. */
CUresult gs_synchronize_context(CUcontext context)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    CUcontext current = NULL, popped;
    CUresult result = CUDA_SUCCESS;

    if (!gs_capture_hold_off()) /* it would invalidate the capture */
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    gs_driver.cuCtxGetCurrent(&current);
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        const bool other = current != context && context != NULL;

        result = other ? gs_context_push(context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            continue;
        result = gs_driver.cuCtxSynchronize();
        if (other)
            gs_driver.cuCtxPopCurrent_v2(&popped);
        if (result == CUDA_SUCCESS || gs_capture_forbids(result))
            break;
    }
    gs_capture_release();
    if (result != CUDA_SUCCESS)
        gs_context_failed(context, result);
    return result;
}
