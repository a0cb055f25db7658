/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_lock.c: owns the mutex of device memory.
 */
#include "runtime/range/memory_lock.h"

pthread_mutex_t gs_memory_lock = PTHREAD_MUTEX_INITIALIZER;
