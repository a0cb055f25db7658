/* SPDX-License-Identifier: Apache-2.0
 *
 * edge.h: readable memory on both sides of cuMemAlloc's ranges. The driver's own allocations have
 * neighbours, so a kernel that reads a little below or above its array gets some data. A range of
 * ours has an edge there, which can be read and holds no data of the program. All edges of a
 * device are the same memory, one granule.
 *
 * To the program an edge is no memory at all: questions, copies and frees are answered as for an
 * address that the driver does not know.
 */
#pragma once

#include "runtime/range/range.h"

/* A device has a context: makes memory for its edges, unless it has some. It is there before the
 * program can ask how much memory is free. make_room: called if the card is full, once in a
 * device's life (gs_room_make()); NULL: not called. Outside the gate. */
void gs_edge_begin(CUdevice ordinal, bool (*make_room)(struct gs_device *, unsigned attempt));

/* A context has ended: devices without any release the memory of their edges. */
void gs_edges_context_ended(void);

/* Reserves addresses for a range and for an edge on either side. */
CUresult gs_edge_reserve(struct gs_range *range);

/* The range has got memory: maps its edges, readable by its own device, unless they are mapped.
 * If that fails the range still works; a read beside it faults, and the next attempt may
 * succeed. The caller may change the range's chunks. */
void gs_edge_map(struct gs_range *range);

/* Reverses both; no chunk is on the device. */
void gs_edge_give_back(struct gs_range *range);

/* Under gs_memory_lock: true if one of these addresses was reserved here: of an edge, of a
 * range, or of what is left of its last granule. */
bool gs_edge_reserved(CUdeviceptr address, uint64_t bytes);
