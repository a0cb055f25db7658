/* SPDX-License-Identifier: Apache-2.0
 *
 * range.h: a piece of movable device memory: chunks of physical memory that come and go at an
 * address that stays.
 */
#pragma once

#include "runtime/range/range_tree.h"

/* Physical memory is created, moved and released in chunks of this many bytes (the last of a
 * range may be smaller); 64 to 128 MiB is where the bus is used best.
 * With overcommit they are smaller (over.h). */
#define GS_CHUNK_BYTES (64ull << 20)
/* In large ranges an allocation costs what the driver's calls for each chunk cost, so their
 * chunks are larger. A hash or a host segment takes no more than this at a time. */
#define GS_LARGE_CHUNK_BYTES (128ull << 20)
#define GS_LARGE_RANGE_BYTES (512ull << 20)

enum gs_chunk_state {
    GS_CHUNK_ABSENT,   /* never had memory: contents undefined */
    GS_CHUNK_RESIDENT, /* mapped */
    GS_CHUNK_HOST,     /* the only copy is in the host block, or it is all zero */
    /* Of the program's managed memory (program_managed.h), and in no account: */
    GS_CHUNK_LOOSE, /* wherever its pages are */
    GS_CHUNK_AWAY,  /* sent to the host when the turn ended */
    /* Beyond the card (over.h), and in no account but `over`: */
    GS_CHUNK_OVER, /* mapped, in host memory */
};

struct gs_chunk {
    CUmemGenericAllocationHandle handle; /* RESIDENT, OVER */
    struct gs_host_block *host; /* HOST; kept when it comes back: what does not change is not
                                   copied again */
    uint8_t state;              /* enum gs_chunk_state */
    bool moving;                /* under way (swap.c); under gs_memory_lock */
    bool zero;                  /* HOST: nothing but zeros, no host block */
    bool adrift;   /* RESIDENT, OVER: the driver has not mapped its memory anywhere; missing
                      (swap/exchange.c). Under gs_memory_lock */
    bool sendable; /* RESIDENT: its memory can be given to others (handover.h) */
    bool network;  /* RESIDENT: network cards can reach its memory (gpuDirectRDMACapable) */
    bool changes;  /* when it last left, most of it was not what the host had */
    /* RESIDENT, with memory that came from another program: the place of its descriptor
     * (handover.c); else 0 */
    uint16_t descriptor;
    /* A bit for each of the first 64 blocks: the program has given up its contents (discard.h) */
    uint64_t discarded, discard_stamp;
    /* Bytes of it that were used since the last look, and before that (uses.h,
     * swap/placement.c). */
    uint64_t used, heat;
    uint64_t lost; /* HOST: a bit for each block that was not copied; it comes back as zeros */
};

enum gs_range_life {
    GS_RANGE_LIVE,
    GS_RANGE_DEAD,      /* freed; the client thread will dispose of it */
    GS_RANGE_DISPOSING, /* freed; some thread is releasing it, and changes chunks unlocked */
    GS_RANGE_ORDERED,   /* freed in stream order, on the device (stream_order.h) */
    GS_RANGE_IDLE,      /* freed, on the device, kept for the next allocation (idle_ranges.h) */
};

/* An allocation that the program has made an IPC handle of. Under gs_memory_lock. */
struct gs_export {
    struct gs_export *next;
    CUdeviceptr base;
    uint64_t bytes;
    uint8_t token[16]; /* random */
};

struct gs_slab;
struct gs_program_managed;

/* range.c: the reasons why a range is pinned */
struct gs_range_pin {
    bool for_good;   /* it can never move again */
    unsigned shares; /* other processes that have it open (client/ipc.c) */
};

/* edge.c: its address space, with the edges */
struct gs_range_space {
    struct gs_range_tree_node node;
    bool edged; /* there is memory at the edges; as chunks */
};

/* memory/idle_ranges.c: its place in a list of its device while it is IDLE */
struct gs_range_idle {
    struct gs_range *next, **link;
    uint64_t since; /* ns */
};

/* The event that its disposal waits for while it is DEAD: memory/retire.c. */
struct gs_range_dead {
    struct gs_range *next; /* of its device */
    CUevent after;         /* disposed of when this has passed; NULL: at once */
    bool at_rest;          /* nothing on the GPU uses it any more */
};

