/* SPDX-License-Identifier: Apache-2.0
 *
 * synchronize.h: waiting for everything that a context has submitted. Any thread.
 */
#ifndef GS_RUNTIME_MEMORY_SYNCHRONIZE_H
#define GS_RUNTIME_MEMORY_SYNCHRONIZE_H

#include <stdbool.h>

#include <cudaTypedefs.h>

/* Waits for everything in the context; more than once where one answer could be wrong. */
CUresult gs_synchronize_context(CUcontext context);

/* True if the result says that a capture is under way: waiting is not allowed now, and was not
 * done. */
bool gs_synchronize_is_captured(CUresult result);

#endif
