/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil_ops.c: work on blocks: kernels, copies, sets, events, streams, modules; and the choice
 * of the next operation.
 *
 * Invariant: a slot whose event is not NULL has a copy on its way, and its words are not
 * touched until that has arrived.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/runtime/turmoil.h"

/* --- streams --- */

static const unsigned stream_flags[TURMOIL_STREAMS] = {
    0, 0, CU_STREAM_DEFAULT, CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING};

void turmoil_streams_open(struct turmoil_thread *thread)
{
    thread->streams[0] = CU_STREAM_LEGACY;
    thread->streams[1] = CU_STREAM_PER_THREAD;
    for (unsigned i = 2; i < TURMOIL_STREAMS; i++)
        TURMOIL_MUST(thread, cuStreamCreate(&thread->streams[i], stream_flags[i]));
    for (unsigned i = 0; i < 2; i++)
        TURMOIL_MUST(thread, cuStreamCreate(&thread->capture[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < TURMOIL_SLOTS; i++)
        TURMOIL_MUST(thread, cuMemHostAlloc((void **)&thread->slots[i].words, TURMOIL_SLOT, 0));
}

void turmoil_streams_close(struct turmoil_thread *thread)
{
    for (unsigned i = 0; i < TURMOIL_SLOTS; i++) {
        if (thread->slots[i].arrived != NULL) {
            TURMOIL_MUST(thread, cuEventSynchronize(thread->slots[i].arrived));
            turmoil_slot_end(thread, &thread->slots[i]);
        }
        TURMOIL_MUST(thread, cuMemFreeHost(thread->slots[i].words));
    }
    for (unsigned i = 2; i < TURMOIL_STREAMS; i++) /* with work under way */
        TURMOIL_MUST(thread, cuStreamDestroy(thread->streams[i]));
    for (unsigned i = 0; i < 2; i++)
        TURMOIL_MUST(thread, cuStreamDestroy(thread->capture[i]));
}

CUstream turmoil_stream(struct turmoil_thread *thread)
{
    const unsigned first = thread->shape->default_ones ? 0 : 1;

    return thread->streams[first + turmoil_below(thread, TURMOIL_STREAMS - first)];
}

/* A stream goes while its work is under way, and another one comes. */
static void op_stream(struct turmoil_thread *thread)
{
    const unsigned i = 2 + (unsigned)turmoil_below(thread, TURMOIL_STREAMS - 2);
    CUstream fresh;

    TURMOIL_MUST(thread, cuStreamCreate(&fresh, stream_flags[i]));
    for (unsigned k = 0; k < TURMOIL_BLOCKS; k++)
        if (thread->blocks[k].address != 0 && thread->blocks[k].stream == thread->streams[i])
            turmoil_bring(thread, &thread->blocks[k], fresh);
    turmoil_note(thread, "stream %p for %p", (void *)fresh, (void *)thread->streams[i]);
    TURMOIL_MUST(thread, cuStreamDestroy(thread->streams[i]));
    thread->streams[i] = fresh;
}

/* --- copies to the host --- */

void turmoil_slot_end(const struct turmoil_thread *thread, struct turmoil_slot *slot)
{
    turmoil_check_words(slot->words, slot);
    TURMOIL_MUST(thread, cuEventDestroy(slot->arrived));
    slot->arrived = NULL;
}

static struct turmoil_slot draw_part(struct turmoil_thread *thread,
                                     const struct turmoil_block *block)
{
    const uint64_t words = block->bytes / 8, most = TURMOIL_SLOT / 8;
    struct turmoil_slot part = {.base = block->base, .step = block->step};

    part.first = turmoil_below(thread, words);
    part.count = 1 + turmoil_below(thread, words - part.first);
    if (part.count > most)
        part.count = most;
    return part;
}

struct turmoil_slot *turmoil_copy_out(struct turmoil_thread *thread,
                                      const struct turmoil_block *block)
{
    struct turmoil_slot *slot = &thread->slots[turmoil_below(thread, TURMOIL_SLOTS)];
    struct turmoil_slot part = draw_part(thread, block);

    if (slot->arrived != NULL) {
        TURMOIL_MUST(thread, cuEventSynchronize(slot->arrived));
        turmoil_slot_end(thread, slot);
    }
    part.words = slot->words;
    *slot = part;
    memset(slot->words, 0x77, slot->count * 8);
    turmoil_note(thread, "copy out %#llx + %llu words, %llu",
                 (unsigned long long)block->address, (unsigned long long)slot->first,
                 (unsigned long long)slot->count);
    TURMOIL_MUST(thread, cuMemcpyDtoHAsync(slot->words, block->address + slot->first * 8,
                                           slot->count * 8, block->stream));
    TURMOIL_MUST(thread, cuEventCreate(&slot->arrived, CU_EVENT_DISABLE_TIMING));
    TURMOIL_MUST(thread, cuEventRecord(slot->arrived, block->stream));
    return slot;
}

static void op_copy_out(struct turmoil_thread *thread)
{
    const struct turmoil_block *block = turmoil_pick(thread);

    if (block != NULL)
        turmoil_copy_out(thread, block);
}

/* To pageable memory: the call waits for the copy. */
static void op_read(struct turmoil_thread *thread)
{
    const struct turmoil_block *block = turmoil_pick(thread);
    struct turmoil_slot part;
    uint64_t *words;

    if (block == NULL)
        return;
    part = draw_part(thread, block);
    words = malloc(part.count * 8);
    if (words == NULL)
        return;
    turmoil_note(thread, "read %#llx", (unsigned long long)block->address);
    TURMOIL_MUST(thread, cuMemcpyDtoHAsync(words, block->address + part.first * 8,
                                           part.count * 8, block->stream));
    TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
    turmoil_check_words(words, &part);
    free(words);
}

/* --- writing and checking --- */

static void op_fill(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);

    if (block == NULL)
        return;
    block->base = turmoil_new_base(thread);
    block->step = 1;
    turmoil_note(thread, "fill %#llx write %llu on %p", (unsigned long long)block->address,
                 (unsigned long long)(block->base >> 20 & 0xffffffffu), (void *)block->stream);
    turmoil_fill(thread, block->address, block->bytes, block->base, turmoil_kernel_ns(thread),
                 block->stream);
}

static void op_check(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);

    if (block == NULL)
        return;
    turmoil_bring(thread, block, turmoil_stream(thread));
    turmoil_note(thread, "check %#llx on %p", (unsigned long long)block->address,
                 (void *)block->stream);
    turmoil_check(thread, block, turmoil_kernel_ns(thread), block->stream);
}

