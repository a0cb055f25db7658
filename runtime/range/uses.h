/* SPDX-License-Identifier: Apache-2.0
 *
 * uses.h: which chunks the program uses, as its calls show. If not all chunks fit on the card,
 * this decides which chunks are there (swap/placement.h). It is a guess, on which nothing but speed
 * may depend.
 */
#pragma once

#include "runtime/base/base.h"

/* True if memory lies beyond the card, or has. Relaxed: read only on the gate's slow path. */
extern _Atomic(bool) gs_uses_noted;

/* Begins to look at calls. */
void gs_uses_begin(void);

/* Notes a copy or a set of so many bytes there; ignores addresses that are not the program's
 * movable memory. Any thread. */
void gs_uses_span(CUdeviceptr address, uint64_t bytes);

/* Notes a launch with these parameters, in one of the two forms of cuLaunchKernel: every 8-byte
 * word in them may be an address. Any thread. */
void gs_uses_launch(CUfunction function, void **params, void **extra);

/* Bytes noted since the last call. Client thread. */
uint64_t gs_uses_take(void);

/* True if the memory has been used again that was used first after gs_uses_anchor(). */
bool gs_uses_came_back(void);

/* Looks out for it from now on; anew: for the memory that is used next. Client thread, both. */
void gs_uses_anchor(bool anew);

/* A window has ended: forgets addresses that no launch in it had. Client thread. */
void gs_uses_age(void);

/* Calls visit() for the nodes of the graph, and for those of graphs inside it. Any thread. */
typedef void gs_graph_visit(CUgraphNode node, CUgraphNodeType type, void *context);
void gs_graph_walk(CUgraph graph, gs_graph_visit *visit, void *context);

/* What the launches of graphs use: their kernels' parameters are looked at when an executable
 * graph is made, its launches are counted. A graph that was made while nothing lay beyond the card
 * is not known. */

/* That executable graph was made of, or updated to, the graph. NULL, either: nothing happens. Any
 * thread. */
void gs_graph_uses_made(CUgraphExec exec, CUgraph graph);

/* It was launched; NULL: nothing was. Any thread. */
void gs_graph_uses_launched(CUgraphExec exec);

/* Notes what was launched since the last call. Client thread. */
void gs_graph_uses_note(void);
