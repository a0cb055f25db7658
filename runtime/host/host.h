/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: host memory for what is not on the device: an arena of segments that are touched
 * ahead of need by threads of its own, registered with the driver once, and cut into blocks.
 *
 * In this order: registered memory as far as the daemon's budget goes; memory that is not
 * registered (slower) as far as the machine has some to spare; a file in the folder that
 * GPUSHARE_SPILL names; then nothing.
 */
#ifndef GS_RUNTIME_HOST_HOST_H
#define GS_RUNTIME_HOST_HOST_H

#include <stdbool.h>
#include <stdint.h>

/* The unit in which memory is hashed, compared and copied (swap/hash_core.h). */
#define GS_BLOCK_BYTES (2ull << 20)

struct gs_host_segment;

struct gs_host_block {
    char *memory; /* NULL: it is in the file (host_file.h) */
    uint64_t bytes;
    struct gs_host_segment *segment; /* NULL: in the file */
    uint64_t offset;                 /* in the segment, or in the file */
    bool known;                      /* hashes are those of what is stored */
    uint64_t hashes[][2]; /* of each GS_BLOCK_BYTES; 0, 0: all zero, and not stored */
};

/* bytes of host memory. NULL: there is none left. Client thread, with a current context. */
struct gs_host_block *gs_host_get(uint64_t bytes);

/* Takes NULL. Any thread. */
void gs_host_put(struct gs_host_block *block);

/* So many bytes may be needed soon: threads of the arena begin to provide them. Client thread.
 */
void gs_host_prepare(uint64_t bytes);

/* Registers a segment that has been made ready, with the current context; true: there are more.
 * Client thread. */
bool gs_host_register_one(void);
bool gs_host_has_unregistered(void);

/* Gives back segments in which nothing is stored, until at most keep bytes are held. Client
 * thread, with a current context. */
void gs_host_trim(uint64_t keep);

/* A context has ended, and with it what was registered there. Any thread. */
void gs_host_context_ended(const void *context);

/* The device is another one now: the node next to it is asked for again. Existing memory stays. Client
 * thread. */
void gs_host_device_changed(void);

/* Bytes of host memory that this process holds; any thread. */
uint64_t gs_host_used(void);
/* Bytes that it would hold if it had got all it asked for, claims included; any thread. */
uint64_t gs_host_wanted(void);
/* The most that may be registered from now on, bytes; UINT64_MAX: no limit. Memory that
 * is there already goes with gs_host_trim(). Any thread. */
void gs_host_set_budget(uint64_t bytes);
uint64_t gs_host_budget(void); /* without what is claimed */

/* Counts bytes of host memory that the library has by other means (range/over.h). LATER: beyond
 * the budget, and the need counts as wanted until the next claim, or until it is given up. Any thread. */
enum gs_host_claim { GS_HOST_CLAIMED, GS_HOST_LATER, GS_HOST_NONE };
enum gs_host_claim gs_host_claim(uint64_t bytes);
void gs_host_unclaim(uint64_t bytes);
/* Withdraws a claim that was answered by LATER. */
void gs_host_give_up_claim(void);
/* The bytes that have been claimed; not in gs_host_used(). */
uint64_t gs_host_claimed(void);

void gs_host_after_fork(void);

#endif