/* to: smaller or of the same size */
static bool pick_two(struct turmoil_thread *thread, struct turmoil_block **to,
                     struct turmoil_block **from)
{
    struct turmoil_block *one = turmoil_pick(thread), *other = turmoil_pick(thread);

    if (one == NULL || other == NULL || one == other)
        return false;
    *to = one->bytes <= other->bytes ? one : other;
    *from = *to == one ? other : one;
    turmoil_bring(thread, *to, turmoil_stream(thread));
    turmoil_bring(thread, *from, (*to)->stream);
    return true;
}

static void op_chain(struct turmoil_thread *thread)
{
    struct turmoil_block *to, *from;
    uint64_t base;

    if (!pick_two(thread, &to, &from))
        return;
    base = turmoil_new_base(thread);
    turmoil_note(thread, "chain %#llx from %#llx on %p", (unsigned long long)to->address,
                 (unsigned long long)from->address, (void *)to->stream);
    turmoil_chain(thread, to, from, base, turmoil_kernel_ns(thread));
    to->base = base;
    to->step = 1;
}

static void op_copy(struct turmoil_thread *thread)
{
    struct turmoil_block *to, *from;

    if (!pick_two(thread, &to, &from))
        return;
    turmoil_note(thread, "copy %#llx from %#llx on %p", (unsigned long long)to->address,
                 (unsigned long long)from->address, (void *)to->stream);
    TURMOIL_MUST(thread, cuMemcpyDtoDAsync(to->address, from->address, to->bytes, to->stream));
    to->base = from->base;
    to->step = from->step;
}

static void op_set(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);
    const uint64_t value = turmoil_below(thread, UINT32_MAX);

    if (block == NULL)
        return;
    turmoil_note(thread, "set %#llx", (unsigned long long)block->address);
    TURMOIL_MUST(thread, cuMemsetD32Async(block->address, (unsigned)value, block->bytes / 4,
                                          block->stream));
    block->base = value << 32 | value;
    block->step = 0;
}

/* The whole of a small block, from pageable memory, which may be gone after the call. */
static void op_write(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);
    uint64_t *words;

    if (block == NULL || block->bytes > 2 * TURMOIL_SLOT)
        return;
    words = malloc(block->bytes);
    if (words == NULL)
        return;
    block->base = turmoil_new_base(thread);
    block->step = 1;
    for (uint64_t i = 0; i < block->bytes / 8; i++)
        words[i] = block->base + i % TURMOIL_CYCLE;
    turmoil_note(thread, "write %#llx write %llu", (unsigned long long)block->address,
                 (unsigned long long)(block->base >> 20 & 0xffffffffu));
    TURMOIL_MUST(thread, cuMemcpyHtoDAsync(block->address, words, block->bytes, block->stream));
    memset(words, 0x66, block->bytes);
    free(words);
}

