/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.h: what the parts of the simulated driver share.
 *
 * Locking: one lock, sim.lock. sim_begin() takes it and sim_end() drops it, so the body of
 * every cu* function runs under it; who waits does so on sim.progress. Stream workers hold it
 * except while an operation runs. Lock order: sim.lock, then the locks of a card (ledger.h).
 * Operations in flight never take the lock of a card and sim.lock in the other order.
 */
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/simcuda/ledger.h"
#include "tests/simcuda/standin.h"
#include "tests/simcuda/prototypes.h"

#define SIM_PAGE         (2ull * 1024 * 1024) /* VMM granularity */
#define SIM_POISON_FRESH 0xD5
#define SIM_POISON_FREED 0xDE
#define SIM_STACK_DEPTH  64

/* -- the driver and its calls (driver.c, fault.c) -- */

struct sim_device {
    struct sim_card *card;
    unsigned client; /* our entry on the card */
    int memory_fd;   /* memfd that backs this process's memory on the card; offsets are never
                        reused */
    uint64_t memory_end;
    struct sim_context *primary;
    unsigned primary_refs, primary_flags;
    struct sim_pool *pool; /* current pool; the default pool is &default_pool */
    struct sim_pool *default_pool;
};

struct sim_driver {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* an operation has finished, a stream has gone */
    enum { SIM_COLD, SIM_READY, SIM_FORKED } state;
    unsigned device_count;
    struct sim_device device[SIM_CARDS_MAX];
    struct sim_context *contexts;
    struct sim_capture *captures;
    uint64_t next_id;
    bool poison;
    int pid;
    struct sim_client *own; /* our entry on the lowest of our cards: who checkpoints us looks
                               there; it stays the same when we change cards */
    uint32_t moves;         /* restores that sim.device follows */
};
extern struct sim_driver sim;

struct sim_stats {
    uint64_t to_device_bytes, to_host_bytes, on_device_bytes, launches, graph_launches, calls,
        failures, managed_faults, managed_remote, managed_evicted, host_chunk_bytes, memory_ns;
    uint64_t memory_bytes, memory_peak;
};
extern struct sim_stats sim_stats; /* relaxed atomics; memory_* under sim.lock */

/* For tests: memory_ns as it is now. */
uint64_t simcuda_memory_ns(void) __attribute__((visibility("default")));

static inline void sim_count(uint64_t *counter, uint64_t more)
{
    __atomic_fetch_add(counter, more, __ATOMIC_RELAXED);
}

struct sim_thread {
    struct sim_context *stack[SIM_STACK_DEPTH];
    unsigned depth;
    CUstreamCaptureMode capture_mode;
    bool registered; /* its end is noticed */
};
extern __thread struct sim_thread sim_thread;

struct sim_call {
    const char *name;
    CUresult result;             /* why the call cannot be made, or CUDA_SUCCESS */
    struct sim_context *context; /* current context; may be NULL without SIM_CTX */
    bool counted;                /* as being inside */
    int cancel; /* whether the thread could be cancelled before: it cannot within a call */
};

/* what a call needs */
#define SIM_ANYTIME 0u
#define SIM_INIT    1u /* after cuInit */
#define SIM_CTX     3u /* a current context without an earlier fault */
#define SIM_UNSAFE                                                                             \
    4u /* potentially unsafe during capture: not allowed while one forbids it                  \
        */

/* Another process has restored this one, perhaps onto other cards: sim.device follows. */
void sim_follow_move(void);

struct sim_call sim_begin(const char *name, unsigned needs);
CUresult sim_end(const struct sim_call *call, CUresult result);

/* Defines the driver function symbol: the result is that of expression, which may use `call`.
 */
