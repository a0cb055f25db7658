/* SPDX-License-Identifier: Apache-2.0
 *
 * room.h: what happens around a gated call besides the call: room when the card is full, a
 * bound on unfinished work.
 */
#ifndef GS_RUNTIME_ROOM_H
#define GS_RUNTIME_ROOM_H

#include <stdbool.h>

#include <cudaTypedefs.h>

/* A call failed with CUDA_ERROR_OUT_OF_MEMORY although it allocates nothing of ours (a module,
 * a context's local memory, the driver's pools): asks the daemon to make others leave, waits
 * (bounded, outside the gate) and says whether to try again. attempt counts from 0. Any thread,
 * not inside the gate. errno is kept. */
bool gs_room_make(unsigned attempt);

/* While others wait: keeps this thread at no more than about GS_ROOM_UNFINISHED submissions
 * ahead of the GPU, so that a drain takes milliseconds. Inside the gate, after the submission.
 * Waits at most 50 ms; does nothing while the stream is captured. per_thread: stream 0 means
 * the per-thread stream. */
#define GS_ROOM_UNFINISHED 32
void gs_room_bound(CUstream stream, bool per_thread);

#endif
