/* SPDX-License-Identifier: Apache-2.0
 *
 * synchronize.h: waiting for everything that a context has submitted. Any thread.
 */
#pragma once

#include "runtime/base/base.h"

/* Waits for everything in the context; more than once where one answer could be wrong. Captures go
 * on. gs_capture_forbids(result): a capture is under way, and nothing was waited for. */
CUresult gs_synchronize_context(CUcontext context);
