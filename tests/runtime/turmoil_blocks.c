/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil_blocks.c: memory comes and goes, in all ways and with work under way.
 *
 * Rules of a correct program, which are kept here: work on a block goes to one stream at a time,
 * and an event orders it behind that of the stream before; a mapping is changed when its block's
 * stream has run dry. cuMemFree waits for the device's work by itself.
 *
 * Invariants: a block in the exchange belongs to no thread and has an event behind its work;
 * `taken` counts the bytes of all blocks. Each block and its thread's other state are used by
 * that thread only; the exchange has a lock.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/turmoil.h"

#define EXCHANGE 40
#define MIB      ((size_t)1 << 20)

static _Atomic(size_t) taken;
static _Atomic(uint64_t) writes;
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;
static struct turmoil_block exchange[EXCHANGE];
static unsigned exchange_count;
static CUmemoryPool pools[TURMOIL_POOLS];
static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};

uint64_t turmoil_new_base(struct turmoil_thread *thread)
{
    return (uint64_t)thread->number << 56 |
           (atomic_fetch_add_explicit(&writes, 1, memory_order_relaxed) + 1) << 20;
}

struct turmoil_block *turmoil_pick(struct turmoil_thread *thread)
{
    struct turmoil_block *block = &thread->blocks[turmoil_below(thread, TURMOIL_BLOCKS)];

    return block->address != 0 ? block : NULL;
}

static struct turmoil_block *empty_place(struct turmoil_thread *thread)
{
    for (unsigned i = 0; i < TURMOIL_BLOCKS; i++)
        if (thread->blocks[i].address == 0)
            return &thread->blocks[i];
    return NULL;
}

void turmoil_behind(const struct turmoil_thread *thread, CUstream before, CUstream stream)
{
    CUevent event;

    if (before == stream)
        return;
    TURMOIL_MUST(thread, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    TURMOIL_MUST(thread, cuEventRecord(event, before));
    TURMOIL_MUST(thread, cuStreamWaitEvent(stream, event, 0));
    TURMOIL_MUST(thread, cuEventDestroy(event));
}

void turmoil_bring(const struct turmoil_thread *thread, struct turmoil_block *block,
                   CUstream stream)
{
    turmoil_behind(thread, block->stream, stream);
    block->stream = stream;
}

/* --- sizes --- */

/* Most are near a border between two kinds of memory: pieces of slabs (512 bytes to 1 MiB) and
 * whole granules (2 MiB). */
static size_t draw_size(struct turmoil_thread *thread)
{
    static const size_t borders[] = {
        512,     1024,      4096,          65536,   MIB / 2,       MIB - 512, MIB,
        MIB + 8, MIB + 512, 2 * MIB - 512, 2 * MIB, 2 * MIB + 512, 4 * MIB};
    size_t bytes;

    switch (thread->shape->sizes) {
    case 1:
        bytes = borders[turmoil_below(thread, sizeof borders / sizeof borders[0])];
        break;
    case 2: /* any, of each magnitude */
        bytes = (size_t)8 << turmoil_below(thread, 20);
        bytes += turmoil_below(thread, bytes);
        break;
    case 3: /* the same few, so that freed memory is used again */
        bytes = turmoil_below(thread, 2) == 0 ? 2 * MIB : 4096;
        break;
    default: /* granules beside pieces */
        bytes = turmoil_below(thread, 2) == 0 ? MIB + turmoil_below(thread, MIB) + 1
                                              : (size_t)512 << turmoil_below(thread, 12);
    }
    return (bytes + 7) / 8 * 8;
}

static size_t taken_by(size_t bytes)
{
    return (bytes + 2 * MIB - 1) / (2 * MIB) * 2 * MIB; /* as a card counts */
}

static bool take_share(size_t bytes)
{
    if (atomic_fetch_add(&taken, taken_by(bytes)) + taken_by(bytes) <= turmoil_config.memory)
        return true;
    atomic_fetch_sub(&taken, taken_by(bytes));
    return false;
}

/* --- mappings --- */

static void map_block(const struct turmoil_thread *thread, struct turmoil_block *block)
{
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    TURMOIL_MUST(thread, cuMemAddressReserve(&block->address, block->mapped, 0, 0, 0));
    TURMOIL_MUST(thread, cuMemMap(block->address, block->mapped, 0, block->handle, 0));
    TURMOIL_MUST(thread, cuMemSetAccess(block->address, block->mapped, &access, 1));
}

static void unmap_block(const struct turmoil_thread *thread, const struct turmoil_block *block)
{
    TURMOIL_MUST(thread, cuMemUnmap(block->address, block->mapped));
    TURMOIL_MUST(thread, cuMemAddressFree(block->address, block->mapped));
}

static struct turmoil_block *pick_mapped(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);

    return block != NULL && block->way == TURMOIL_MAPPED ? block : NULL;
}

