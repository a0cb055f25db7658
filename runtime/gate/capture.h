/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.h: stream captures under way. Between BeginCapture and EndCapture the lease is held:
 * a drain would invalidate the capture.
 */
#ifndef GS_RUNTIME_GATE_CAPTURE_H
#define GS_RUNTIME_GATE_CAPTURE_H

#include <stdbool.h>

#include <cudaTypedefs.h>

/* Any thread. A capture that nobody has fed for a minute (its stream was destroyed) no longer
 * counts. */
bool gs_capture_active(void);

/* True if work queued on stream is only recorded now. Any thread. */
bool gs_capture_records(CUstream stream, bool per_thread);

/* The program begins a capture (before the driver does; waits, bounded, for synchronising calls
 * of ours), and one has ended or did not begin. Inside the gate. */
void gs_capture_begins(void);
void gs_capture_ended(void);

/* True if captures are counted at all; cheap. Any thread. */
bool gs_capture_is_any(void);

/* Around a synchronising call of ours: false, and nothing is held, while a capture is under
 * way; true: captures that want to begin wait until gs_capture_release(). Any thread; nests. */
bool gs_capture_hold_off(void);
void gs_capture_release(void);

/* Between the two the driver lets this thread do what captures of other threads forbid: for
 * calls of ours that what the program has called would not need. Any thread; nests. */
CUstreamCaptureMode gs_capture_relax(void);
void gs_capture_restore(CUstreamCaptureMode mode);

void gs_capture_after_fork(void);

#endif
