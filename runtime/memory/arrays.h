/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.h: the device memory of the program's CUDA arrays. It cannot be moved, so it is only
 * counted. Any thread.
 */
#pragma once

#include "runtime/base/base.h"

/* The bytes of an array with so many levels (1: no mipmap), computed from its shape; the driver
 * may round them up. */
uint64_t gs_arrays_bytes(const CUDA_ARRAY3D_DESCRIPTOR_v2 *shape, unsigned levels);

/* The driver has made the array in the current context, or is about to destroy it. */
void gs_arrays_made(const void *array, uint64_t bytes);
void gs_arrays_ended(const void *array);