/* The same memory at another address. */
void turmoil_remap(struct turmoil_thread *thread)
{
    struct turmoil_block *block = pick_mapped(thread);

    if (block == NULL)
        return;
    turmoil_note(thread, "remap %#llx", (unsigned long long)block->address);
    turmoil_graphs_drop(thread, block);
    TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
    unmap_block(thread, block);
    map_block(thread, block);
    turmoil_check(thread, block, turmoil_kernel_ns(thread), block->stream);
}

/* For reading only, while it is read. */
void turmoil_protect(struct turmoil_thread *thread)
{
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    struct turmoil_block *block = pick_mapped(thread);

    if (block == NULL)
        return;
    turmoil_note(thread, "read-only %#llx", (unsigned long long)block->address);
    TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
    TURMOIL_MUST(thread, cuMemSetAccess(block->address, block->mapped, &access, 1));
    for (unsigned i = 0; i < 3; i++)
        turmoil_check(thread, block, turmoil_kernel_ns(thread), block->stream);
    TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    TURMOIL_MUST(thread, cuMemSetAccess(block->address, block->mapped, &access, 1));
}

/* The memory has a second address for a while, through which it is written. */
void turmoil_alias(struct turmoil_thread *thread)
{
    struct turmoil_block *block = pick_mapped(thread), second;

    if (block == NULL)
        return;
    second = *block;
    map_block(thread, &second);
    turmoil_note(thread, "alias of %#llx at %#llx", (unsigned long long)block->address,
                 (unsigned long long)second.address);
    block->base = turmoil_new_base(thread);
    block->step = 1;
    turmoil_fill(thread, second.address, block->bytes, block->base, turmoil_kernel_ns(thread),
                 block->stream);
    turmoil_check(thread, block, turmoil_kernel_ns(thread), block->stream);
    TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
    unmap_block(thread, &second);
}

/* --- pools --- */

void turmoil_pools_open(struct turmoil_thread *thread)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = prop.location};

    for (unsigned i = 0; i < TURMOIL_POOLS; i++)
        TURMOIL_MUST(thread, cuMemPoolCreate(&pools[i], &props));
}

void turmoil_pools_close(struct turmoil_thread *thread)
{
    for (unsigned i = 0; i < TURMOIL_POOLS; i++)
        TURMOIL_MUST(thread, cuMemPoolDestroy(pools[i]));
}

