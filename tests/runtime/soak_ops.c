/* SPDX-License-Identifier: Apache-2.0
 *
 * soak_ops.c: the operations of soak.c and their effect on the model.
 *
 * Everything of a thread goes through its one stream, or waits for it first, so the shadow is
 * changed when the call is made and compared when the stream has run dry. A call that fails
 * (faulty runs) leaves the shadow alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/random.h"
#include "tests/runtime/soak.h"

struct span {
    struct soak_block *block;
    size_t from, bytes;
};

static bool pick_span(struct soak_thread *thread, struct span *span)
{
    span->block = soak_pick(thread);
    if (span->block == NULL)
        return false;
    span->from = soak_below(thread, span->block->bytes);
    span->bytes = 1 + soak_below(thread, span->block->bytes - span->from);
    if (thread->config->alike && soak_below(thread, 4) == 0)
        *span = (struct span){span->block, 0, span->block->bytes};
    else if (thread->config->alike)
        span->bytes = 1;
    return true;
}

static void report_wrong(struct soak_thread *thread, const struct soak_block *block,
                         size_t from, size_t bytes)
{
    size_t i = from;

    while (i < from + bytes - 1 && thread->scratch[i - from] == block->shadow[i])
        i++;
    fprintf(stderr,
            "soak[%d] seed %llu operation %llu: WRONG BYTE in block %td (%zu bytes at %#llx) "
            "byte %zu: is %#x, "
            "must be %#x\n",
            (int)getpid(), (unsigned long long)thread->config->seed,
            (unsigned long long)thread->operations, block - thread->blocks, block->bytes,
            (unsigned long long)block->device, i, thread->scratch[i - from], block->shadow[i]);
    _exit(1);
}

bool soak_wait_dry(struct soak_thread *thread, CUstream stream)
{
    for (unsigned i = 0; i < 50; i++) /* a failed wait says nothing: wait again */
        if (soak_ok(thread, cuStreamSynchronize(stream), "cuStreamSynchronize"))
            return true;
    return false;
}

static bool wait_dry(struct soak_thread *thread)
{
    return soak_wait_dry(thread, thread->stream);
}

static void check_span(struct soak_thread *thread, const struct span *span)
{
    if (!wait_dry(thread))
        return;
    if (!soak_ok(thread,
                 cuMemcpyDtoH(thread->scratch, span->block->device + span->from, span->bytes),
                 "cuMemcpyDtoH"))
        return;
    thread->checked_bytes += span->bytes;
    if (memcmp(thread->scratch, span->block->shadow + span->from, span->bytes) != 0)
        report_wrong(thread, span->block, span->from, span->bytes);
}

/* Programs that are alike have few, so that they have blocks that are the same, or nearly. */
static uint64_t any_value(struct soak_thread *thread)
{
    return thread->config->alike ? 0x9e3779b97f4a7c15u * (soak_below(thread, 4) / 3)
                                 : random_next(&thread->random);
}

static void random_bytes(struct soak_thread *thread, uint8_t *to, size_t bytes)
{
    const uint64_t value = any_value(thread);

    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)((value >> (i % 7 * 8)) + (i >> 8));
}

/* --- allocation
 * ------------------------------------------------------------------------------------------------------
 */

/* in one of the ways there are */
static bool get_memory(struct soak_thread *thread, struct soak_block *block, size_t bytes)
{
    const size_t way = soak_below(thread, 9);

    if (way < 2 && !thread->config->faulty)
        return soak_vmm_allocate(thread, block, bytes);
    if (way < 5)
        return soak_pool_allocate(thread, block, bytes);
    if (way == 8) {
        block->managed = true;
        return soak_ok(thread, cuMemAllocManaged(&block->device, bytes, CU_MEM_ATTACH_GLOBAL),
                       "cuMemAllocManaged");
    }
    return soak_ok(thread, cuMemAlloc(&block->device, bytes), "cuMemAlloc");
}

/* its first contents: in stream order where it is only there in stream order */
static CUresult fill_block(struct soak_thread *thread, const struct soak_block *block)
{
    return block->ordered
               ? cuMemcpyHtoDAsync(block->device, block->shadow, block->bytes, thread->stream)
               : cuMemcpyHtoD(block->device, block->shadow, block->bytes);
}

