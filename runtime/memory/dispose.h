/* SPDX-License-Identifier: Apache-2.0
 *
 * dispose.h: memory whose disposal had to wait, and what is left when a context ends.
 */
#ifndef GS_RUNTIME_MEMORY_DISPOSE_H
#define GS_RUNTIME_MEMORY_DISPOSE_H

#include <stdbool.h>

#include <cudaTypedefs.h>

/* A context has ended: everything allocated in it is gone. */
void gs_memory_context_ended(CUcontext context);

/* Disposes of what was freed while the gate was closed or in stream order, and of what was kept
 * for too long. Client thread; moving: the gate is closed and the GPU at rest. Returns true
 * while some of it still waits for its event. */
bool gs_memory_dispose_dead(bool moving);

void gs_memory_after_fork(void);

#endif
