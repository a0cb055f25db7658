/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: what this process knows about each device that it uses, and about its contexts there.
 */
#pragma once

#include <stdatomic.h>

#include "runtime/base/driver.h"

#define GS_MAX_DEVICES 64
#define GS_MAX_PEERS   16
#define GS_IDLE_SIZES  32

struct gs_range;
struct gs_mover;

/* The newest target. client/session.c writes it, on the client thread; any thread reads
 * (relaxed: a stale value costs a round, nothing else). */
struct gs_device_target {
    _Atomic(uint32_t) seq, flags;
    _Atomic(uint64_t) budget, capacity, idle_ns, shortfall, overcommit;
    uint64_t told_capacity; /* as the daemon sent it; client thread only */
    /* gs_daemon_ask_room(): the newest question and answer, and a question whose wait is over */
    _Atomic(uint64_t) asked, answered, waited;
};

/* Bytes. The header of range/range.c says what each is the sum of. Under gs_memory_lock. */
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
    /* How often a thread has begun to make or release memory of ranges, and has ended. Between the
     * two, `resident` is not what the card has. */
    uint32_t works_begun, works_ended;
};

/* memory/retire.c: ranges of which the client thread is to dispose, in the order in which they
 * were freed. Under gs_memory_lock. */
struct gs_device_dead {
    struct gs_range *first, *last;
};

/* memory/idle_ranges.c. The lists are under gs_memory_lock. */
struct gs_device_idle {
    struct gs_range *lists[GS_IDLE_SIZES]; /* by size */
    uint64_t looked_at;                    /* ns; client thread only */
};

/* swap/swap_mover.c: where the search for the next chunk continues, and in which pass over the
 * ranges. Under gs_memory_lock. */
struct gs_device_sweep {
    struct gs_range *cursor;
    uint8_t pass;
    uint64_t exact; /* in: the bytes of memory for which it looked last; 0: for any ... */
    bool blind;     /* ... which nobody looks at */
};

/* calls/hook_context.c: the devices whose contexts were given access to this device. */
struct gs_device_peers {
    CUdevice ordinals[GS_MAX_PEERS];
    unsigned count;
};

/* range/edge.c: the memory that all edges of the device share. Under gs_memory_lock, except the
 * last field. */
struct gs_device_edge {
    CUmemGenericAllocationHandle handle;
    bool present;
    _Atomic(bool) sought; /* room for it was asked for, which happens once; relaxed */
};

/* swap/moving.c. Client thread only, except the first field. */
struct gs_device_moving {
    /* Resident bytes that should leave and cannot: there is no host memory, or the program keeps
     * them without an address (cuMemUnmap). The daemon counts them as pinned: demand, resident
     * and capacity in messages do not include them. Relaxed. */
    _Atomic(uint64_t) kept;
    uint64_t kept_looked_at; /* ns */
    uint64_t retry_at;       /* ns: no copy-in before; the driver was out of memory */
    uint64_t short_since;    /* ns: the driver is out of memory since then; 0: it is not */
    uint64_t lacks_ns;       /* for so long nothing more came of what is missing */
    uint64_t lacks_least; /* bytes: the least that was missing since anything is; 0: nothing */
    uint64_t lacks_at;    /* ns: the last look in time that counts; 0: it did not */
    bool goes_beyond;     /* what is missing is to go beyond the card: swap/beyond.c */
    bool refuses;         /* calls fail because of it */
    uint64_t spent_ns;    /* ns for moving since the program last ran */
    uint64_t switch_ns;   /* ns that the last way out and back took */
    bool was_out;
    bool loose_out; /* loose memory was sent away since the program last ran (loose.h) */
};

/* client/report.c: for the next report. Client thread only, except the last fields. */
struct gs_device_report {
    uint64_t short_bytes;
    bool known; /* to the daemon; if not, the next state is sent in any case */
    /* bytes that gs_room_make() asks the daemon for. Relaxed: the client thread is woken after
     * it is set */
    _Atomic(uint64_t) short_asked;
    /* bytes; memory/room.c: the room, and the free memory, when it began to ask. Relaxed:
     * several threads may ask, and each may use the values of another */
    _Atomic(uint64_t) room_before, free_before;
};

/* memory/graph_memory.c. Client thread only. */
struct gs_device_graphs {
    uint64_t bytes;
    uint64_t looked_at; /* ns */
    bool trimmed;       /* since it last stopped */
    uint64_t asked;     /* the newest question (target.asked) at the last look */
};

/* The first eight fields say which device it is and what it can do (device.c). Each of the
 * others belongs to the file named at its type. */
struct gs_device {
    CUdevice ordinal;
    uint8_t uuid[16];
    char name[64];
    uint64_t physical;     /* bytes, by the driver */
    uint64_t total;        /* bytes, as the program sees it: the limit, if that is lower */
    uint64_t granule;      /* bytes: granularity of VMM, and of all accounts here */
    _Atomic(bool) movable; /* cuMemAlloc gives memory that can be moved; later set to false
                              only if no client thread could be started */
    bool managed;          /* that memory is managed memory (backend.h) */
    bool prefetches;       /* managed memory can be prefetched to and from it */
    bool integrated;       /* it uses the memory of the host: nothing is moved */

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
    /* swap/swap.c, under gs_memory_lock: every context has failed for good, no memory comes
     * back, and calls must fail */
    bool broken;
};

