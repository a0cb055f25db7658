/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.h: stream captures under way. Between BeginCapture and EndCapture the program keeps its
 * lease, because a drain would invalidate the capture.
 */
#pragma once

#include "runtime/base/base.h"

/* The gate says how its activity is asked for (gs_gate_activity), before any other call here. */
void gs_capture_init(uint64_t (*activity)(bool *busy));

/* Any thread. A capture without a call for a minute (its stream was destroyed) no longer counts. */
bool gs_capture_active(void);

/* True if work queued on stream is only recorded now. Any thread. */
bool gs_capture_records(CUstream stream, bool per_thread);

/* The program is about to begin a capture (waits, for a bounded time, for synchronising calls of
 * ours); a capture has ended or did not begin. Inside the gate. */
void gs_capture_begins(void);
void gs_capture_ended(void);

/* As gs_capture_begins(), by a thread outside the closed gate: only beside another capture, which
 * keeps the program from stopping. False: none is under way, and nothing was counted. */
bool gs_capture_joins(void);

/* True if captures are counted at all; cheap. Any thread. */
bool gs_capture_is_any(void);

/* Beside a capture the driver refuses allocation and freeing, and invalidates the capture, unless
 * the thread has relaxed that; wrong arguments change nothing, and no context is needed (an H200,
 * driver 580). True: it has done so now. Any thread. */
bool gs_capture_refuses(void);

/* True if the driver has refused to wait because of a capture: nothing was waited for. */
static inline bool gs_capture_forbids(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_CAPTURED_EVENT;
}

/* Around a synchronising call of ours. False: a capture is under way, and nothing is held. True:
 * captures that want to begin wait until gs_capture_release(). Any thread; nests. */
bool gs_capture_hold_off(void);
void gs_capture_release(void);

/* Between these two calls the driver lets this thread make calls that captures of other threads
 * forbid. For calls of ours that the program's own call would not need. Any thread; nests. */
CUstreamCaptureMode gs_capture_relax(void);
void gs_capture_restore(CUstreamCaptureMode mode);
