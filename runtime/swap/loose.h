/* SPDX-License-Identifier: Apache-2.0
 *
 * loose.h: managed memory of the program that is not counted (program_managed.h): what happens to
 * it when a turn ends and when one begins. Client thread only.
 */
#pragma once

#include "runtime/base/base.h"

/* The turn has ended and the GPU is at rest. Sends one loose chunk to the host. False: there is
 * none. */
bool gs_loose_send_one(struct gs_device *device);

/* A turn begins. closed: the gate is still closed. */
void gs_loose_begin(struct gs_device *device, bool closed);

/* More memory is counted than the program may have: stops counting so many bytes of it. */
void gs_loose_more(struct gs_device *device, uint64_t bytes);
