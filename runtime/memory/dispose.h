/* SPDX-License-Identifier: Apache-2.0
 *
 * dispose.h: disposal of memory that had to wait for it, and of all memory of a context that
 * ends.
 */
#pragma once

#include "runtime/base/base.h"

/* A context has ended: everything allocated in it is gone. */
void gs_memory_context_ended(CUcontext context);

/* Disposes of memory that was freed while the gate was closed or in stream order, and of memory
 * that was kept for too long. Client thread. moving: the gate is closed and the GPU at rest.
 * Returns true while some of the memory still waits for its event. */
bool gs_memory_dispose_dead(bool moving);