/* --- the rest --- */

static void op_event(struct turmoil_thread *thread)
{
    const struct turmoil_block *block = turmoil_pick(thread);
    CUevent event;
    CUresult result;

    if (block == NULL)
        return;
    TURMOIL_MUST(thread, cuEventCreate(&event, CU_EVENT_DEFAULT));
    TURMOIL_MUST(thread, cuEventRecord(event, block->stream));
    result = cuEventQuery(event);
    if (result != CUDA_ERROR_NOT_READY)
        turmoil_must(thread, result, "cuEventQuery");
    if (turmoil_below(thread, 2) == 0)
        TURMOIL_MUST(thread, cuEventSynchronize(event));
    TURMOIL_MUST(thread, cuEventDestroy(event));
}

static void op_wait(struct turmoil_thread *thread)
{
    TURMOIL_MUST(thread, cuStreamSynchronize(turmoil_stream(thread)));
}

static void op_module(struct turmoil_thread *thread)
{
    const struct turmoil_block *block = turmoil_pick(thread);

    if (block != NULL)
        turmoil_module_once(thread, block);
}

static void op_ask(struct turmoil_thread *thread)
{
    const struct turmoil_block *block = turmoil_pick(thread);
    CUdeviceptr base = 0;
    size_t bytes = 0, free_bytes, total;

    TURMOIL_MUST(thread, cuMemGetInfo(&free_bytes, &total));
    if (block == NULL)
        return;
    TURMOIL_MUST(thread,
                 cuMemGetAddressRange(&base, &bytes,
                                      block->address + turmoil_below(thread, block->bytes)));
    if (base != block->address || bytes != (block->mapped ? block->mapped : block->bytes))
        turmoil_fail("turmoil: cuMemGetAddressRange says %#llx %zu of %#llx %zu",
                     (unsigned long long)base, bytes, (unsigned long long)block->address,
                     block->bytes);
}

static void op_pause(struct turmoil_thread *thread)
{
    const struct timespec pause = {0, (long)turmoil_below(thread, 1000000)};

    nanosleep(&pause, NULL);
}

static const struct operation {
    const char *name;
    void (*run)(struct turmoil_thread *thread);
    unsigned weight;
} operations[] = {{"allocate", turmoil_allocate, 8},
                  {"free", turmoil_free, 5},
                  {"renew", turmoil_renew, 5},
                  {"give", turmoil_give, 2},
                  {"take", turmoil_take, 2},
                  {"fill", op_fill, 4},
                  {"check", op_check, 4},
                  {"chain", op_chain, 3},
                  {"copy", op_copy, 2},
                  {"set", op_set, 1},
                  {"write", op_write, 2},
                  {"read", op_read, 1},
                  {"out", op_copy_out, 2},
                  {"capture", turmoil_capture, 2},
                  {"replay", turmoil_replay, 2},
                  {"update", turmoil_update, 1},
                  {"remap", turmoil_remap, 1},
                  {"protect", turmoil_protect, 1},
                  {"alias", turmoil_alias, 1},
                  {"pool", turmoil_pool, 1},
                  {"event", op_event, 1},
                  {"stream", op_stream, 1},
                  {"wait", op_wait, 1},
                  {"module", op_module, 1},
                  {"ask", op_ask, 1},
                  {"pause", op_pause, 1}};
#define OPERATIONS (sizeof operations / sizeof operations[0])

static bool is_left_out(const char *name)
{
    const char *at = turmoil_config.without;
    const size_t length = strlen(name);

    while ((at = strstr(at, name)) != NULL) {
        if ((at == turmoil_config.without || at[-1] == ',') &&
            (at[length] == '\0' || at[length] == ','))
            return true;
        at += length;
    }
    return false;
}

void turmoil_step(struct turmoil_thread *thread)
{
    unsigned sum = 0, i = 0;
    uint64_t at;

    for (unsigned k = 0; k < OPERATIONS; k++)
        sum += operations[k].weight;
    at = turmoil_below(thread, sum);
    for (; at >= operations[i].weight; i++)
        at -= operations[i].weight;
    thread->step++;
    if (!is_left_out(operations[i].name))
        operations[i].run(thread);
    turmoil_look();
}
