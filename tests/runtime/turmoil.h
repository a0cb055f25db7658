/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil.h: shared by turmoil.c (options, seeds, the life of threads), turmoil_card.c (kernels,
 * reports), turmoil_blocks.c (memory comes and goes), turmoil_ops.c (work on it) and
 * turmoil_graph.c (captured work).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "tests/runtime/random.h"

#define TURMOIL_THREADS 8
#define TURMOIL_BLOCKS  10 /* of a thread */
#define TURMOIL_STREAMS 6  /* of a thread: the default ones, two blocking, two non-blocking */
#define TURMOIL_SLOTS   6  /* of a thread: copies on their way to the host */
#define TURMOIL_REPLAYS 2  /* of a thread: executable graphs */
#define TURMOIL_POOLS   2  /* of a seed, beside the default pool */
#define TURMOIL_SLOT    ((size_t)64 << 10) /* bytes */

/* Word i holds base + (i % TURMOIL_CYCLE) * step. A kernel's writes have step 1, and the bits of
 * base above the cycle's name the thread and the number of the write. */
#define TURMOIL_CYCLE ((uint64_t)1 << 20)

/* ways to have memory */
enum turmoil_way {
    TURMOIL_PLAIN,
    TURMOIL_ORDERED,
    TURMOIL_POOLED,
    TURMOIL_MAPPED,
    TURMOIL_WAYS
};

struct turmoil_block {
    CUdeviceptr address; /* 0: there is none */
    size_t bytes;        /* a multiple of 8 */
    enum turmoil_way way;
    CUstream stream; /* of the newest work on it */
    CUevent ready;   /* instead, while no thread has it */
    uint64_t base, step;
    size_t mapped; /* bytes of the mapping */
    CUmemGenericAllocationHandle handle;
};

/* drawn from the seed */
struct turmoil_shape {
    uint64_t seed;
    unsigned threads, lives, steps;
    unsigned sizes;    /* how sizes are drawn */
    unsigned ways;     /* bits of enum turmoil_way */
    uint64_t longest;  /* kernel, ns */
    bool graphs;       /* some work is captured */
    bool default_ones; /* default streams are used as well */
};

struct turmoil_config {
    uint64_t first, seeds;
    double seconds;          /* no new seed begins after them; 0: no limit */
    size_t memory;           /* bytes of all blocks */
    unsigned threads, steps; /* 0: by the seed */
    unsigned kernel_us;      /* the longest kernel; 0: by the seed */
    const char *without;     /* names of operations that are left out */
};
extern struct turmoil_config turmoil_config;

/* a copy that is on its way to the host, and its bytes' pattern */
struct turmoil_slot {
    uint64_t *words; /* page-locked */
    uint64_t first, count, base, step;
    CUevent arrived; /* NULL: nothing is on its way */
};

struct turmoil_replay {
    CUgraphExec exec; /* NULL: none */
    struct turmoil_block *block;
    unsigned bumps;
};

struct turmoil_thread {
    const struct turmoil_shape *shape;
    unsigned number;
    uint64_t random, writes, step;
    CUstream streams[TURMOIL_STREAMS];
    CUstream capture[2]; /* two more, for captures */
    struct turmoil_block blocks[TURMOIL_BLOCKS];
    struct turmoil_slot slots[TURMOIL_SLOTS];
    struct turmoil_replay replays[TURMOIL_REPLAYS];
};

static inline uint64_t turmoil_below(struct turmoil_thread *thread, uint64_t limit)
{
    return random_below(&thread->random, limit);
}

/* The card (turmoil_card.c). The first wrong word or failed call ends the process with 1, after
 * a line about it and the newest notes. */
void turmoil_card_open(void);
void turmoil_thread_enter(bool relaxed);
void turmoil_note(const struct turmoil_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void turmoil_must(const struct turmoil_thread *thread, CUresult result, const char *call);
#define TURMOIL_MUST(thread, call) turmoil_must(thread, call, #call)
void turmoil_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Fails if a kernel has reported a wrong word. */
void turmoil_look(void);
void turmoil_check_words(const uint64_t *words, const struct turmoil_slot *slot);
uint64_t turmoil_kernel_ns(struct turmoil_thread *thread);
/* Kernels: fill writes the pattern and checks it, check checks it, chain checks one block and
 * fills the other, bump adds 1 to each word. All take `ns`. */
void turmoil_fill(const struct turmoil_thread *thread, CUdeviceptr address, size_t bytes,
                  uint64_t base, uint64_t ns, CUstream stream);
void turmoil_check(const struct turmoil_thread *thread, const struct turmoil_block *block,
                   uint64_t ns, CUstream stream);
void turmoil_chain(const struct turmoil_thread *thread, const struct turmoil_block *to,
                   const struct turmoil_block *from, uint64_t base, uint64_t ns);
void turmoil_bump(const struct turmoil_thread *thread, const struct turmoil_block *block,
                  uint64_t ns, CUstream stream);
/* Loads the kernels once more, launches one of them on the block, and unloads them. */
void turmoil_module_once(const struct turmoil_thread *thread,
                         const struct turmoil_block *block);

/* Memory (turmoil_blocks.c). */
void turmoil_pools_open(struct turmoil_thread *thread);
void turmoil_pools_close(struct turmoil_thread *thread);
void turmoil_allocate(struct turmoil_thread *thread);
void turmoil_free(struct turmoil_thread *thread);
void turmoil_renew(struct turmoil_thread *thread);
void turmoil_give(struct turmoil_thread *thread);
void turmoil_take(struct turmoil_thread *thread);
void turmoil_remap(struct turmoil_thread *thread);
void turmoil_protect(struct turmoil_thread *thread);
void turmoil_alias(struct turmoil_thread *thread);
void turmoil_pool(struct turmoil_thread *thread);
void turmoil_hand_back_all(struct turmoil_thread *thread);
/* Checks and frees everything that no thread has. */
void turmoil_free_rest(struct turmoil_thread *thread);
void turmoil_dispose(struct turmoil_thread *thread, struct turmoil_block *block);
/* One of the thread's blocks; NULL: that place is empty. */
struct turmoil_block *turmoil_pick(struct turmoil_thread *thread);
/* Work on the block goes to this stream from now on, behind all that was before. */
void turmoil_bring(const struct turmoil_thread *thread, struct turmoil_block *block,
                   CUstream stream);
void turmoil_behind(const struct turmoil_thread *thread, CUstream before, CUstream stream);
uint64_t turmoil_new_base(struct turmoil_thread *thread);

/* Work (turmoil_ops.c). */
void turmoil_streams_open(struct turmoil_thread *thread);
void turmoil_streams_close(struct turmoil_thread *thread);
CUstream turmoil_stream(struct turmoil_thread *thread);
void turmoil_step(struct turmoil_thread *thread);
/* A copy of a part of the block to the host, in its stream. */
struct turmoil_slot *turmoil_copy_out(struct turmoil_thread *thread,
                                      const struct turmoil_block *block);
/* Checks a copy that has arrived. */
void turmoil_slot_end(const struct turmoil_thread *thread, struct turmoil_slot *slot);

/* Graphs (turmoil_graph.c). */
void turmoil_capture(struct turmoil_thread *thread);
void turmoil_replay(struct turmoil_thread *thread);
void turmoil_update(struct turmoil_thread *thread);
/* Drops executable graphs of this block; NULL: all. */
void turmoil_graphs_drop(struct turmoil_thread *thread, const struct turmoil_block *block);