/* The fields that a launch or an allocation reads stand first. */
struct gs_range {
    struct gs_range_tree_node node; /* base and asked-for size (the whole range, for a slab) */
    uint64_t reserved;              /* bytes of memory, a multiple of the device's granule */
    uint64_t chunk_bytes;           /* of each chunk but the last */
    uint32_t chunk_count;
    uint32_t moving; /* chunks under way (swap.c); client thread only */
    uint8_t life;    /* enum gs_range_life */
    bool pinned;     /* does not move; not in the accounts */
    struct gs_device *device;
    struct gs_virtual *own; /* the program's own VMM memory (virtual.h); NULL: cuMemAlloc's */
    struct gs_program_managed *theirs; /* the program's managed memory; NULL: it is not */
    uint64_t over;                     /* bytes of its chunks that are OVER */
    struct gs_slab *slab; /* the range is cut into small pieces; NULL: one allocation */
    struct gs_pool *pool; /* of cuMemAllocAsync (pool.h); NULL: none */
    CUcontext context;    /* in which it was allocated; it ends with it (NULL: none) */
    uint64_t id;          /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    struct gs_range *next, **link; /* of its device */
    struct gs_export *exports; /* what of it has a handle for other processes; only the client
                                      thread disposes of such a range */
    struct gs_range_pin pin;
    struct gs_range_space space;
    struct gs_range_idle idle;
    struct gs_range_dead dead;
    struct gs_chunk chunks[];
};

/* memory/pool.c. All under gs_memory_lock, except handle and device. */
struct gs_pool {
    struct gs_pool *next;
    CUmemoryPool handle; /* the driver's; dead once destroyed */
    struct gs_device *device;
    bool destroyed;                   /* it lives until its last range has gone */
    bool may_wait;                    /* CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES */
    uint64_t most;                    /* bytes that it may hold; 0: no bound of its own */
    uint64_t threshold;               /* bytes that it keeps when they are free */
    uint64_t used, used_high;         /* bytes the program has */
    uint64_t reserved, reserved_high; /* bytes of its ranges */
    uint32_t ranges;
    unsigned peer_count;
    CUmemAccessDesc peers[GS_MAX_PEERS]; /* other devices that may reach its memory */
};

#define GS_VIRTUAL_ACCESS 24 /* locations to which one mapping can be made accessible */

/* memory/virtual.c: the additional parts of a range of cuMemCreate. Under gs_memory_lock. */
struct gs_virtual {
    struct gs_range_tree_node by_handle; /* base: the handle that the program holds */
    struct gs_range *range;
    CUmemAllocationProp prop;
    unsigned references; /* cuMemCreate and cuMemRetainAllocationHandle minus cuMemRelease */
    unsigned aliases; /* other mappings of it (foreign_mapping.h), and threads that hold it */
    bool worked_on;   /* gs_virtual_begin() */
    bool mapped;
    bool accessible; /* the program can reach it, so it is needed */
    unsigned access_count;
    CUmemAccessDesc access[GS_VIRTUAL_ACCESS];
};

static inline uint64_t gs_range_chunk_bytes(const struct gs_range *range, uint32_t chunk)
{
    const uint64_t from = chunk * range->chunk_bytes;

    return range->reserved - from < range->chunk_bytes ? range->reserved - from
                                                       : range->chunk_bytes;
}

static inline CUdeviceptr gs_range_chunk_address(const struct gs_range *range, uint32_t chunk)
{
    return range->node.base + chunk * range->chunk_bytes;
}

/* The chunk has memory. */
static inline bool gs_chunk_is_there(const struct gs_chunk *chunk)
{
    return chunk->state == GS_CHUNK_RESIDENT || chunk->state == GS_CHUNK_OVER;
}

/* The chunk is in the accounts of what is on the device or missing there. */
static inline bool gs_chunk_is_counted(const struct gs_chunk *chunk)
{
    return chunk->state != GS_CHUNK_LOOSE && chunk->state != GS_CHUNK_AWAY &&
           chunk->state != GS_CHUNK_OVER;
}

/* The chunk has memory, which is mapped at its address if its range has an address. */
static inline bool gs_chunk_is_mapped(const struct gs_chunk *chunk)
{
    return gs_chunk_is_there(chunk) && !chunk->adrift;
}

/* Under gs_memory_lock: the range's chunks are mapped at its address when they are on the device. */
static inline bool gs_range_is_mapped(const struct gs_range *range)
{
    return range->own == NULL || range->own->mapped;
}

/* Under gs_memory_lock: the program can reach the range. */
static inline bool gs_range_is_needed(const struct gs_range *range)
{
    return range->own == NULL || (range->own->mapped && range->own->accessible);
}

/* Bytes of the chunks for which the condition holds, which names one `chunk`, number `i`. */
#define GS_CHUNK_BYTES_IF(range, condition)                                                    \
    ({                                                                                         \
        uint64_t bytes_if = 0;                                                                 \
                                                                                               \
        for (uint32_t i = 0; i < (range)->chunk_count; i++) {                                  \
            const struct gs_chunk *chunk = &(range)->chunks[i];                                \
                                                                                               \
            bytes_if += (condition) ? gs_range_chunk_bytes(range, i) : 0;                      \
        }                                                                                      \
        bytes_if;                                                                              \
    })

/* Makes an empty range: no address, in no list. NULL: out of host memory. */
struct gs_range *gs_range_new(struct gs_device *device, uint64_t reserved,
                              uint64_t chunk_bytes);

/* Takes the range from what the program may ever have: of the card as many chunks as there is
 * room for, the others from beyond it, evenly between those, where they get memory at once. False:
 * that is more than there is. Nobody else can reach the range. */
