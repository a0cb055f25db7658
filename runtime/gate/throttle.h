/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle.h: a bound on unfinished work while others wait.
 */
#pragma once

#include "runtime/base/base.h"

/* While others wait: keeps this thread, `self`, at no more than about GS_THROTTLE_UNFINISHED submissions
 * ahead of the GPU, so that a drain takes milliseconds. Inside the gate, after the submission.
 * Waits at most 50 ms; does nothing while the stream is captured. per_thread: stream 0 means
 * the per-thread stream. */
#define GS_THROTTLE_UNFINISHED 32
struct gs_gate_thread;
void gs_throttle_bound(struct gs_gate_thread *self, CUstream stream, bool per_thread);

struct gs_throttle;

/* A thread ends; NULL: it had no pair. Any thread. */
void gs_throttle_thread_ends(struct gs_throttle *throttle);

/* A context has ended, and its events with it. Any thread. */
void gs_throttle_context_ended(CUcontext context);