/* Settings and questions. */
void turmoil_pool(struct turmoil_thread *thread)
{
    CUmemoryPool pool = pools[turmoil_below(thread, TURMOIL_POOLS)];
    cuuint64_t bytes = turmoil_below(thread, 3) << 22, used = 0, reserved = 0;

    turmoil_note(thread, "pool keeps %llu", (unsigned long long)bytes);
    TURMOIL_MUST(thread,
                 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
    TURMOIL_MUST(thread,
                 cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    TURMOIL_MUST(thread, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    if (turmoil_below(thread, 2) == 0)
        TURMOIL_MUST(thread, cuMemPoolTrimTo(pool, bytes));
}

/* --- allocation --- */

static void get_memory(struct turmoil_thread *thread, struct turmoil_block *block)
{
    size_t granule = 0;

    switch (block->way) {
    case TURMOIL_PLAIN:
        TURMOIL_MUST(thread, cuMemAlloc(&block->address, block->bytes));
        break;
    case TURMOIL_ORDERED:
        TURMOIL_MUST(thread, cuMemAllocAsync(&block->address, block->bytes, block->stream));
        break;
    case TURMOIL_POOLED:
        TURMOIL_MUST(thread, cuMemAllocFromPoolAsync(
                                 &block->address, block->bytes,
                                 pools[turmoil_below(thread, TURMOIL_POOLS)], block->stream));
        break;
    default:
        TURMOIL_MUST(thread, cuMemGetAllocationGranularity(&granule, &prop,
                                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        block->mapped = (block->bytes + granule - 1) / granule * granule;
        TURMOIL_MUST(thread, cuMemCreate(&block->handle, block->mapped, &prop, 0));
        map_block(thread, block);
    }
}

static void allocate_on(struct turmoil_thread *thread, struct turmoil_block *block,
                        unsigned way, CUstream stream)
{
    const size_t bytes = draw_size(thread);

    if (!take_share(bytes))
        return;
    *block = (struct turmoil_block){.bytes = bytes, .way = way, .stream = stream};
    get_memory(thread, block);
    block->base = turmoil_new_base(thread);
    block->step = 1;
    turmoil_note(thread, "allocate %#llx %zu way %u write %llu on %p",
                 (unsigned long long)block->address, bytes, way,
                 (unsigned long long)(block->base >> 20 & 0xffffffffu), (void *)block->stream);
    turmoil_fill(thread, block->address, bytes, block->base, turmoil_kernel_ns(thread),
                 block->stream);
}

void turmoil_allocate(struct turmoil_thread *thread)
{
    struct turmoil_block *block = empty_place(thread);
    unsigned way = (unsigned)turmoil_below(thread, TURMOIL_WAYS);

    if (block == NULL)
        return;
    while ((thread->shape->ways >> way & 1) == 0)
        way = (way + 1) % TURMOIL_WAYS;
    allocate_on(thread, block, way, turmoil_stream(thread));
}

/* --- freeing --- */

void turmoil_dispose(struct turmoil_thread *thread, struct turmoil_block *block)
{
    turmoil_note(thread, "free %#llx way %u on %p", (unsigned long long)block->address,
                 (unsigned)block->way, (void *)block->stream);
    if (block->way == TURMOIL_MAPPED) {
        TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
        unmap_block(thread, block);
        TURMOIL_MUST(thread, cuMemRelease(block->handle));
    } else if (block->way == TURMOIL_PLAIN) {
        TURMOIL_MUST(thread, cuMemFree(block->address));
    } else if (turmoil_below(thread, 8) == 0) { /* cuMemFree waits for no work on such memory */
        TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
        TURMOIL_MUST(thread, cuMemFree(block->address));
    } else {
        TURMOIL_MUST(thread, cuMemFreeAsync(block->address, block->stream));
    }
    atomic_fetch_sub(&taken, taken_by(block->bytes));
    *block = (struct turmoil_block){0};
}

void turmoil_free(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);
    struct turmoil_slot *slot = NULL;

    if (block == NULL)
        return;
    turmoil_graphs_drop(thread, block);
    if (turmoil_below(thread, 3) == 0)
        turmoil_bring(thread, block, turmoil_stream(thread));
    if (turmoil_below(thread, 2) == 0)
        turmoil_check(thread, block, turmoil_kernel_ns(thread), block->stream);
    if (block->way == TURMOIL_PLAIN && turmoil_below(thread, 2) == 0)
        slot = turmoil_copy_out(thread, block);
    turmoil_dispose(thread, block);
    if (slot != NULL) /* cuMemFree has waited */
        turmoil_slot_end(thread, slot);
}

/* Freed with a kernel under way, and something of another size at once in the same stream. */
void turmoil_renew(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);
    enum turmoil_way way;
    CUstream stream;

    if (block == NULL)
        return;
    turmoil_graphs_drop(thread, block);
    way = block->way;
    stream = block->stream;
    turmoil_check(thread, block, turmoil_kernel_ns(thread), stream);
    turmoil_fill(thread, block->address, block->bytes, turmoil_new_base(thread),
                 turmoil_kernel_ns(thread), stream);
    turmoil_dispose(thread, block);
    allocate_on(thread, block, way, stream);
}

/* --- from thread to thread --- */

/* False: the exchange is full, and the block stays where it was. */
static bool give_block(struct turmoil_thread *thread, struct turmoil_block *block)
{
    bool given;

    turmoil_note(thread, "give %#llx", (unsigned long long)block->address);
    TURMOIL_MUST(thread, cuEventCreate(&block->ready, CU_EVENT_DISABLE_TIMING));
    TURMOIL_MUST(thread, cuEventRecord(block->ready, block->stream));
    pthread_mutex_lock(&exchange_lock);
    given = exchange_count < EXCHANGE;
    if (given)
        exchange[exchange_count++] = *block;
    pthread_mutex_unlock(&exchange_lock);
    if (given)
        *block = (struct turmoil_block){0};
    else
        TURMOIL_MUST(thread, cuEventDestroy(block->ready));
    return given;
}

/* Any block of the exchange; address 0: there is none. */
static struct turmoil_block take_block(struct turmoil_thread *thread)
{
    struct turmoil_block block = {0};

    pthread_mutex_lock(&exchange_lock);
    if (exchange_count != 0) {
        struct turmoil_block *from = &exchange[turmoil_below(thread, exchange_count)];

        block = *from;
        *from = exchange[--exchange_count];
    }
    pthread_mutex_unlock(&exchange_lock);
    return block;
}

static void wait_ready(struct turmoil_thread *thread, struct turmoil_block *block)
{
    block->stream = turmoil_stream(thread);
    TURMOIL_MUST(thread, cuStreamWaitEvent(block->stream, block->ready, 0));
    TURMOIL_MUST(thread, cuEventDestroy(block->ready));
    block->ready = NULL;
}

void turmoil_give(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);

    if (block == NULL)
        return;
    turmoil_graphs_drop(thread, block);
    give_block(thread, block);
}

/* The thread goes on with the block, or frees it, with another thread's work under way. */
void turmoil_take(struct turmoil_thread *thread)
{
    struct turmoil_block *place = empty_place(thread);
    struct turmoil_block block = take_block(thread);

    if (block.address == 0)
        return;
    turmoil_note(thread, "take %#llx", (unsigned long long)block.address);
    if (block.way == TURMOIL_PLAIN && turmoil_below(thread, 4) == 0) {
        TURMOIL_MUST(thread, cuEventDestroy(block.ready));
        turmoil_dispose(thread, &block);
        return;
    }
    wait_ready(thread, &block);
    if (place == NULL || turmoil_below(thread, 3) == 0)
        turmoil_dispose(thread, &block);
    else
        *place = block;
}

void turmoil_hand_back_all(struct turmoil_thread *thread)
{
    for (unsigned i = 0; i < TURMOIL_BLOCKS; i++)
        if (thread->blocks[i].address != 0 && !give_block(thread, &thread->blocks[i]))
            turmoil_dispose(thread, &thread->blocks[i]);
}

void turmoil_free_rest(struct turmoil_thread *thread)
{
    for (;;) {
        struct turmoil_block block = take_block(thread);

        if (block.address == 0)
            return;
        wait_ready(thread, &block);
        turmoil_check(thread, &block, 0, block.stream);
        turmoil_dispose(thread, &block);
    }
}
