/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: host memory for chunks that are not on the device: an arena of segments, which threads
 * of its own touch before they are needed. Segments are registered with the driver once, and cut
 * into blocks.
 *
 * It gives, in this order: registered memory within the daemon's budget; memory that is not
 * registered (slower) while the machine has some left; a file in the folder that GPUSHARE_SPILL
 * names; then nothing.
 */
#pragma once

#include "runtime/base/base.h"

/* The unit in which memory is hashed, compared and copied (swap/hash_core.h). */
#define GS_BLOCK_BYTES (2ull << 20)

struct gs_host_segment;

/* Memory that other programs may have as well (swap/common.c): nobody can write it. */
struct gs_host_common {
    char *memory;
    uint64_t bytes, number;          /* number: of the offer with which it came */
    struct gs_host_segment *segment; /* registered as such; NULL: no block has had it yet */
    bool foreign;     /* another program made it: it is in no account of this one */
    bool whole;       /* it has no holes, which to register it would fill */
    unsigned holders; /* blocks and offers; under arena.lock */
};

struct gs_host_block {
    char *memory; /* NULL: it is in the file (host_file.h) */
    uint64_t bytes;
    struct gs_host_segment *segment; /* NULL: in the file, or common */
    uint64_t offset;                 /* in the segment, or in the file */
    bool known;                      /* the hashes match the stored bytes */
    struct gs_host_common *common;   /* NULL: its memory is its own */
    _Atomic(unsigned) holders;       /* its chunk, and the client thread while it reads it */
    uint64_t unlike;                 /* number of the newest offer that has other contents */
    uint8_t held; /* others are expected to hold most of it; so often it may not be so, one
                     after the other, until they are not */
    bool found, stayed;  /* another program was seen to have all of it; it has left unchanged */
    uint8_t offers;      /* to other programs */
    uint64_t offered_at; /* ns: the last of them */
    uint64_t hashes[][2]; /* of each GS_BLOCK_BYTES; 0, 0: all zero, and not stored */
};

/* Returns so many bytes of host memory. NULL: there is none left. Client thread, with a current
 * context. */
struct gs_host_block *gs_host_get(uint64_t bytes);

/* One more holder has the block. Under gs_memory_lock, as long as it is a live chunk's. */
void gs_host_keep(struct gs_host_block *block);
/* Of its last holder: the block ends. Takes NULL. Any thread. */
void gs_host_put(struct gs_host_block *block);

/* Takes over mapped memory, for one holder. whole: it has no holes, which to register it would
 * fill. NULL: out of host memory, and it is unmapped. */
struct gs_host_common *gs_host_share(char *memory, uint64_t bytes, uint64_t number,
                                     bool foreign, bool whole);
/* Of its last holder: it is unmapped. Any thread. */
void gs_host_unshare(struct gs_host_common *common);
/* A block with the same contents as this one in common memory. NULL: out of host memory. Client
 * thread. */
struct gs_host_block *gs_host_adopt(const struct gs_host_block *like,
                                    struct gs_host_common *common);
/* The driver cannot read it by itself: common memory that is not registered, or not yet. Client
 * thread. */
bool gs_host_needs_stage(const struct gs_host_block *block);
/* Bytes of common memory that other programs made, and that blocks here have. Any thread. */
uint64_t gs_host_foreign(void);
/* Releases one segment in which nothing is stored, if more is held than was asked for last
 * (gs_host_prepare). False: there is none. Client thread, with a current context. */
bool gs_host_shrink(void);

/* So many bytes may be needed soon: threads of the arena begin to make them ready. Client
 * thread. */
void gs_host_prepare(uint64_t bytes);

/* Registers one segment that is ready, with the current context; true: there are more. Client
 * thread. */
bool gs_host_register_one(void);
bool gs_host_has_unregistered(void);

/* Releases one piece of common memory that nobody has any more; true: there is more. With the
 * current context, if there is one; the driver may wait for all that runs in it. Client thread. */
bool gs_host_release_one(void);
bool gs_host_has_ended(void);

/* Releases segments in which nothing is stored, until at most keep bytes are held. Client
 * thread, with a current context. */
void gs_host_trim(uint64_t keep);

/* A context has ended, and with it the registrations in it. Any thread. */
void gs_host_context_ended(const void *context);

/* The device has changed: the NUMA node next to it is looked up again. Existing memory stays.
 * Client thread. */
void gs_host_device_changed(void);

/* Bytes for which there is host memory by the process's own limits (RLIMIT_DATA, RLIMIT_AS), in steps;
 * UINT64_MAX: no limit of its own, or a file. Client thread. */
uint64_t gs_host_room(void);

/* Bytes of host memory that this process holds; any thread. */
uint64_t gs_host_used(void);
/* The bytes that it would hold if it had got everything it asked for, claims included; any
 * thread. */
uint64_t gs_host_wanted(void);
/* The most bytes of the program's own that may be registered from now on (common memory is there
 * already); UINT64_MAX: no limit. gs_host_trim() releases what is registered already. Any
 * thread. */
void gs_host_set_budget(uint64_t bytes);
uint64_t gs_host_budget(void); /* less the claimed bytes */

/* Counts bytes of host memory that the library has by other means (range/over.h). LATER: they
 * are beyond the budget; they count as wanted until the next claim, or until the claim is given
 * up. Any thread. */
enum gs_host_claim { GS_HOST_CLAIMED, GS_HOST_LATER, GS_HOST_NONE };
enum gs_host_claim gs_host_claim(uint64_t bytes);
void gs_host_unclaim(uint64_t bytes);
/* Withdraws a claim that was answered by LATER. */
void gs_host_give_up_claim(void);
/* The bytes that have been claimed; not in gs_host_used(). */
uint64_t gs_host_claimed(void);
