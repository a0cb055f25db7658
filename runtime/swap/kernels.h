/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.h: what the library runs on the GPU: a hash of each GS_BLOCK_BYTES, which tells what
 * has changed since it was copied (hash_core.h says what it is worth).
 */
#ifndef GS_RUNTIME_SWAP_KERNELS_H
#define GS_RUNTIME_SWAP_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/base/device.h"

/* Blocks that one call can hash. */
#define GS_HASH_MOST 64u

/* Loads them into context (it is current); false: not to be had (no code for this device, no
 * room for it), and everything is copied, by the copy engines. Client thread. */
bool gs_kernels_ready(struct gs_context *context);

/* Queues the hashing of bytes at address, at most GS_HASH_MOST blocks, on stream: two words a
 * block to results (memory that the device can write, as gs_hash_results() gives it). */
CUresult gs_hash_queue(const struct gs_context *context, CUdeviceptr address, uint64_t bytes,
                       CUdeviceptr results, CUstream stream);

/* slots x GS_HASH_MOST x 2 words of host memory that the device can write; NULL: none. The
 * memory ends with the context. */
uint64_t (*gs_hash_results(unsigned slots, CUdeviceptr *device))[GS_HASH_MOST][2];

void gs_kernels_after_fork(void);

#endif
