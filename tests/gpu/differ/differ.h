/* SPDX-License-Identifier: Apache-2.0
 *
 * differ.h: the world of a random sequence of driver calls, and what its families of operations
 * share (differ.c).
 *
 * A slot of the world holds an object or 0. An operation picks slots by its own random numbers,
 * which depend on the seed and on the operation's number only: a sequence from which operations
 * are left out makes the same choices.
 */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#define CALL(symbol, type) ((PFN_##type)dlsym(world.driver, #symbol))
#define KIB                ((size_t)1 << 10)
#define MIB                ((size_t)1 << 20)
#define LENGTH(array)      (sizeof(array) / sizeof((array)[0]))

enum {
    MEMORIES = 10,
    HOSTS = 4,
    STREAMS = 6, /* the first two: legacy and per-thread */
    EVENTS = 4,
    POOLS = 4, /* the first: the device's default pool */
    HANDLES = 4,
    RESERVATIONS = 3,
    GRANULES = 4, /* of 2 MiB, in a reservation */
    GRAPHS = 3,
    EXECS = 3,
    NODES = 64, /* of a graph, at most */
    HOST_BYTES = 64 << 10,
    GONE = 1 << 30,
};

enum memory_kind { PLAIN, ORDERED, MANAGED };

struct memory {
    CUdeviceptr start; /* 0: the slot is free */
    size_t bytes;
    enum memory_kind kind;
    bool known;      /* all of its bytes were written */
    unsigned number; /* of this allocation, for the graphs that use it */
};

struct reservation {
    CUdeviceptr start;
    int mapped[GRANULES]; /* 1 + slot of the handle; 0: nothing */
};

struct graph_uses {            /* a graph or executable graph touches these allocations */
    unsigned number[MEMORIES]; /* GONE: several of a slot, of which one is there at most */
};

struct world {
    void *driver, *runtime; /* runtime: NULL without one */
    uint64_t random;
    CUcontext primary, second;
    struct memory memory[MEMORIES];
    struct memory
        *picked; /* the allocation in which the last pick_address() lies; NULL: none */
    struct {
        void *start;
        size_t bytes;
        bool registered;
    } host[HOSTS];
    CUstream stream[STREAMS];
    CUevent event[EVENTS];
    CUmemoryPool pool[POOLS];
    CUmemGenericAllocationHandle handle[HANDLES];
    struct reservation reservation[RESERVATIONS];
    CUgraph graph[GRAPHS];
    CUgraphExec exec[EXECS];
    struct graph_uses graph_uses[GRAPHS], exec_uses[EXECS], capture_uses;
    CUmodule module;
    CUfunction add, poke;
    bool ordered_freed; /* cuMemFree has freed memory of a pool: what it uses differs */
    int capturing;      /* captures begun and not yet ended */
    bool faults;        /* sequences with faults and wrong arguments that end a context */
};
extern struct world world;

struct operation {
    const char *name;
    unsigned weight;
    void (*run)(void);
};
/* Each ends with an operation without a name. */
extern const struct operation memory_operations[], ordered_operations[], virtual_operations[],
    stream_operations[], graph_operations[], context_operations[], runtime_operations[];

/* A number below `bound`, which is at least 1. */
unsigned pick(unsigned bound);
bool one_in(unsigned parts);
/* A size: biased to the borders of slabs, granules and chunks. */
size_t pick_size(void);

/* Adds to the line of the running operation. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The result of a call, and returns it. */
CUresult answer(CUresult result);
/* An address by the allocation it lies in: "m3+100", "r0+0", "nothing". */
void tell_address(CUdeviceptr address);
/* Waits for all work of all contexts; false: it failed. */
bool settle(void);
/* The sum of bytes that a call read. */
void tell_sum(const void *bytes, size_t count);

/* Streams: one that exists, and its name in the line. */
CUstream pick_stream(void);
/* An allocation that exists, or NULL; its name is in the line. */
struct memory *pick_memory(void);
/* An address of the world: mostly inside an allocation, at times just behind its end; 0 at times. */
CUdeviceptr pick_address(size_t *left);
/* The nodes of a graph, on which the next one depends: two that run beside each other could write the
 * same memory. False: they are too many. */
bool nodes_of(CUgraph graph, CUgraphNode nodes[NODES], size_t *count);
/* A graph will use it. */
void note_graph_use(struct graph_uses *uses, const struct memory *memory);
/* A running capture will use it. */
void note_use(const struct memory *memory);

/* 64 KiB of pageable memory; the second one is what copies read into. */
extern unsigned char host_source[HOST_BYTES], host_target[HOST_BYTES];

/* memory.c: the slot of a new allocation (NULL: all are taken); puts it there; takes it away. */
struct memory *memory_free_slot(void);
void memory_keep(struct memory *slot, CUdeviceptr start, size_t bytes, enum memory_kind kind);
void memory_forget(struct memory *slot);
