/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_uses.h: what the launches of graphs use (uses.h). Their kernels' parameters are looked at
 * when an executable graph is made, its launches are counted. A graph that was made while nothing
 * lay beyond the card is not known.
 */
#pragma once

#include "runtime/base/base.h"

/* That executable graph was made of, or updated to, the graph. NULL, either: nothing happens. Any
 * thread. */
void gs_graph_uses_made(CUgraphExec exec, CUgraph graph);

/* It was launched; NULL: nothing was. Any thread. */
void gs_graph_uses_launched(CUgraphExec exec);

/* Notes what was launched since the last call. Client thread. */
void gs_graph_uses_note(void);
