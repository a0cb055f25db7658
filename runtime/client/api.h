/* SPDX-License-Identifier: Apache-2.0
 *
 * api.h: the program's wishes to the daemon and to its own gate, which pass from the functions of
 * gpushare.h to the client thread; and the program's callback before memory leaves, for which the
 * client thread waits with a bound.
 */
#pragma once

#include "runtime/base/base.h"
#include "lockd/protocol/wire.h"

/* True if the program said that it is idle and no thread has passed the gate since. Client thread. */
bool gs_wish_is_idle(void);

/* Fills in the message except its header; false: the daemon on this connection knows everything
 * already, or there is nothing to send. Client thread. */
bool gs_wish_news(struct gs_wire_wish *wish);

/* To be called when the message of gs_wish_news() has been sent. Client thread. */
void gs_wish_sent(void);

/* There is a new connection, whose daemon knows nothing. Client thread. */
void gs_wish_anew(void);

/* Before the gate closes because memory may leave: asks the callback once for each stop, and
 * returns for how many ns it is to be waited; 0: the gate may close. Client thread. */
uint64_t gs_pressure_wait(uint64_t now);
/* The program runs again: the next stop calls it again. Client thread. */
void gs_pressure_over(void);
