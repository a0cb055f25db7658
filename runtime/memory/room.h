/* SPDX-License-Identifier: Apache-2.0
 *
 * room.h: makes room for memory that cannot be moved, when the card is full.
 */
#pragma once

#include "runtime/base/base.h"

/* A call failed with CUDA_ERROR_OUT_OF_MEMORY although it allocates no memory of ours (a module,
 * a context's local memory, the driver's pools). Asks the daemon to make others leave, waits for
 * the program's turn and then for a bounded time outside the gate, and returns whether to try
 * again. device: where memory is lacking; NULL: that of the current context. attempt counts
 * from 0. Any thread, not inside the gate. errno is kept. */
bool gs_room_make(struct gs_device *device, unsigned attempt);

/* A thread waits for room: the program wants to run, also if it has no context yet. The daemon
 * makes room for no program that does not. Any thread. */
bool gs_room_is_wanted(void);
