/* SPDX-License-Identifier: Apache-2.0
 *
 * range.h: a piece of movable device memory: chunks of physical memory that come and go at an
 * address that stays.
 */
#ifndef GS_RUNTIME_RANGE_RANGE_H
#define GS_RUNTIME_RANGE_RANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/base/device.h"
#include "runtime/range/range_tree.h"

/* Physical memory is created, moved and released in chunks of this many bytes (the last of a
 * range may be smaller); 64 to 128 MiB is where the bus is used best (DESIGN.md, section 8).
 * With overcommit they are smaller (over.h). */
#define GS_CHUNK_BYTES (64ull << 20)
/* In large ranges the driver's calls for each chunk are what an allocation costs: a hash or a
 * host segment takes no more than this at a time. */
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
    bool adrift;   /* RESIDENT, OVER: it has its memory, which the driver did not map
                                   anywhere; missing (swap/exchange.c). Under gs_memory_lock */
    bool sendable; /* RESIDENT: made so that others can be given it (handover.h) */
    /* RESIDENT, and another program's before: where its descriptor is (handover.c); else 0 */
    uint16_t descriptor;
    /* A bit for each of the first 64 blocks: the program has given up its contents (discard.h) */
    uint64_t discarded, discard_stamp;
    /* Bytes of it that were used since the last look, and before (uses.h, swap/placement.c). */
    uint64_t used, heat;
    uint64_t lost; /* HOST: those whose contents did not come along; they come back as zeros */
};