struct gs_context {
    /* NULL: free slot. Stored last (release) and read first: then the rest of the slot is valid. */
    _Atomic(CUcontext) handle;
    struct gs_device *device;
    CUcontext home; /* of a green context: its primary context (gs_context_home); else NULL */
    struct gs_mover *mover; /* swap.c: streams, and jobs under way; client thread only */
    CUfunction hash;        /* kernels.c; NULL: not loaded */
    unsigned kernel_attempts;
    _Atomic(bool) broken;  /* it has failed for good; only the client thread writes, relaxed */
    _Atomic(bool) suspect; /* it may have failed for good: a call gave a final error; relaxed */
};

/* The device of an ordinal, set up at its first use. NULL: the driver does not answer (the
 * caller passes the call through). Any thread. Entries never move and are never removed. */
struct gs_device *gs_device_get(CUdevice ordinal);
/* The same, only if it was set up already: for queries about it. */
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

/* Bytes that the program may have there, kept bytes included. Any thread. */
uint64_t gs_device_room(const struct gs_device *device);

/* The device of the calling thread's current context; NULL: none. */
struct gs_device *gs_device_current(void);

/* The devices in use, side by side: i from 0 until NULL. */
struct gs_device *gs_device_at(unsigned i);

static inline struct gs_device *gs_device_after(const struct gs_device *device)
{
    return gs_device_at(device != NULL ? (unsigned)(device - gs_device_at(0)) + 1 : 0);
}

/* Declares `device`. */
#define gs_each_device(device)                                                                 \
    for (struct gs_device *device = gs_device_after(NULL); device != NULL;                     \
         device = gs_device_after(device))

/* True if the condition, which names it `device`, holds for any of them. */
#define GS_ANY_DEVICE(condition)                                                               \
    ({                                                                                         \
        bool any_device = false;                                                               \
                                                                                               \
        gs_each_device (device)                                                                \
            any_device = any_device || (condition);                                            \
        any_device;                                                                            \
    })

/* Notes a context (again: no effect). False: it cannot be noted, so its work will not be waited
 * for. Any thread. */
bool gs_context_add(CUcontext handle, struct gs_device *device);

/* The same for a green context, whose work and memory belong to home. */
bool gs_context_add_green(CUcontext handle, CUcontext home, struct gs_device *device);

/* The record of a context; NULL: none. Any thread. */
struct gs_context *gs_context_find(CUcontext handle);

/* The context to which work and memory of this one belong: itself, or the primary one of a green
 * context. A green context can be current to one thread only, so we never enter a green context.
 * Any thread. */
CUcontext gs_context_home(CUcontext handle);

/* Forgets the context, and with a primary context its green contexts. The caller has parked the
 * client thread (gs_worker_park). */
void gs_context_remove(CUcontext handle);

/* Makes the context current until gs_context_pop(). Makes more than one attempt: a caller that
 * could not enter it would take it for broken, and its work for ended. Any thread. */
CUresult gs_context_push(CUcontext handle);

static inline void gs_context_pop(void)
{
    CUcontext popped;

    gs_driver.cuCtxPopCurrent_v2(&popped);
}

/* Changes whenever a context ends: while this is the same, a handle is of the same context. Any
 * thread. */
uint32_t gs_contexts_generation(void);

/* A call in that context (NULL: the current context) has failed with this result. If a context
 * never recovers from that, gs_context_check() asks the driver from now on. Any thread. */
void gs_context_failed(CUcontext handle, CUresult result);

/* The error of the driver's own cuMemAlloc in that context (or the current context, if there is
 * one), if the context has failed for good; else CUDA_SUCCESS. Any thread. */
CUresult gs_context_ask(CUcontext handle);
CUresult gs_context_ask_current(void);

/* The driver's answer to a call with wrong arguments, which it looks at last: that there is no
 * current context, or that it has failed for good, or CUDA_ERROR_INVALID_VALUE. Any thread. */
CUresult gs_context_refusal(void);

extern _Atomic(bool) gs_any_suspect; /* relaxed: some context is; the driver is asked */

/* The driver allocates nothing in a context that has failed for good. Our memory needs no
 * context, so without this check it would be given out there. */
static inline CUresult gs_context_check(CUcontext handle)
{
    return __builtin_expect(atomic_load_explicit(&gs_any_suspect, memory_order_relaxed), 0)
               ? gs_context_ask(handle)
               : CUDA_SUCCESS;
}

/* The driver frees nothing in such a context either. */
static inline CUresult gs_context_check_current(void)
{
    return __builtin_expect(atomic_load_explicit(&gs_any_suspect, memory_order_relaxed), 0)
               ? gs_context_ask_current()
               : CUDA_SUCCESS;
}

/* Iterates over the contexts; NULL after the last slot; slots with a NULL handle are free. For
 * the client thread; other threads may only read handles. */
struct gs_context *gs_context_at(unsigned i);

/* A context in which memory of this device can be copied: not green, and sound if any is; NULL:
 * none is left. */
struct gs_context *gs_context_for(const struct gs_device *device);

/* Makes such a context current until gs_context_pop(). */
static inline bool gs_context_enter(const struct gs_device *device)
{
    const struct gs_context *context = gs_context_for(device);

    return context != NULL && gs_context_push(context->handle) == CUDA_SUCCESS;
}

/* The ordinal now means another device of the same model. Client thread. */
void gs_device_set_uuid(struct gs_device *device, const uint8_t uuid[16]);

void gs_devices_after_fork(void);
