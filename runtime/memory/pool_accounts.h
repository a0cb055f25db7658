/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_accounts.h: the pools that we serve (pool.h) and the accounts of each. All under
 * gs_memory_lock. Functions on ranges accept a range without a pool.
 */
#pragma once

#include "runtime/range/range.h"

/* The pool with this handle that is not destroyed; NULL: none. */
struct gs_pool *gs_pool_find(CUmemoryPool handle);

/* Into the list. */
void gs_pool_add(struct gs_pool *pool);

/* Frees a destroyed pool whose last range has gone. */
void gs_pool_free_if_over(struct gs_pool *pool);

/* A range becomes this pool's; false: the pool may not hold that much. */
bool gs_pool_join(struct gs_range *range, struct gs_pool *pool);

/* The range is no longer its pool's; frees a destroyed pool with its last range. */
void gs_pool_leave(struct gs_range *range);

/* The range becomes idle: it stays with its pool while the pool may hold so much. */
void gs_pool_settle(struct gs_range *range);

/* `bytes` of memory are handed to the program, or came back from it. */
void gs_pool_use(struct gs_pool *pool, uint64_t bytes);
void gs_pool_unuse(struct gs_pool *pool, uint64_t bytes);
