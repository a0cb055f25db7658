/* SPDX-License-Identifier: Apache-2.0
 *
 * uses.c: notes which chunks are used (uses.h).
 *
 * A kernel that gets an address is assumed to use everything from there to the next address that
 * some kernel gets, or to the end of the allocation: frameworks cut large allocations into the
 * pieces that their kernels work on. Memory of the program's own that lies side by side
 * (expandable segments) counts as one allocation.
 *
 * State: the bytes of each chunk (in struct gs_chunk), their sum, and the addresses of this
 * window and the window before, under gs_memory_lock. Any thread.
 */
#include "runtime/range/uses.h"
#include "runtime/gate/gate.h"
#include "runtime/range/range.h"

#define PARAMS_MOST 256 /* parameters of a kernel */
#define STARTS_MOST 8192

/* An address that a kernel got. */
struct start {
    uint64_t address;
    uint64_t launch; /* the last launch that had it */
    bool old;        /* seen in the window before, and not in this window */
};

_Atomic(bool) gs_uses_noted GS_ZERO_IN_CHILD;
static uint64_t sum GS_ZERO_IN_CHILD;
static uint64_t anchor GS_ZERO_IN_CHILD; /* address; 0: that of the next use */
static bool came_back GS_ZERO_IN_CHILD;  /* that memory was used again */
static struct start starts[STARTS_MOST]; /* by address */
static unsigned start_count GS_ZERO_IN_CHILD;
static uint64_t launch; /* the number of the noted launch */

void gs_uses_begin(void)
{
    if (atomic_exchange_explicit(&gs_uses_noted, true, memory_order_relaxed))
        return;
    gs_gate_observe();
}

/* under the lock */
static void note_span(struct gs_range *range, uint64_t from, uint64_t to, uint64_t times)
{
    const uint64_t base = range->node.base;

    if (anchor == 0)
        anchor = base + from;
    else
        came_back |= base + from <= anchor && anchor < base + to;
    for (uint64_t i = from / range->chunk_bytes;
         i < range->chunk_count && i * range->chunk_bytes < to; i++) {
        const uint64_t start = i * range->chunk_bytes,
                       end = start + gs_range_chunk_bytes(range, (uint32_t)i);
        const uint64_t bytes = ((to < end ? to : end) - (from > start ? from : start)) * times;

        range->chunks[i].used += bytes;
        sum += bytes;
    }
}

void gs_uses_span(CUdeviceptr address, uint64_t bytes)
{
    struct gs_range *range;

    if (address == 0 || bytes == 0)
        return;
    GS_HOLD_MEMORY;
    range = gs_range_at(address);
    if (range != NULL && range->theirs == NULL) {
        const uint64_t from = address - range->node.base;
        const uint64_t most = range->reserved - from;

        note_span(range, from, from + (bytes < most ? bytes : most), 1);
    }
}

/* Under the lock: the index of the first start that is not below the address. */
static unsigned find_start(uint64_t address)
{
    unsigned low = 0, high = start_count;

    while (low < high) {
        const unsigned middle = (low + high) / 2;

        if (starts[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Under the lock: notes this start, and returns the next one behind it. 0: this launch had it
 * already, since kernels of libraries get an address in several parameters. */
static uint64_t note_start(uint64_t address)
{
    unsigned at = find_start(address);

    if (at == start_count || starts[at].address != address) {
        if (start_count == STARTS_MOST)
            at = start_count = 0; /* the table is full: forgets all */
        memmove(&starts[at + 1], &starts[at], (start_count - at) * sizeof starts[0]);
        starts[at] = (struct start){.address = address};
        start_count++;
    }
    if (starts[at].launch == launch)
        return 0;
    starts[at].launch = launch;
    starts[at].old = false;
    return at + 1 < start_count ? starts[at + 1].address : UINT64_MAX;
}

/* under the lock */
static struct gs_range *movable_at(uint64_t address)
{
    struct gs_range *range = address != 0 ? gs_range_at(address) : NULL;

    return range != NULL && range->theirs == NULL && range->chunk_count != 0 ? range : NULL;
}

bool gs_uses_is_movable(uint64_t word)
{
    return movable_at(word) != NULL;
}

/* under the lock */
static void note_word(uint64_t word, uint64_t times)
{
    struct gs_range *range = movable_at(word);
    const uint64_t next = range != NULL ? note_start(word) : 0;

    while (range != NULL && word < next) {
        const uint64_t end = range->node.base + range->reserved;

        note_span(range, word - range->node.base, (next < end ? next : end) - range->node.base,
                  times);
        word = end;
        range = range->own != NULL ? movable_at(end) : NULL;
        if (range != NULL && range->own == NULL)
            range = NULL;
    }
}

void gs_uses_word(uint64_t word, uint64_t times)
{
    launch++;
    note_word(word, times);
}

static unsigned add_words(uint64_t *words, unsigned count, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0; at + 8 <= bytes && count < GS_USES_WORDS; at += 8)
        memcpy(&words[count++], (const char *)from + at, 8);
    return count;
}

/* The launched function may be a handle of either kind. */
static bool parameter_bytes(CUfunction function, unsigned index, size_t *bytes)
{
    size_t offset;

    return gs_driver.cuFuncGetParamInfo(function, index, &offset, bytes) == CUDA_SUCCESS ||
           gs_driver.cuKernelGetParamInfo((CUkernel)function, index, &offset, bytes) ==
               CUDA_SUCCESS;
}

unsigned gs_uses_words(CUfunction function, void **params, void **extra,
                       uint64_t words[GS_USES_WORDS])
{
    unsigned count = 0;
    size_t bytes = 0;
    const void *buffer = NULL;

    for (unsigned i = 0;
         params != NULL && i < PARAMS_MOST && parameter_bytes(function, i, &bytes); i++)
        count = add_words(words, count, params[i], bytes);
    for (; params == NULL && extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
    return buffer != NULL ? add_words(words, count, buffer, bytes) : count;
}

void gs_uses_launch(CUfunction function, void **params, void **extra)
{
    uint64_t words[GS_USES_WORDS];
    const unsigned count = function != NULL ? gs_uses_words(function, params, extra, words) : 0;

    if (count == 0)
        return;
    GS_HOLD_MEMORY;
    launch++;
    for (unsigned i = 0; i < count; i++)
        note_word(words[i], 1);
}

uint64_t gs_uses_take(void)
{
    GS_HOLD_MEMORY;
    uint64_t taken = sum;

    sum = 0;
    return taken;
}

bool gs_uses_came_back(void)
{
    GS_HOLD_MEMORY;

    return came_back;
}

void gs_uses_anchor(bool anew)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    came_back = false;
    if (anew)
        anchor = 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

void gs_uses_age(void)
{
    unsigned kept = 0;

    GS_HOLD_MEMORY;
    for (unsigned i = 0; i < start_count; i++)
        if (!starts[i].old)
            starts[kept++] = (struct start){.address = starts[i].address, .old = true};
    start_count = kept;
}