enum gs_range_life {
    GS_RANGE_LIVE,
    GS_RANGE_DEAD,      /* freed; the client thread will dispose of it */
    GS_RANGE_DISPOSING, /* freed; somebody is at it */
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

struct gs_pool;
struct gs_slab;
struct gs_virtual;
struct gs_program_managed;

struct gs_range {
    struct gs_range_tree_node node;  /* base and asked-for size (the whole range, for a slab) */
    struct gs_range_tree_node outer; /* its address space, with the edges (edge.h) */
    bool edged;                      /* there is memory at the edges; as chunks */
    uint64_t reserved;               /* bytes of memory, a multiple of the device's granule */
    uint64_t chunk_bytes;            /* of each chunk but the last */
    uint64_t over;                   /* bytes of its chunks that are OVER */
    struct gs_device *device;
    CUcontext context;      /* in which it was allocated; it ends with it (NULL: with none) */
    struct gs_virtual *own; /* the program's own VMM memory (virtual.h); NULL: cuMemAlloc's */
    struct gs_program_managed *theirs; /* the program's managed memory; NULL: it is not */
    struct gs_slab *slab;      /* the range is cut into small pieces; NULL: one allocation */
    struct gs_pool *pool;      /* of cuMemAllocAsync (pool.h); NULL: none */
    uint64_t id;               /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uint8_t life;              /* enum gs_range_life */
    uint32_t moving;           /* chunks under way (swap.c); client thread only */
    bool at_rest;              /* DEAD: nothing on the GPU uses it any more */
    bool pinned;               /* does not move; not in the accounts */
    bool for_good;             /* ... and never will again */
    unsigned shares;           /* other processes that have it open (client/exporter.c) */
    struct gs_export *exports; /* what of it has a handle for other processes; only the client
                                  thread disposes of such a range */
    CUevent after; /* DEAD, and to be disposed of when this has passed; NULL: at once */
    struct gs_range *next, **link; /* of its device */
    struct gs_range *idle_next,
        **idle_link;     /* IDLE (idle_ranges.c); DEAD: the next one (retire.c) */
    uint64_t idle_since; /* ns */
    uint32_t chunk_count;
    struct gs_chunk chunks[];
};

/* An empty range: no address, in no list. NULL: out of host memory. */
struct gs_range *gs_range_new(struct gs_device *device, uint64_t reserved,
                              uint64_t chunk_bytes);

/* Takes the range from what the program may ever have: of the card as many chunks as there is
 * room for, the others from beyond it, evenly between those, where they get memory at once. False:
 * that is more than there is. Nobody else can reach the range. */
bool gs_range_admit(struct gs_range *range);

/* Its chunks that have no memory are beyond the card from now on. The same. */
bool gs_range_go_over(struct gs_range *range);

/* Releases all memory that it has got, and takes it out of what is beyond the card. */
void gs_range_withdraw(struct gs_range *range);

/* The same for the part of a range that is on the card, in bytes. */
bool gs_range_account(struct gs_device *device, uint64_t bytes);
void gs_range_unaccount(struct gs_device *device, uint64_t bytes);

/* Gives every chunk that is absent its memory at once, if the budget has room. Inside the gate
 * and before others can reach the range. False: not, or not all of it. */
bool gs_range_place(struct gs_range *range);

/* Releases the memory of all chunks, on the device and on the host. */
void gs_range_take_back(struct gs_range *range);

/* Its contents do not matter any more: drops what the host has of them. Inside the gate, and
 * nobody else can reach it. */
void gs_range_forget_contents(struct gs_range *range);

/* Releases everything and frees the range, whose life somebody has made DISPOSING; nothing on
 * the GPU uses it, and no chunk of it is under way (gs_swap_dispose() waits for those). */
void gs_range_dispose(struct gs_range *range);

/* The following under gs_memory_lock. */

void gs_range_set_address(struct gs_range *range, uint64_t address, uint64_t bytes);
void gs_range_clear_address(struct gs_range *range);

/* The range that contains address, or NULL. */
struct gs_range *gs_range_at(CUdeviceptr address);

/* The lowest range that has one of these addresses, or NULL. */
struct gs_range *gs_range_first(CUdeviceptr address, uint64_t bytes);

/* The range of cuMemAlloc that has ended there, while its address is not given back yet; NULL:
 * none. */
const struct gs_range *gs_range_was_at(CUdeviceptr address);

/* No address of the program's (any more), but one of ours: of a range that has ended, or beside
 * one. Not for addresses in a range. */
bool gs_range_is_near(CUdeviceptr address);

/* Into its device's list. */
void gs_range_link(struct gs_range *range);

/* It is needed from now on: its absent chunks are missing, and the gate shuts until they are
 * there. */
void gs_range_miss(struct gs_range *range);

/* It is no longer needed: the reverse. */
void gs_range_unneed(struct gs_range *range);

/* Rises with every range and piece that the program frees (memory.c). */
extern _Atomic(uint32_t) gs_memory_frees;

/* It leaves the accounts of what the program has, and (cuMemAlloc's) the tree. */
void gs_range_end_life(struct gs_range *range, enum gs_range_life life);

/* The reverse, of one that kept its memory: false if the program may not have that much. The
 * caller gives it an address. */
bool gs_range_begin_life(struct gs_range *range);

/* A range that was freed still has its memory, and a thread may be giving it back. */
bool gs_range_any_leaves(const struct gs_device *device);

/* Every chunk is on the device. Nothing moves meanwhile: inside the gate, or it is not LIVE. */
bool gs_range_is_whole(const struct gs_range *range);

/* Resident as a whole, it stays so for good and leaves the accounts of what can be moved. */
void gs_range_pin(struct gs_range *range);

/* The same for as long as one more process has it open. */
void gs_range_share(struct gs_range *range);
void gs_range_unshare(struct gs_range *range);

/* It has no handles for other processes any more. */
void gs_range_forget_exports(struct gs_range *range);

/* True if a range has an address between these, or one that has ended had and still has it. */
bool gs_range_overlaps(CUdeviceptr address, uint64_t bytes);

/* Any thread. */
struct gs_accounts gs_memory_accounts(const struct gs_device *device);

/* Bytes on the device that no copy can reach: of the program's own memory, what it has not
 * mapped, or not made accessible; and what is adrift. Any thread. */
uint64_t gs_memory_out_of_reach(const struct gs_device *device);

/* A context has ended: what was broken went with it. */
void gs_memory_mend(void);

/* True if everything live is on its device; then `then` is called under the lock that a
 * shutting allocation takes. Client thread. */
bool gs_memory_if_complete(void (*then)(void));

void gs_ranges_after_fork(void);

#endif