#define SIM_API(symbol, parameters, needs, expression)                                         \
    CUresult symbol parameters                                                                 \
    {                                                                                          \
        struct sim_call call = sim_begin(#symbol, needs);                                      \
        return sim_end(&call, call.result ? call.result : (CUresult)(expression));             \
    }

/* ... and its per-thread twin symbol##suffix; expression may use `per_thread`, as
 * sim_stream(&call, handle, per_thread) */
#define SIM_STREAM_API(symbol, suffix, parameters, needs, expression)                          \
    CUresult symbol parameters                                                                 \
    {                                                                                          \
        const bool per_thread __attribute__((unused)) = false;                                 \
        struct sim_call call = sim_begin(#symbol, needs);                                      \
        return sim_end(&call, call.result ? call.result : (CUresult)(expression));             \
    }                                                                                          \
    CUresult symbol##suffix parameters                                                         \
    {                                                                                          \
        const bool per_thread __attribute__((unused)) = true;                                  \
        struct sim_call call = sim_begin(#symbol #suffix, needs);                              \
        return sim_end(&call, call.result ? call.result : (CUresult)(expression));             \
    }

int sim_unsupported(const char *name); /* body of every row without one; a CUresult */
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
unsigned sim_delay_due(const char *name); /* ms that this call is to wait */
void sim_stop_if_due(const char *name);
CUresult sim_fault_due(const char *name); /* fault injection: what this call must fail with */
const char *sim_error_name(CUresult result);
CUresult sim_driver_init(void);
/* visible.c: the numbers of the cards that this process sees, in its order; how many. */
unsigned sim_visible(unsigned cards, unsigned order[SIM_CARDS_MAX]);
bool sim_has_mig(void);         /* SIMCUDA_MIG=1: the cards are instances of one */
void sim_thread_register(void); /* calls sim_thread_end() when the calling thread ends */
void sim_thread_end(const void *thread);

enum sim_kind {
    SIM_KIND_NONE,
    SIM_KIND_CONTEXT,
    SIM_KIND_STREAM,
    SIM_KIND_EVENT,
    SIM_KIND_MODULE,
    SIM_KIND_FUNCTION, /* CUfunction and CUkernel: either may be passed for the other */
    SIM_KIND_PHYSICAL,
    SIM_KIND_MULTICAST, /* as SIM_KIND_PHYSICAL, a CUmemGenericAllocationHandle */
    SIM_KIND_POOL,
    SIM_KIND_GRAPH,
    SIM_KIND_NODE,
    SIM_KIND_EXEC
};

/* The handles that are alive. A handle is never looked into before it is found here. */
int sim_handle_add(const void *object, enum sim_kind kind);
void sim_handle_remove(const void *object);
enum sim_kind sim_handle_kind(const void *object);
static inline bool sim_handle_is(const void *object, enum sim_kind kind)
{
    return object && sim_handle_kind(object) == kind;
}

/* -- contexts (context.c) -- */

struct sim_context {
    struct sim_context *next;
    unsigned device;
    unsigned flags, api_version;
    uint64_t id;
    CUresult sticky; /* atomic: set by workers, relaxed; the fault that ended this context */
    bool primary, dying;
    struct sim_context *owner; /* a green context's primary one (green.c); NULL: it is none */
    const void *holder;        /* the thread that a green one is current to, `held` times */
    unsigned held;
    size_t limit[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared;
    struct sim_stream *streams;
    struct sim_stream *legacy;
};

/* A NULL handle stands for the current one; NULL if there is none or it is dead. */
struct sim_context *sim_context_check(CUcontext handle);
struct sim_device *sim_context_device(const struct sim_context *context);
void sim_context_fault(struct sim_context *context, CUresult result);
void sim_context_spread_faults(void); /* to the other contexts on the device */
/* A green one has an owner, which gets its memory. */
CUresult sim_context_new(unsigned device, unsigned flags, unsigned version,
                         struct sim_context *owner, struct sim_context **context);
void sim_context_free(struct sim_context *context);
CUresult sim_primary_retain(CUcontext *context, CUdevice device);
CUresult sim_primary_release(CUdevice device);
/* Waits for everything submitted so far, a primary one also for that of its green ones. */
CUresult sim_context_drain(struct sim_context *context);

/* -- memory (memory.c, alloc.c, vmm.c) -- */

struct sim_range {
    CUdeviceptr start;
    size_t size;
};
struct sim_ranges { /* disjoint, ascending */
    struct sim_range **item;
    size_t count, capacity;
};
struct sim_range *sim_ranges_find(const struct sim_ranges *ranges, CUdeviceptr address);
size_t sim_ranges_after(const struct sim_ranges *ranges,
                        CUdeviceptr address); /* index of the first that ends behind it */
bool sim_ranges_overlap(const struct sim_ranges *ranges, CUdeviceptr start, size_t size);
int sim_ranges_insert(struct sim_ranges *ranges, struct sim_range *range);
void sim_ranges_remove(struct sim_ranges *ranges, const struct sim_range *range);

struct sim_physical {
    CUmemAllocationProp prop;
    unsigned device;
    size_t size;
    uint64_t offset;
    int fd;
    uint64_t shared;  /* its number on the card (shared.c), and it has an fd of its own; or 0 */
    void *imported;   /* a page that keeps what was imported on the card, or NULL */
    bool host;        /* no card's memory (host_chunk.c) */
    bool for_network; /* network cards can reach it, whatever prop says */
    unsigned handles, maps; /* gone when both are 0 */
};

struct sim_mapping {
    struct sim_range range; /* first */
    struct sim_physical *physical;
    size_t offset;
    unsigned access; /* CU_MEM_ACCESS_FLAGS_PROT_* */
    unsigned peers;  /* a bit for each other device that may reach it */
};

enum sim_memory_kind { SIM_DEVICE, SIM_MANAGED, SIM_HOST, SIM_REGISTERED, SIM_IPC };

struct sim_allocation {
    struct sim_range range; /* first; size as asked for */
    enum sim_memory_kind kind;
    unsigned device, flags;
    uint64_t id, context_id;
    struct sim_slab *slab;       /* part of it, or NULL */
    struct sim_block *block;     /* memory of its own on the card, or NULL */
    struct sim_managed *managed; /* SIM_MANAGED */
    struct sim_pool *pool;
    bool freeing;      /* cuMemFreeAsync was called */
    uint32_t ipc_slot; /* it has a handle for other processes (ipc.c); or 0 */
};

struct sim_block { /* whole pages of the card at an address, readable and writable */
    struct sim_range *place;
    struct sim_mapping *mapping;
};

extern struct sim_ranges sim_places; /* used parts of the arena: blocks and reservations */
extern struct sim_ranges sim_reservations; /* cuMemAddressReserve */
extern struct sim_ranges sim_mappings;
extern struct sim_ranges sim_allocations;

bool sim_has_vmm(void); /* SIMCUDA_VMM=0: as a driver without virtual memory management */
CUresult sim_memory_init(void);
bool sim_in_arena(CUdeviceptr address);
struct sim_range *sim_place_take(size_t size, size_t alignment, CUdeviceptr hint);
void sim_place_drop(struct sim_range *place);
CUresult sim_physical_new(unsigned device, size_t size, bool shared,
                          struct sim_physical **physical);
/* What the descriptor refers to, on whichever card it is; the caller keeps the descriptor. */
/* The mode of the file of memory that network cards can reach (gpuDirectRDMACapable). As on a card, no
 * property of imported memory says so. */
#define SIM_FOR_NETWORK 0700
CUresult sim_physical_import(int fd, struct sim_physical **physical);
/* Frees it if nothing refers to it any more. */
void sim_physical_put(struct sim_physical *physical);
CUresult sim_map(CUdeviceptr start, size_t size, struct sim_physical *physical, size_t offset,
                 struct sim_mapping **mapping);
void sim_unmap(struct sim_mapping *mapping);
/* Multicast objects (multicast.c) are released and mapped as memory is. False: it is none. */
bool sim_multicast_release(CUmemGenericAllocationHandle handle);
CUresult sim_multicast_map(CUdeviceptr start, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle);
CUresult sim_protect(struct sim_mapping *mapping, unsigned access);
/* Host memory that the card reaches over its bus: no bytes of the card. */
CUresult sim_physical_new_host(size_t size, struct sim_physical **physical);
CUresult sim_host_chunk_map(CUdeviceptr start, size_t size, bool host);
void sim_host_chunk_unmap(CUdeviceptr start);
/* False: it is not watched, and the caller protects it. */
bool sim_host_chunk_protect(CUdeviceptr start, int protection);
/* The thread begins an operation: its touch of each page takes time, which has passed at the end. */
void sim_host_chunk_begin(void);
void sim_host_chunk_end(void);
/* An access faulted. True: the page is open now. */
bool sim_host_chunk_touch(CUdeviceptr address);
CUresult sim_block_new(unsigned device, size_t size, struct sim_block **block);
void sim_block_free(struct sim_block *block);

CUresult sim_alloc(struct sim_context *context, size_t size, enum sim_memory_kind kind,
                   struct sim_allocation **allocation);
/* As sim_alloc(), for a call of the program: frees that are under way may make room. */
CUresult sim_memory_alloc(struct sim_context *context, CUdeviceptr *pointer, size_t size,
                          enum sim_memory_kind kind, unsigned flags);
void sim_free(struct sim_allocation *allocation);
void sim_pool_forget(const struct sim_allocation *allocation); /* it is freed */
struct sim_allocation *sim_allocation_find(CUdeviceptr address);
/* Memory with a handle is freed; memory of another process (SIM_IPC) is. */
void sim_ipc_freed(const struct sim_allocation *allocation);
void sim_ipc_closed(const struct sim_allocation *allocation);

enum sim_space { SIM_SPACE_DEVICE, SIM_SPACE_PINNED, SIM_SPACE_PAGEABLE };
enum sim_space sim_space_of(CUdeviceptr address);
/* CUDA_SUCCESS if all bytes may be touched so; pageable memory is the caller's affair */
CUresult sim_memory_check(CUdeviceptr address, size_t size, bool write);

/* -- operations and streams (stream.c) -- */

CUresult sim_stream_create(struct sim_context *context, CUstream *out, unsigned flags,
                           int priority);

struct sim_fence {
    unsigned refs;
    bool done;
    uint64_t done_ns;
};

struct sim_op {
    unsigned refs; /* under sim.lock */
    CUgraphNodeType type;
    const char *name;
    CUresult (*run)(const struct sim_op *op,
                    struct sim_context *context); /* on a worker, without sim.lock */
    void (*release)(struct sim_op *op);           /* what it owns; may be NULL */
};

struct sim_op *sim_op_new(size_t size, const char *name, CUgraphNodeType type,
                          CUresult (*run)(const struct sim_op *, struct sim_context *));
void sim_op_put(struct sim_op *op);

struct sim_stream {
    struct sim_stream *next;
    struct sim_context *context;
    unsigned flags;
    int priority;
    uint64_t id;
    const void *thread; /* the per-thread stream of this thread, or NULL */
    bool legacy, closing, running;
    pthread_cond_t work;
    struct sim_task *head, *tail;
    struct sim_fence *last; /* of the newest operation */
    struct sim_capture *capture;
    struct sim_nodes {
        struct sim_node **item;
        size_t count;
    } capture_tip; /* what the next captured node depends on */
};

struct sim_stream *sim_stream(struct sim_call *call, CUstream handle, bool per_thread);
/* Consumes op (NULL: out of host memory). A NULL stream hands back call->result. Captured if
 * the stream is captured. */
CUresult sim_submit(struct sim_call *call, struct sim_stream *stream, struct sim_op *op);
CUresult sim_submit_wait(struct sim_call *call, struct sim_stream *stream, struct sim_op *op);
/* ... after the fence (may be NULL), handing out the operation's own fence (may be NULL) */
CUresult sim_submit_after(struct sim_call *call, struct sim_stream *stream, struct sim_op *op,
                          struct sim_fence *after, struct sim_fence **fence);
/* Until all work so far has finished, of one stream or of all (blocking ones). */
CUresult sim_stream_wait(struct sim_stream *stream);
CUresult sim_streams_wait(struct sim_context *context, bool blocking_only);
bool sim_stream_idle(const struct sim_stream *stream);
void sim_stream_close(struct sim_stream *stream);
struct sim_stream *sim_stream_new(struct sim_context *context, unsigned flags, int priority);
struct sim_fence *sim_fence_get(struct sim_fence *fence);
void sim_fence_put(struct sim_fence *fence);
void sim_fence_wait(struct sim_fence *fence);
/* Runs op, turning an access to an unmapped device address into CUDA_ERROR_ILLEGAL_ADDRESS. */
void sim_faults_catch(void); /* from now on, if not yet */
CUresult sim_guarded_run(const struct sim_op *op, struct sim_context *context);

struct sim_event {
    unsigned flags;
    struct sim_fence *fence;
    uint64_t context_id;
    uint64_t capture_id; /* recorded in this capture, or 0 */
    struct sim_nodes tip;
};

/* -- operations (copy.c, memset.c, launch.c) -- */

struct sim_copy { /* a box of bytes */
    CUdeviceptr to, from;
    size_t to_pitch, to_height, from_pitch, from_height;
    size_t width, height, depth;
};
CUresult sim_copy_op(const struct sim_copy *copy, bool sync, struct sim_op **op,
                     bool *must_wait);
CUresult sim_copy_node_op(const struct sim_copy *copy, struct sim_op **op);
CUresult sim_copy_from_3d(const CUDA_MEMCPY3D *box, struct sim_copy *copy);
CUresult sim_memset_op(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_op **op);
CUresult sim_memset_check(const struct sim_op *op); /* whether its memory is there */
struct sim_op *sim_host_op(CUhostFn function, void *data);
CUresult sim_launch_op(struct sim_context *context, const CUDA_KERNEL_NODE_PARAMS_v2 *launch,
                       struct sim_op **op);
void sim_launch_params(const struct sim_op *op, CUDA_KERNEL_NODE_PARAMS_v2 *launch);
void sim_memset_params(const struct sim_op *op, CUDA_MEMSET_NODE_PARAMS *set);
void sim_host_params(const struct sim_op *op, CUDA_HOST_NODE_PARAMS *host);
