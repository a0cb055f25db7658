/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.h: device memory that passes to another program, or comes from it, without being
 * released between (lockd/server/handover.h). On its way it is a descriptor. A descriptor that
 * has come is kept for as long as its memory is used, since a driver makes descriptors of its own
 * memory only.
 *
 * Memory in hand counts as resident: the budget has risen by it. Client thread, unless marked.
 */
#pragma once

#include "common/packet.h"
#include "lockd/protocol/wire.h"
#include "runtime/range/range.h"

/* --- what comes --- */

/* The number of descriptors that may come with the next message; at least `least`, unless a
 * thread forks. They belong to nobody until gs_handover_end(), and no child is forked
 * meanwhile (see gs_handover_before_fork). */
unsigned gs_handover_expect(unsigned least);

/* A target has come, whose budget does not count yet. Takes the memory that came with it, as far
 * as it is useful and has room (the rest stays in `with`). With RUN off, releases all memory in
 * hand. With RUN on, releases all memory that was given and not sent, since that much is to come
 * back. */
void gs_handover_heard(struct gs_device *device, const struct gs_wire_target *target,
                       struct gs_descriptors *with);

/* Bytes in hand for that device. */
uint64_t gs_handover_in_hand(const struct gs_device *device);

/* Bytes of the i-th piece of them; 0: there are not so many. */
uint64_t gs_handover_bytes(const struct gs_device *device, unsigned i);

/* Maps memory in hand at the chunk's address, in the order in which it came. It has another
 * program's contents: all that differs from the chunk's is written next. False: no memory in hand
 * fits. */
bool gs_handover_place(struct gs_range *range, uint32_t chunk);

/* Releases memory in hand beyond so many bytes. */
void gs_handover_shrink(struct gs_device *device, uint64_t most);

/* --- what goes --- */

/* True if memory of the range may be given away, and taken from others: it is plain memory of the
 * device, in no other process's reach. Any thread. */
bool gs_handover_suits(const struct gs_range *range);

/* True if memory that came may serve the range: it can do what the range's memory was asked for.
 * network: network cards can reach the memory. A driver says so of no memory that was imported, so its
 * first owner does. */
bool gs_handover_serves(const struct gs_range *range, bool network);

/* True if memory for this chunk should be made so that it can be given away. Any thread. */
bool gs_handover_is_wanted(const struct gs_range *range, uint32_t chunk);

/* Takes the chunk's memory away, as backend.h's remove() does, and keeps it for the next
 * report. False: nothing was done. */
bool gs_handover_give(struct gs_range *range, uint32_t chunk);

/* Puts the given memory into a report; it stays ours until gs_handover_sent(). */
void gs_handover_report(const struct gs_device *device, struct gs_wire_state *state,
                        struct gs_descriptors *with);

/* The report was sent: the memory that the device gave is the daemon's now, or nobody's. */
void gs_handover_sent(const struct gs_device *device);

/* --- what others open (client/ipc.c) --- */

/* Between these two calls a descriptor may be open that has no place yet. False: a thread forks. */
bool gs_handover_begin(void);
void gs_handover_end(void);

/* A descriptor of a chunk that is on the device; *made: the caller closes it. -1: there is none.
 * Between the two calls above. */
int gs_handover_lend(const struct gs_chunk *chunk, bool *made);

/* True if pieces of any device are in hand, or given and not sent. */
bool gs_handover_has_any(void);

/* --- always --- */

/* The chunk's memory has gone. Any thread. */
void gs_handover_forget(struct gs_chunk *chunk);

/* The connection has ended. */
void gs_handover_lost(void);

/* Before fork(). A child that inherits a descriptor which has no place yet would keep its memory
 * for as long as it lives. So until gs_handover_after_fork() nothing is given or received; this
 * waits for what is under way, for at most FORK_WAIT_NS. Any thread. */
void gs_handover_before_fork(void);
void gs_handover_after_fork(void);

/* In a forked child: lets go of the parent's memory. */
void gs_handover_in_child(void);
