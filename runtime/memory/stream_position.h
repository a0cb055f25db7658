/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_position.h: a stream as a call names it, and events in it. Any thread.
 */
#pragma once

#include "runtime/base/base.h"

/* A stream as a call names it. */
struct gs_stream_position {
    CUstream stream;
    bool per_thread; /* 0 means the per-thread stream */
    CUcontext context;
    unsigned long long id; /* never used twice in a process; 0: unknown */
};

/* The driver's answer about the stream; its error if it is none. */
CUresult gs_stream_position_of(CUstream stream, bool per_thread,
                               struct gs_stream_position *position);

/* Records an event behind everything that was submitted to the stream so far. NULL: the driver
 * gives none (ask it to wait instead). */
CUevent gs_stream_position_mark(const struct gs_stream_position *position);

/* Waits until the stream's work so far has finished. Waits more than once where one answer could
 * be wrong. */
CUresult gs_stream_position_wait(const struct gs_stream_position *position);

/* Makes the context current, if it is not; leave() takes the value that enter() returned. */
bool gs_stream_position_enter(CUcontext context);
void gs_stream_position_leave(bool entered);

/* Makes an event of the context; NULL: there is none. */
CUevent gs_stream_position_event(CUcontext context);
bool gs_stream_position_record(CUevent event, const struct gs_stream_position *position);

/* Waits for everything in the context; more than once where one answer could be wrong. Captures go
 * on. gs_capture_forbids(result): a capture is under way, and nothing was waited for. */
CUresult gs_synchronize_context(CUcontext context);
