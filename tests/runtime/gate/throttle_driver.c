/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle_driver.c: what throttle.c needs of the driver and of the gate, for its tests.
 */
#include "tests/runtime/gate/throttle_driver.h"
#include "runtime/gate/capture.h"

struct gs_driver gs_driver;
_Thread_local struct gs_gate_thread gs_gate_self;

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUstreamCaptureMode gs_capture_relax(void)
{
    return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void gs_capture_restore(CUstreamCaptureMode mode)
{
    (void)mode;
}

void throttle_driver_begin(const struct throttle_driver *driver)
{
    gs_driver.cuEventCreate = driver->event_create;
    gs_driver.cuEventQuery = driver->event_query;
    gs_driver.cuEventRecord = driver->event_record;
    gs_driver.cuCtxGetCurrent = driver->get_current;
    gs_driver.cuStreamIsCapturing = is_capturing;
}

void throttle_driver_end(uintptr_t contexts)
{
    gs_throttle_thread_ends(gs_gate_self.throttle);
    gs_gate_self.throttle = NULL;
    for (uintptr_t context = 1; context <= contexts; context++)
        gs_throttle_context_ended((CUcontext)context);
}
