/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: a list of blocks.
 */
#include "cluster/pool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct pool_block {
    struct pool_block *next;
    max_align_t bytes[];
};

void *pool_take(struct pool *pool, size_t count, size_t size)
{
    struct pool_block *block;

    if (size != 0 && count > (SIZE_MAX - sizeof *block) / size)
        return NULL;
    block = calloc(1, sizeof *block + count * size);
    if (block == NULL)
        return NULL;
    block->next = pool->blocks;
    pool->blocks = block;
    return block->bytes;
}

char *pool_text(struct pool *pool, const char *format, ...)
{
    char *text;
    int length;
    va_list ap;

    va_start(ap, format);
    length = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    text = length >= 0 ? pool_take(pool, (size_t)length + 1, 1) : NULL;
    if (text == NULL)
        return NULL;
    va_start(ap, format);
    vsnprintf(text, (size_t)length + 1, format, ap);
    va_end(ap);
    return text;
}

void pool_deinit(struct pool *pool)
{
    while (pool->blocks != NULL) {
        struct pool_block *next = pool->blocks->next;

        free(pool->blocks);
        pool->blocks = next;
    }
}
