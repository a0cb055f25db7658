/* SPDX-License-Identifier: Apache-2.0
 *
 * spread.h: spreads what lies beyond the card evenly over memory that is used alike. A kernel
 * that goes over memory of which a little lies beyond the card everywhere waits for the card and
 * for the bus at once; where that lies in one piece, for one after the other.
 */
#ifndef GS_RUNTIME_SWAP_SPREAD_H
#define GS_RUNTIME_SWAP_SPREAD_H

#include <stdbool.h>

#include "runtime/base/device.h"
#include "runtime/swap/exchange.h"

/* Under gs_memory_lock: two chunks of which the first lies beyond the card and the second on it,
 * and which would better be the other way round. False: there are none. */
bool gs_spread_choose(const struct gs_device *device, struct gs_exchange_chunk *beyond,
                      struct gs_exchange_chunk *on_card);

#endif
