/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_lock.h: the one mutex of device memory: it guards the trees of addresses, slabs,
 * pools, accounts and lists. Rank GS_LOCK_MEMORY; never held across a driver call.
 */
#pragma once

#include <pthread.h>

extern pthread_mutex_t gs_memory_lock;