bool gs_range_admit(struct gs_range *range);

/* Puts all chunks without memory beyond the card. Results and conditions are the same. */
bool gs_range_go_over(struct gs_range *range);

/* Releases all memory that the range has got, and takes it out of the account of what is beyond
 * the card. */
void gs_range_withdraw(struct gs_range *range);

/* Accounts for so many bytes of a range that is on the card. */
bool gs_range_account(struct gs_device *device, uint64_t bytes);
void gs_range_unaccount(struct gs_device *device, uint64_t bytes);

/* Any thread, around each piece of work that makes or releases memory which `resident` counts:
 * meanwhile the card's free memory does not go with these figures. */
void gs_range_begin_work(struct gs_device *device);
void gs_range_end_work(struct gs_device *device);

/* Gives memory to every chunk that is absent, at once, if the budget has room. Inside the gate,
 * and before other threads can reach the range. False: not all chunks have memory. */
bool gs_range_place(struct gs_range *range);

/* Releases the memory of all chunks, on the device and on the host. */
void gs_range_take_back(struct gs_range *range);

/* The contents do not matter any more: releases their copies on the host. Inside the gate, and
 * no other thread can reach the range. */
void gs_range_forget_contents(struct gs_range *range);

/* Releases everything and frees the range, which the caller has made DISPOSING. Nothing on the
 * GPU uses it, and no chunk of it is under way (gs_swap_dispose() waits for those). */
void gs_range_dispose(struct gs_range *range);

/* The following under gs_memory_lock. */

void gs_range_set_address(struct gs_range *range, uint64_t address, uint64_t bytes);
void gs_range_clear_address(struct gs_range *range);

/* The range that contains address, or NULL. */
struct gs_range *gs_range_at(CUdeviceptr address);

/* The lowest range that has one of these addresses, or NULL. */
struct gs_range *gs_range_first(CUdeviceptr address, uint64_t bytes);

/* The range of cuMemAlloc that has ended there and still has its address; NULL: none. */
const struct gs_range *gs_range_was_at(CUdeviceptr address);

/* True for an address that is not the program's (any more), but ours: of a range that has ended,
 * or beside a range. Not for addresses in a range. */
bool gs_range_is_near(CUdeviceptr address);

/* Adds the range to its device's list. */
void gs_range_link(struct gs_range *range);

/* The range is needed from now on: its absent chunks are missing, and the gate closes until they
 * are there. */
void gs_range_miss(struct gs_range *range);

/* The range is no longer needed. */
void gs_range_unneed(struct gs_range *range);

/* Rises with every range and piece that the program frees (memory.c). */
extern _Atomic(uint32_t) gs_memory_frees;

/* Takes the range out of the accounts of the program's memory, and a range of cuMemAlloc out of
 * the tree. */
void gs_range_end_life(struct gs_range *range, enum gs_range_life life);

/* Begins a new life of a range that kept its memory; false: the program may not have that much.
 * The caller gives it an address. */
bool gs_range_begin_life(struct gs_range *range);

/* True if a range that was freed still has its memory, and a thread may be releasing it. */
bool gs_range_any_leaves(const struct gs_device *device);

/* True if every chunk is on the device. Nothing moves meanwhile: inside the gate, or it is not
 * LIVE. */
bool gs_range_is_whole(const struct gs_range *range);

/* Pins a range that is resident as a whole: it stays so for good and leaves the accounts of
 * movable memory. */
void gs_range_pin(struct gs_range *range);

/* Pins it for as long as one more process has it open. */
void gs_range_share(struct gs_range *range);
void gs_range_unshare(struct gs_range *range);

/* True if one of these addresses is in a range, or in a range that has ended and still has
 * its address. */
bool gs_range_overlaps(CUdeviceptr address, uint64_t bytes);

/* Any thread. */
struct gs_accounts gs_memory_accounts(const struct gs_device *device);
/* Bytes of the device that cannot leave it, by these accounts of it: with arrays, the memory of
 * graphs, and chunks that are kept. Client thread. */
uint64_t gs_memory_pinned(const struct gs_device *device, const struct gs_accounts *accounts);

/* Bytes on the device whose copies on the host are kept. Any thread. */
uint64_t gs_memory_copied(const struct gs_device *device);

/* Bytes on the device that no copy can reach: the program's own memory that it has not mapped or
 * not made accessible, and chunks that are adrift. Any thread. */
uint64_t gs_memory_out_of_reach(const struct gs_device *device);

/* A context has ended: devices that were broken by it work again. */
void gs_memory_mend(void);

/* If everything live is on its device, calls `then` under the lock that an allocation takes to
 * close the gate, and returns true. Client thread. */
bool gs_memory_if_complete(void (*then)(void));

/* Gives these rights to the memory of the pool, or (NULL) of cuMemAlloc and all pools, that is on
 * the device. Inside the gate. */
CUresult gs_range_grant(const struct gs_device *device, const struct gs_pool *pool,
                        const CUmemAccessDesc *access, size_t access_count);
