/* SPDX-License-Identifier: Apache-2.0
 *
 * soak.h: what soak.c (options, threads), soak_ops.c (operations on device memory and its
 * model), soak_graph.c, soak_vmm.c and soak_pool.c (other ways to have such memory) share.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "tests/runtime/random.h"

#define SOAK_BLOCKS  24
#define SOAK_DEVICES 4
#define SOAK_STREAMS 2 /* of a thread, besides its main one */

/* a device allocation and what its bytes must be, once the stream has run dry */
struct soak_block {
    CUdeviceptr device; /* 0: free */
    size_t bytes;
    uint8_t *shadow;
    size_t mapped;                       /* bytes of its own VMM mapping; 0: cuMemAlloc's */
    CUmemGenericAllocationHandle handle; /* of that; 0: released already */
    bool ordered;                        /* from cuMemAllocAsync … */
    bool managed;                        /* by cuMemAllocManaged */
    bool pooled;                         /* … and the thread's own pool */
};

struct soak_graph {
    CUgraphExec exec; /* NULL: none */
    unsigned block;   /* it fills the first bytes of this block */
    size_t bytes;
    uint8_t value;
};

struct soak_config {
    uint64_t seed;
    double seconds;
    unsigned threads;
    size_t memory;  /* bytes of device memory for the process */
    size_t largest; /* bytes of the largest block */
    unsigned devices;
    unsigned pause_ms; /* between bursts of operations; 0: none */
    bool alike;        /* programs write the same bytes, and mostly to whole blocks */
    bool faulty; /* driver calls are made to fail: a failed call must have had no effect */
};

struct soak_thread {
    const struct soak_config *config;
    unsigned device;
    CUcontext context;
    CUfunction mix;
    CUstream stream;
    uint64_t random;
    struct soak_block blocks[SOAK_BLOCKS];
    struct soak_graph graph;
    uint8_t *scratch; /* largest bytes */
    CUstream others[SOAK_STREAMS];
    CUevent event;
    CUmemoryPool pool;
    uint64_t pool_used; /* bytes */
    _Atomic(uint64_t) host_calls;
    uint64_t host_calls_made;
    uint64_t operations, checked_bytes, failed_calls;
};

/* Random operations until the time is over, then a check of everything. Exits the process with
 * 1 and a line on stderr at the first wrong byte or unexpected result. */
void soak_run(struct soak_thread *thread, uint64_t until_ns);

uint64_t soak_now(void);

static inline size_t soak_below(struct soak_thread *thread, size_t limit)
{
    return (size_t)random_below(&thread->random, limit);
}

/* One of the blocks; NULL: it is free. */
static inline struct soak_block *soak_pick(struct soak_thread *thread)
{
    struct soak_block *block = &thread->blocks[soak_below(thread, SOAK_BLOCKS)];

    return block->device != 0 ? block : NULL;
}

/* Takes bytes from the process's share; false: it is used up. */
bool soak_take(size_t bytes);
void soak_give(size_t bytes);

/* A CUDA call in a faulty run may fail; in others it ends the process. True: it succeeded. */
bool soak_ok(struct soak_thread *thread, CUresult result, const char *what);

/* Blocks of the program's own VMM memory (soak_vmm.c). The stream is waited for where it must
 * be. */
bool soak_vmm_allocate(struct soak_thread *thread, struct soak_block *block, size_t bytes);
void soak_vmm_free(struct soak_thread *thread, struct soak_block *block);
void soak_vmm_move(struct soak_thread *thread, struct soak_block *block);

/* Memory in stream order, on several streams and two pools (soak_pool.c). Between them and the
 * main stream there is an event each time a block changes hands. */
void soak_pool_begin(struct soak_thread *thread);
bool soak_pool_allocate(struct soak_thread *thread, struct soak_block *block, size_t bytes);
bool soak_pool_free(struct soak_thread *thread, const struct soak_block *block);
void soak_pool_look(struct soak_thread *thread);
void soak_pool_end(struct soak_thread *thread);

/* Captures a graph, launches it, or drops it; it fills the first bytes of a block (soak_graph.c). */
void soak_graph_step(struct soak_thread *thread);
void soak_graph_drop(struct soak_thread *thread);

/* Waits until the stream has run dry; false: the driver does not say so (faulty runs). */
bool soak_wait_dry(struct soak_thread *thread, CUstream stream);
