/* SPDX-License-Identifier: Apache-2.0
 *
 * loose.h: the program's managed memory that is not counted (program_managed.h), at the end and
 * at the beginning of a turn. Client thread only.
 */
#ifndef GS_RUNTIME_SWAP_LOOSE_H
#define GS_RUNTIME_SWAP_LOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/device.h"

/* The turn has ended and the GPU is at rest: sends one loose chunk to the host. False: there is
 * none. */
bool gs_loose_send_one(struct gs_device *device);

/* A turn begins, and the gate is still closed (closed) or not. */
void gs_loose_begin(struct gs_device *device, bool closed);

/* More is counted than the program may have: so many bytes less are. */
void gs_loose_more(struct gs_device *device, uint64_t bytes);

#endif