static void op_allocate(struct soak_thread *thread)
{
    struct soak_block *block = &thread->blocks[soak_below(thread, SOAK_BLOCKS)];
    const size_t scale = (size_t)1 << soak_below(thread, 24);
    size_t bytes =
        1 +
        soak_below(thread, scale < thread->config->largest ? scale : thread->config->largest);
    CUdeviceptr base = 0;
    size_t size = 0;

    if (thread->config->alike ||
        soak_below(thread, 3) == 0) /* the same few sizes often: freed memory is used again */
        bytes = (2u << 20) * (1 + soak_below(thread, 2));
    if (block->device != 0 || !soak_take(bytes))
        return;
    if (!get_memory(thread, block, bytes)) {
        *block = (struct soak_block){0};
        soak_give(bytes);
        return;
    }
    block->bytes = bytes;
    block->shadow = malloc(bytes);
    if (block->shadow == NULL)
        _exit(3);
    random_bytes(thread, thread->scratch, bytes);
    memcpy(block->shadow, thread->scratch, bytes);
    for (unsigned i = 0; fill_block(thread, block) != CUDA_SUCCESS; i++)
        if (!thread->config->faulty || i == 50) { /* faults come and go: this one is for ever */
            fprintf(stderr, "soak: cuMemcpyHtoD to a new block fails for ever: %d\n",
                    (int)cuCtxSynchronize());
            _exit(1);
        }
    if (soak_ok(thread, cuMemGetAddressRange(&base, &size, block->device + bytes / 2),
                "cuMemGetAddressRange") &&
        (base != block->device || size != (block->mapped != 0 ? block->mapped : bytes))) {
        fprintf(stderr, "soak: cuMemGetAddressRange says %#llx %zu of %#llx %zu\n",
                (unsigned long long)base, size, (unsigned long long)block->device, bytes);
        _exit(1);
    }
}

static void op_free(struct soak_thread *thread)
{
    struct soak_block *block = soak_pick(thread);
    bool in_stream_order = soak_below(thread, 3) == 0;
    CUresult result = CUDA_SUCCESS;

    if (block == NULL || (thread->config->alike && soak_below(thread, 16) != 0))
        return; /* of programs that are alike it moves many times */
    in_stream_order = in_stream_order && !block->managed;
    if (block == &thread->blocks[thread->graph.block])
        soak_graph_drop(thread);
    if (soak_below(thread, 2) == 0)
        check_span(thread, &(struct span){block, 0, block->bytes});
    if (block->mapped != 0) {
        soak_vmm_free(thread, block);
        soak_give(block->bytes);
        free(block->shadow);
        *block = (struct soak_block){0};
        return;
    }
    if (block->ordered && soak_below(thread, 4) != 0) {
        soak_pool_free(thread, block);
        soak_give(block->bytes);
        free(block->shadow);
        *block = (struct soak_block){0};
        return;
    }
    result = in_stream_order ? cuMemFreeAsync(block->device, thread->stream)
                             : cuMemFree(block->device);
    if (block->pooled && result == CUDA_SUCCESS)
        thread->pool_used -= block->bytes;
    soak_ok(thread, result, in_stream_order ? "cuMemFreeAsync" : "cuMemFree");
    if (!in_stream_order && result == CUDA_SUCCESS && soak_below(thread, 8) == 0 &&
        thread->config->threads == 1 && cuMemFree(block->device) == CUDA_SUCCESS) {
        fprintf(stderr, "soak: a block could be freed twice\n");
        _exit(1);
    }
    soak_give(block->bytes);
    free(block->shadow);
    *block = (struct soak_block){0};
}

/* --- writing
 * ---------------------------------------------------------------------------------------------------------
 */

static void op_set(struct soak_thread *thread)
{
    const uint8_t value = (uint8_t)any_value(thread);
    struct span span;

    if (pick_span(thread, &span) && soak_ok(thread,
                                            cuMemsetD8Async(span.block->device + span.from,
                                                            value, span.bytes, thread->stream),
                                            "cuMemsetD8Async"))
        memset(span.block->shadow + span.from, value, span.bytes);
}

static void op_write(struct soak_thread *thread)
{
    struct span span;

    if (!pick_span(thread, &span))
        return;
    random_bytes(thread, thread->scratch, span.bytes);
    if (soak_ok(thread,
                cuMemcpyHtoDAsync(span.block->device + span.from, thread->scratch, span.bytes,
                                  thread->stream),
                "cuMemcpyHtoDAsync"))
        memcpy(span.block->shadow + span.from, thread->scratch, span.bytes);
}

static void op_copy(struct soak_thread *thread)
{
    struct span to;
    struct soak_block *from = soak_pick(thread);
    size_t at, bytes;

    if (from == NULL || !pick_span(thread, &to) || from == to.block)
        return;
    bytes = to.bytes < from->bytes ? to.bytes : from->bytes;
    at = soak_below(thread, from->bytes - bytes + 1);
    if (soak_ok(thread,
                cuMemcpyDtoDAsync(to.block->device + to.from, from->device + at, bytes,
                                  thread->stream),
                "cuMemcpyDtoDAsync"))
        memcpy(to.block->shadow + to.from, from->shadow + at, bytes);
}

