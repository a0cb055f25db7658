/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.h: managed memory on its way to the device: gpushare's own (managed.c), and the
 * program's (program_managed.c).
 */
#pragma once

#include "runtime/base/base.h"

/* Prefetches bytes to the device and waits for them. CUDA_ERROR_OUT_OF_MEMORY: the card has not
 * that much free, and the driver would push out others. A context of the device is current. */
CUresult gs_managed_bring_in(struct gs_device *device, CUdeviceptr address, uint64_t bytes);

/* The context has ended, and memory of ours with it that was not in use. */
void gs_managed_context_ended(CUcontext context);
