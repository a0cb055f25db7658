/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: what this process knows about each device it uses, and the contexts it has there.
 */
#ifndef GS_RUNTIME_BASE_DEVICE_H
#define GS_RUNTIME_BASE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#define GS_MAX_DEVICES 64
#define GS_MAX_PEERS   16
#define GS_IDLE_SIZES  32

struct gs_range;
struct gs_mover;

/* The newest target. client/session.c writes it, on the client thread; any thread reads
 * (relaxed: a stale value costs a round, nothing else). */
struct gs_device_target {
    _Atomic(uint32_t) seq, flags;
    _Atomic(uint64_t) budget, capacity, idle_ns, shortfall, yield_ns, overcommit;
    uint64_t told_capacity; /* as the daemon said it; client thread only */
};

/* Bytes. range/range.c: its header says what each is the sum of. Under gs_memory_lock. */
struct gs_accounts {
    uint64_t demand;   /* live ranges */
    uint64_t missing;  /* of these, not on the device */
    uint64_t resident; /* on the device, ranges that wait for their disposal included */
    uint64_t idle;     /* of resident: kept for the next allocations, as good as free */
    uint64_t pinned;   /* on the device, in none of these: does not move */
    uint64_t shared;   /* of pinned: other processes have it open */
    uint64_t managed;  /* of demand: the program's own managed memory */
    uint64_t loose;    /* in none of these: managed memory for which demand has no room */
    uint64_t over;     /* in none of these: live, in host memory beyond the card (over.h) */
};

/* memory/retire.c: ranges for the client thread to dispose of, in the order of their deaths.
 * Under gs_memory_lock. */
struct gs_device_dead {
    struct gs_range *first, *last;
};

/* memory/idle_ranges.c. The lists are under gs_memory_lock. */
struct gs_device_idle {
    struct gs_range *lists[GS_IDLE_SIZES]; /* by size */
    uint64_t looked_at;                    /* ns; client thread only */
};

/* swap/swap_mover.c: where the search for the next chunk goes on, and in which pass over the
 * ranges. Under gs_memory_lock. */
struct gs_device_sweep {
    struct gs_range *cursor;
    uint8_t pass;
};

/* calls/hook_context.c: the devices whose contexts were given access to this one. */
struct gs_device_peers {
    CUdevice ordinals[GS_MAX_PEERS];
    unsigned count;
};

/* range/edge.c: the memory that all edges of the device share. Under gs_memory_lock, but for
 * the last. */
struct gs_device_edge {
    CUmemGenericAllocationHandle handle;
    bool present;
    _Atomic(bool) sought; /* room for it was asked for, which is done once; relaxed */
};

/* swap/moving.c. Client thread only, but for the first. */
struct gs_device_moving {
    /* Bytes of resident that should leave and cannot, for want of host memory, or because the
     * program keeps them without an address (cuMemUnmap). The daemon takes them for pinned:
     * demand, resident and capacity are without them in what it says and hears. Relaxed. */
    _Atomic(uint64_t) kept;
    uint64_t kept_looked_at; /* ns */
    uint64_t retry_at;       /* ns: no copy-in before, after the driver was out of memory */
    uint64_t short_since;    /* ns; 0: the driver has had memory */
    uint64_t never_since;    /* ns: more is needed than this program may ever have; 0: not so */
    uint64_t spent_ns;       /* on moving since it last ran */
    uint64_t switch_ns;      /* the last way out and back took so long */
    bool was_out;
    bool loose_out; /* what is loose was sent away since the program last ran (loose.h) */
};

/* client/report.c: for the next report. Client thread only, but for the last. */
struct gs_device_report {
    uint64_t short_bytes;
    bool anew; /* the next state is sent whatever was sent before */
    /* bytes; what gs_room_make() wants said. Relaxed: the client thread is woken after it */
    _Atomic(uint64_t) short_asked;
    /* bytes; memory/room.c: the room, and what was free, when it began to ask. Relaxed: several
     * threads may ask, each may take over what another one saw */
    _Atomic(uint64_t) room_before, free_before;
};

/* memory/graph_memory.c. Client thread only. */
struct gs_device_graphs {
    uint64_t bytes;
    uint64_t looked_at; /* ns */
    bool trimmed;       /* since it last stopped */
};

/* The first eight say which device it is and what it can do (device.c); each of the others
 * belongs to the file named at its type. */
struct gs_device {
    CUdevice ordinal;
    uint8_t uuid[16];
    char name[64];
    uint64_t physical;     /* bytes, as the driver says */
    uint64_t total;        /* bytes, as the program sees it: the limit, if that is lower */
    uint64_t granule;      /* bytes: VMM granularity, also of everything accounted here */
    _Atomic(bool) movable; /* cuMemAlloc is backed by memory that can be moved; off later only
                              where no client thread could be started */
    bool managed;          /* that memory is managed memory (backend.h) */
    bool prefetches;       /* managed memory can be prefetched to it and from it */

