/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.h: stream captures under way. Between BeginCapture and EndCapture the program keeps its
 * lease, because a drain would invalidate the capture.
 */
#pragma once

#include "runtime/base/base.h"

/* True if a capture is under way, or about to begin. Any thread; cheap. */
bool gs_capture_active(void);

/* Asks the driver, at most once a second, whether the captures go on: one may have ended in a way
 * that was not seen. Client thread; a capture of a per-thread default stream is not asked about. */
void gs_capture_look(uint64_t now);

/* True while the client thread may ask about streams whose captures have just ended. Any thread. */
bool gs_capture_asks(void);

/* Of the capture that records what is queued on the stream; none if nothing does. Any thread. */
CUstreamCaptureStatus gs_capture_status(CUstream stream, bool per_thread);

/* The calling thread is about to begin a capture, inside the gate (waits, for a bounded time, for
 * synchronising calls of ours). beside: outside the closed gate, and only beside another capture,
 * which keeps the program from stopping. False: nothing was counted; there is no capture, or no
 * memory. After the driver's call follows gs_capture_changed(). */
bool gs_capture_begins(CUstream stream, bool per_thread, bool beside);

/* The calling thread is about to end the capture that the stream began. False: it began none that
 * is under way. After the driver's call follows gs_capture_changed(). */
bool gs_capture_changes(CUstream stream, bool per_thread);

/* The driver's call is over. goes_on: the capture is under way now. */
void gs_capture_changed(CUstream stream, bool per_thread, bool goes_on);

/* Captures end with their context, and with the thread whose default stream they record. */
void gs_capture_thread_ends(void);
void gs_capture_context_ended(CUcontext context);

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