static void op_launch(struct soak_thread *thread)
{
    uint8_t key = (uint8_t)any_value(thread);
    struct span span;
    CUdeviceptr address;
    uint64_t count;
    void *params[] = {&address, &count, &key};

    if (!pick_span(thread, &span))
        return;
    address = span.block->device + span.from;
    count = span.bytes;
    if (soak_ok(thread,
                cuLaunchKernel(thread->mix, 1, 1, 1, 32, 1, 1, 0, thread->stream, params, NULL),
                "cuLaunchKernel"))
        for (size_t i = 0; i < span.bytes; i++)
            span.block->shadow[span.from + i] ^= key;
}

/* --- the rest
 * --------------------------------------------------------------------------------------------------------
 */

static void op_check(struct soak_thread *thread)
{
    struct span span;

    if (pick_span(thread, &span))
        check_span(thread, &span);
}

static void op_move(struct soak_thread *thread)
{
    struct soak_block *block = soak_pick(thread);

    if (block == NULL || block->mapped == 0)
        return;
    if (block == &thread->blocks[thread->graph.block])
        soak_graph_drop(thread);
    soak_vmm_move(thread, block);
    check_span(thread, &(struct span){block, 0, block->bytes});
}

static void CUDA_CB host_call(void *argument)
{
    struct soak_thread *thread = argument;

    atomic_fetch_add(&thread->host_calls, 1);
}

static void op_host(struct soak_thread *thread)
{
    if (soak_ok(thread, cuLaunchHostFunc(thread->stream, host_call, thread),
                "cuLaunchHostFunc"))
        thread->host_calls_made++;
}

static void op_pool(struct soak_thread *thread)
{
    soak_pool_look(thread);
}

/* What programs do with managed memory beside using it: prefetches, advice, and reading it with the
 * processor, wherever it is. */
static void op_managed(struct soak_thread *thread)
{
    static const CUmem_advise advice[] = {
        CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION};
    const CUmemLocation card = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)thread->device},
                        host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    struct soak_block *block = soak_pick(thread);
    const size_t what = soak_below(thread, 3);

    if (block == NULL || !block->managed)
        return;
    if (what == 0) {
        soak_ok(thread,
                cuMemPrefetchAsync(block->device, block->bytes,
                                   soak_below(thread, 2) == 0 ? card : host, 0, thread->stream),
                "cuMemPrefetchAsync");
    } else if (what == 1) {
        soak_ok(thread,
                cuMemAdvise(block->device, block->bytes, advice[soak_below(thread, 4)],
                            soak_below(thread, 2) == 0 ? card : host),
                "cuMemAdvise");
    } else if (wait_dry(thread)) {
        memcpy(thread->scratch, (const void *)block->device, block->bytes);
        if (memcmp(thread->scratch, block->shadow, block->bytes) != 0)
            report_wrong(thread, block, 0, block->bytes);
    }
}

static void op_pause(struct soak_thread *thread)
{
    const struct timespec pause = {0, (long)soak_below(thread, 3000000)};

    nanosleep(&pause, NULL);
}

void soak_run(struct soak_thread *thread, uint64_t until_ns)
{
    static void (*const operations[])(struct soak_thread *) = {
        op_allocate, op_allocate, op_free,   op_set,    op_set,    op_write,
        op_write,    op_copy,     op_copy,   op_launch, op_launch, soak_graph_step,
        op_check,    op_check,    op_check,  op_move,   op_pause,  op_host,
        op_pool,     op_managed,  op_managed};

    thread->scratch = malloc(thread->config->largest);
    if (thread->scratch == NULL || cuCtxSetCurrent(thread->context) != CUDA_SUCCESS)
        _exit(3);
    for (unsigned i = 0; thread->stream == NULL && i < 50; i++) /* faults come and go */
        if (!soak_ok(thread, cuStreamCreate(&thread->stream, CU_STREAM_NON_BLOCKING),
                     "cuStreamCreate"))
            thread->stream = NULL;
    if (thread->stream == NULL)
        _exit(3);
    soak_pool_begin(thread);
    while (soak_now() < until_ns) {
        thread->operations++;
        operations[soak_below(thread, sizeof operations / sizeof operations[0])](thread);
        if (thread->config->pause_ms != 0 && soak_below(thread, 10) == 0 && wait_dry(thread))
            usleep(thread->config->pause_ms * (500 + (unsigned)soak_below(thread, 1000)));
    }
    if (wait_dry(thread) && atomic_load(&thread->host_calls) != thread->host_calls_made) {
        fprintf(stderr, "soak: %llu host calls of %llu\n",
                (unsigned long long)atomic_load(&thread->host_calls),
                (unsigned long long)thread->host_calls_made);
        _exit(1);
    }
    for (unsigned i = 0; i < SOAK_BLOCKS; i++) {
        struct soak_block *block = &thread->blocks[i];

        if (block->device == 0)
            continue;
        check_span(thread, &(struct span){block, 0, block->bytes});
        soak_give(block->bytes);
        free(block->shadow);
    }
    soak_pool_end(thread);
    free(thread->scratch);
}
