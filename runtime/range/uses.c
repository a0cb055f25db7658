/* SPDX-License-Identifier: Apache-2.0
 *
 * uses.c: notes which chunks are used (uses.h).
 *
 * A kernel that gets the address at which an allocation begins is taken to use all of it; of one
 * that gets another address in it only the chunk there is known.
 *
 * State: the bytes of each chunk (in struct gs_chunk) and their sum, under gs_memory_lock. Any
 * thread.
 */
#include "runtime/range/uses.h"

#include <string.h>

#include "runtime/base/driver.h"
#include "runtime/base/mutex.h"
#include "runtime/gate/gate.h"
#include "runtime/range/chunk.h"
#include "runtime/range/memory_lock.h"
#include "runtime/range/range.h"

#define PARAMS_MOST 256 /* parameters of a kernel */
#define WORDS_MOST  512 /* words that are looked at for one launch */

_Atomic(bool) gs_uses_noted;
static uint64_t sum;

void gs_uses_begin(void)
{
    if (atomic_exchange_explicit(&gs_uses_noted, true, memory_order_relaxed))
        return;
    gs_gate_observe();
}

/* under the lock */
static void note_span(struct gs_range *range, uint64_t from, uint64_t to)
{
    for (uint64_t i = from / range->chunk_bytes;
         i < range->chunk_count && i * range->chunk_bytes < to; i++) {
        const uint64_t start = i * range->chunk_bytes,
                       end = start + gs_range_chunk_bytes(range, (uint32_t)i);
        const uint64_t bytes = (to < end ? to : end) - (from > start ? from : start);

        range->chunks[i].used += bytes;
        sum += bytes;
    }
}

void gs_uses_span(CUdeviceptr address, uint64_t bytes)
{
    struct gs_range *range;

    if (address == 0 || bytes == 0)
        return;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    if (range != NULL && range->theirs == NULL) {
        const uint64_t from = address - range->node.base;
        const uint64_t most = range->reserved - from;

        note_span(range, from, from + (bytes < most ? bytes : most));
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

/* under the lock */
static void note_word(uint64_t word)
{
    struct gs_range *range = word != 0 ? gs_range_at(word) : NULL;
    uint64_t from;

    if (range == NULL || range->theirs != NULL || range->chunk_count == 0)
        return;
    from = word - range->node.base;
    if (from == 0 && range->slab == NULL)
        note_span(range, 0, range->reserved);
    else
        note_span(range, from / range->chunk_bytes * range->chunk_bytes,
                  from / range->chunk_bytes * range->chunk_bytes + 1);
}

static void note_words(const uint64_t *words, unsigned count)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; i < count; i++)
        note_word(words[i]);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

static unsigned add_words(uint64_t *words, unsigned count, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0; at + 8 <= bytes && count < WORDS_MOST; at += 8)
        memcpy(&words[count++], (const char *)from + at, 8);
    return count;
}

/* The driver may have a handle of either kind for what is launched. */
static bool parameter_bytes(CUfunction function, unsigned index, size_t *bytes)
{
    size_t offset;

    return gs_driver.cuFuncGetParamInfo(function, index, &offset, bytes) == CUDA_SUCCESS ||
           gs_driver.cuKernelGetParamInfo((CUkernel)function, index, &offset, bytes) ==
               CUDA_SUCCESS;
}

void gs_uses_launch(CUfunction function, void **params, void **extra)
{
    uint64_t words[WORDS_MOST];
    unsigned count = 0;
    size_t bytes = 0;
    const void *buffer = NULL;

    if (function == NULL)
        return;
    for (unsigned i = 0;
         params != NULL && i < PARAMS_MOST && parameter_bytes(function, i, &bytes); i++)
        count = add_words(words, count, params[i], bytes);
    for (; params == NULL && extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
    if (buffer != NULL)
        count = add_words(words, count, buffer, bytes);
    if (count != 0)
        note_words(words, count);
}

uint64_t gs_uses_take(void)
{
    uint64_t taken;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    taken = sum;
    sum = 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return taken;
}

void gs_uses_after_fork(void)
{
    atomic_store(&gs_uses_noted, false);
    sum = 0;
}
