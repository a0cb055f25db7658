/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h: memory for one answer, freed all at once.
 */
#ifndef GS_CLUSTER_POOL_H
#define GS_CLUSTER_POOL_H

#include <stddef.h>

struct pool_block;

struct pool { /* {0}: empty */
    struct pool_block *blocks;
};

/* `count` elements of `size` bytes, all zero; NULL: no memory. */
void *pool_take(struct pool *pool, size_t count, size_t size);
char *pool_text(struct pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pool_deinit(struct pool *pool);

#endif
