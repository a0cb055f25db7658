/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_accounts.c: owns the list of the pools that we serve, and the accounts of each.
 *
 * Invariants, under gs_memory_lock: reserved is the sum of the pool's ranges; used is what the
 * program holds of them. The handle of a pool in the list is alive in the
 * driver, or the pool is destroyed and has ranges left. Any thread.
 */
#include "runtime/memory/pool_accounts.h"

static struct gs_pool *pools GS_ZERO_IN_CHILD;

struct gs_pool *gs_pool_find(CUmemoryPool handle)
{
    struct gs_pool *pool = pools;

    while (pool != NULL && (pool->handle != handle || pool->destroyed))
        pool = pool->next;
    return pool;
}

void gs_pool_add(struct gs_pool *pool)
{
    pool->next = pools;
    pools = pool;
}

void gs_pool_free_if_over(struct gs_pool *pool)
{
    struct gs_pool **link = &pools;

    if (!pool->destroyed || pool->ranges != 0)
        return;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    free(pool);
}

bool gs_pool_join(struct gs_range *range, struct gs_pool *pool)
{
    if (pool == NULL || range->pool == pool)
        return true;
    if (pool->most != 0 && pool->reserved + range->reserved > pool->most)
        return false;
    range->pool = pool;
    pool->ranges++;
    pool->reserved += range->reserved;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

void gs_pool_leave(struct gs_range *range)
{
    struct gs_pool *pool = range->pool;

    if (pool == NULL)
        return;
    range->pool = NULL;
    pool->ranges--;
    pool->reserved -= range->reserved;
    gs_pool_free_if_over(pool);
}

void gs_pool_settle(struct gs_range *range)
{
    if (range->pool != NULL && range->pool->reserved > range->pool->threshold)
        gs_pool_leave(range);
}

void gs_pool_use(struct gs_pool *pool, uint64_t bytes)
{
    if (pool == NULL)
        return;
    pool->used += bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
}

void gs_pool_unuse(struct gs_pool *pool, uint64_t bytes)
{
    if (pool != NULL)
        pool->used -= bytes;
}
