/* SPDX-License-Identifier: Apache-2.0
 *
 * room.h: room for what cannot be moved, when the card is full.
 */
#ifndef GS_RUNTIME_MEMORY_ROOM_H
#define GS_RUNTIME_MEMORY_ROOM_H

#include <stdbool.h>

#include <cudaTypedefs.h>

#include "runtime/base/device.h"

/* A call failed with CUDA_ERROR_OUT_OF_MEMORY although it allocates nothing of ours (a module,
 * a context's local memory, the driver's pools): asks the daemon to make others leave, waits
 * (bounded, outside the gate) and says whether to try again. device: whose memory it was about;
 * NULL: the current one's. attempt counts from 0. Any thread, not inside the gate. errno is
 * kept. */
bool gs_room_make(struct gs_device *device, unsigned attempt);

#endif
