/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.h: the code that the library runs on the GPU: a hash of each GS_BLOCK_BYTES, which
 * shows whether the block has changed since it was copied (hash_core.h says how reliable that
 * is).
 */
#pragma once

#include "runtime/base/base.h"

/* The number of blocks that one call can hash. */
#define GS_HASH_MOST 64u

/* Loads the kernels into the context, which is current. False: the image has no code for this
 * device, or there is no room for it; then everything is copied, by the copy engines. Client
 * thread. */
bool gs_kernels_ready(struct gs_context *context);

/* Queues the hashing of `bytes` bytes at address, at most GS_HASH_MOST blocks, on the stream.
 * Each block gives two words in results, which the device can write (see gs_hash_results()). */
CUresult gs_hash_queue(const struct gs_context *context, CUdeviceptr address, uint64_t bytes,
                       CUdeviceptr results, CUstream stream);

/* The hash of one block in host memory, as the device has it; 2 ms. bytes: a multiple of 16. */
void gs_hash_on_host(const char *memory, uint64_t bytes, uint64_t result[2]);

/* Host memory of slots x GS_HASH_MOST x 2 words that the device can write; NULL: there is none.
 * The memory ends with the context. */
uint64_t (*gs_hash_results(unsigned slots, CUdeviceptr *device))[GS_HASH_MOST][2];
