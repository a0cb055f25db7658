/* SPDX-License-Identifier: Apache-2.0
 *
 * room.c: makes room on a full card, and bounds unfinished work while others wait.
 *
 * State: two events per thread (in gs_gate_self), bound to the context they were made in. They
 * end with that context. No locks.
 */
#include "runtime/room.h"

#include <errno.h>
#include <time.h>

#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/graph_memory.h"
#include "runtime/idle.h"
#include "runtime/log.h"
#include "runtime/runtime.h"

#define ATTEMPTS 20

/* what this process holds and does not use */
static bool give_own(struct gs_device *device)
{
    const uint64_t idle = gs_idle_give_back(device, NULL, UINT64_MAX);

    return gs_graph_memory_trim(device) || idle != 0;
}

bool gs_room_make(unsigned attempt)
{
    const int saved = errno;
    const struct timespec pause = {0, 100000000};
    struct gs_device *device = attempt == 0 ? gs_device_current() : NULL;

    if (device != NULL && give_own(device)) { /* nobody else has to leave for that */
        errno = saved;
        return true;
    }
    if (attempt >= ATTEMPTS || !gs_client_short())
        return false;
    gs_log("the driver is out of memory for something that cannot be moved: asked for room, "
           "attempt %u",
           attempt + 1);
    nanosleep(&pause, NULL);
    errno = saved;
    return true;
}

static bool is_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    const CUresult result = per_thread ? gs_driver.cuStreamIsCapturing_ptsz(stream, &status)
                                       : gs_driver.cuStreamIsCapturing(stream, &status);

    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* waits until the event has passed, at most 50 ms */
static bool passed(CUevent event)
{
    const struct timespec pause = {0, 50000};
    const CUstreamCaptureMode mode = gs_capture_relax();
    bool done = false;

    for (unsigned i = 0; i < 1000 && !done; i++) {
        done = gs_driver.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
        if (!done)
            nanosleep(&pause, NULL);
    }
    gs_capture_restore(mode);
    return done;
}

static bool have_events(struct gs_gate_thread *self, CUcontext context)
{
    CUevent first, second;

    const uint32_t generation = gs_contexts_generation();

    if (self->pace[2] == context && self->pace_generation == generation)
        return true;
    if (gs_driver.cuEventCreate(&first, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    if (gs_driver.cuEventCreate(&second, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        gs_driver.cuEventDestroy_v2(first);
        return false;
    }
    self->pace[0] = first;
    self->pace[1] = second;
    self->pace[2] = context;
    self->pace_generation = generation;
    return true;
}

void gs_room_bound(CUstream stream, bool per_thread)
{
    struct gs_gate_thread *self = &gs_gate_self;
    const int saved = errno;
    CUcontext context = NULL;
    CUevent event;

    if (++self->submissions % (GS_ROOM_UNFINISHED / 2) != 0)
        return;
    if (is_capturing(stream, per_thread) ||
        gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
        return;
    if (!have_events(self, context))
        return;
    /* the two take turns: wait for the one recorded half a window ago, then record it anew */
    event = self->pace[self->submissions / (GS_ROOM_UNFINISHED / 2) % 2];
    if (passed(event)) {
        if (per_thread)
            gs_driver.cuEventRecord_ptsz(event, stream);
        else
            gs_driver.cuEventRecord(event, stream);
    }
    errno = saved;
}