    struct gs_device_target target;
    struct gs_accounts accounts;
    struct gs_range *ranges;    /* all of them; range/range.c, under gs_memory_lock */
    _Atomic(uint64_t) arriving; /* bytes; range/managed.c */
    _Atomic(uint64_t) arrays;   /* bytes; memory/arrays.c. Relaxed */
    struct gs_device_edge edge;
    struct gs_device_dead dead;
    struct gs_device_idle idle;
    struct gs_device_graphs graphs;
    struct gs_device_sweep sweep;
    struct gs_device_moving moving;
    struct gs_device_report report;
    struct gs_device_peers peers;
    /* swap/swap.c, under gs_memory_lock: every context failed for good, nothing comes back, and
     * the program must be told */
    bool broken;
};

struct gs_context {
    /* NULL: free slot. Stored last (release), read first: the rest of the slot is then there.
     */
    _Atomic(CUcontext) handle;
    struct gs_device *device;
    CUcontext home; /* of a green context: its primary one (gs_context_home); else NULL */
    struct gs_mover *mover; /* swap.c: streams and what is under way; client thread only */
    CUfunction hash;        /* kernels.c; NULL: not loaded */
    unsigned kernel_attempts;
    _Atomic(bool) broken;  /* it has failed for good; client thread writes, relaxed */
    _Atomic(bool) suspect; /* it may have: a call failed in a way that is final; relaxed */
};

/* The device of an ordinal, set up at its first use. NULL: the driver does not answer (the
 * caller passes the call through). Any thread. Entries never move or go. */
struct gs_device *gs_device_get(CUdevice ordinal);
/* ... only if it was set up already: for mere questions about it. */
struct gs_device *gs_device_find(CUdevice ordinal);

/* The device that a location names; NULL: none does. */
struct gs_device *gs_device_at_location(const CUmemLocation *location);

static inline uint32_t gs_device_flags(const struct gs_device *device)
{
    return atomic_load_explicit(&device->target.flags, memory_order_relaxed);
}

static inline bool gs_device_is_movable(const struct gs_device *device)
{
    return atomic_load_explicit(&device->movable, memory_order_relaxed);
}

/* Bytes that the program may have there, kept ones included. Any thread. */
uint64_t gs_device_room(const struct gs_device *device);

/* The device of the calling thread's current context; NULL: none. */
struct gs_device *gs_device_current(void);

/* Iterates over the devices in use: i from 0 until NULL. */
struct gs_device *gs_device_at(unsigned i);

/* Notes a context (again: no effect). False: it cannot be noted, and will not be waited for.
 * Any thread. */
bool gs_context_add(CUcontext handle, struct gs_device *device);

/* The same for a green context, of whose work and memory home has charge. */
bool gs_context_add_green(CUcontext handle, CUcontext home, struct gs_device *device);

/* The record of a context; NULL: none. Any thread. */
const struct gs_context *gs_context_find(CUcontext handle);

/* The context that has charge of what is done and allocated in this one: itself, or a green
 * one's primary one. A green one can be current to one thread only, so that we never enter it.
 * Any thread. */
CUcontext gs_context_home(CUcontext handle);

/* Forgets it, and with a primary one its green ones. The caller has parked the client thread
 * (gs_worker_park). */
void gs_context_remove(CUcontext handle);

/* Makes it the current one (cuCtxPopCurrent ends that). More than one attempt: a
 * caller that could not ask would take it for broken, and its work for ended. Any thread. */
CUresult gs_context_push(CUcontext handle);

/* Changes whenever a context ends: a handle is of the same context only while this is the same.
 * Any thread. */
uint32_t gs_contexts_generation(void);

/* A call in that context (NULL: the current one) has failed so: if that is what a context never
 * gets over, gs_context_check() asks from now on. Any thread. */
void gs_context_failed(CUcontext handle, CUresult result);

/* The error of the driver's own cuMemAlloc in the current context, which must be this one, if the
 * context has failed for good; else CUDA_SUCCESS. Any thread. */
CUresult gs_context_ask(CUcontext handle);

extern _Atomic(bool) gs_any_suspect; /* relaxed: a context that was suspected is asked */

/* The driver allocates nothing in a context that has failed for good; what we make memory of
 * needs no context, and would be given out there. */
static inline CUresult gs_context_check(CUcontext handle)
{
    return __builtin_expect(atomic_load_explicit(&gs_any_suspect, memory_order_relaxed), 0)
               ? gs_context_ask(handle)
               : CUDA_SUCCESS;
}

/* Iterates over the contexts; NULL behind the last slot; slots with a NULL handle are free. For
 * the client thread, and for others only for reading handles. */
struct gs_context *gs_context_at(unsigned i);

/* A context in which memory of this device can be copied, no green one, a sound one if there is
 * one; NULL: none is left. */
struct gs_context *gs_context_for(const struct gs_device *device);

/* The device behind the ordinal is another one of the same model now. Client thread. */
void gs_device_set_uuid(struct gs_device *device, const uint8_t uuid[16]);

void gs_devices_after_fork(void);

#endif
