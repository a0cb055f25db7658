/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.h: which chunks of a program that is larger than the card are on it (range/over.h).
 * What is used more goes to the card and what is used less to the host, if that is worth what it
 * costs. Client thread.
 */
#ifndef GS_RUNTIME_SWAP_PLACEMENT_H
#define GS_RUNTIME_SWAP_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Whether something is to change places, for which the program has to stop; may_run: it runs,
 * and may go on. Returns ns until the next look. */
uint64_t gs_placement_look(uint64_t now, bool may_run);

bool gs_placement_needs_stop(void);

/* Maps what an earlier exchange has left without an address; then one exchange, if the program may
 * run on. The gate is closed, and everything submitted has finished. True: there is more to
 * exchange. */
bool gs_placement_step(bool may_exchange);

void gs_placement_after_fork(void);

#endif
