/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.h: decides which chunks of a program that is larger than the card are on it
 * (range/over.h). Chunks that are used more go to the card, and those that are used less to the
 * host, if the gain is worth the cost. Client thread.
 */
#pragma once

#include "runtime/base/base.h"

/* Looks whether chunks should change places; the program has to stop for that. may_run: it runs,
 * and may go on. Returns ns until the next look. */
uint64_t gs_placement_look(uint64_t now, bool may_run);

bool gs_placement_needs_stop(void);

/* Maps chunks that an earlier exchange left without an address. Then does one exchange, if the
 * program may run on. The gate is closed, and everything submitted has finished. True: there is
 * more to exchange. */
bool gs_placement_step(bool may_exchange);

void gs_placement_after_fork(void);
