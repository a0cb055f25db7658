/* SPDX-License-Identifier: Apache-2.0
 *
 * over.h: overcommit: chunks for which the card has no room, in host memory that the device
 * reaches over the bus at the same addresses. They are in no account but `over`, and in the
 * host memory that the process is said to use.
 */
#pragma once

#include "runtime/range/range.h"

/* The most bytes beyond the card that the program may have of the device; 0: overcommit is off.
 * Any thread, without gs_memory_lock. */
uint64_t gs_over_limit(const struct gs_device *device);

/* Overcommit is on. Any thread. */
bool gs_over_is_on(const struct gs_device *device);

/* Bytes of a chunk of new memory: so many, or fewer where there is overcommit. */
uint64_t gs_over_chunk_bytes(const struct gs_device *device, uint64_t otherwise);

/* It may lie in host memory at all. */
bool gs_over_suits(const struct gs_range *range);

/* Memory for the chunks that are OVER and have none. False: the host has not got that much;
 * some may have theirs. Nobody else can reach the range; may wait, for the daemon to allow it. */
bool gs_over_fill(struct gs_range *range);

/* Memory for one chunk, of host memory that has been claimed, at its address. False: the driver
 * refused it. */
bool gs_over_make(struct gs_range *range, uint32_t index);
