/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.h: the program's wishes to the daemon and to its own gate. They pass from the functions of
 * gpushare.h, which any thread calls, to the client thread.
 */
#pragma once

#include "runtime/base/base.h"
#include "lockd/protocol/wire.h"

/* Any thread: the program wishes this class (enum gs_wire_class), or to be suspended or not,
 * from now on. */
void gs_wish_class(uint32_t class_number);
void gs_wish_suspend(bool suspended);

/* Any thread: the program has nothing to do until its next pass through the gate. */
void gs_wish_idle(void);

/* True if it wished that and no thread has passed the gate since. Client thread. */
bool gs_wish_is_idle(void);

/* Fills in the message except its header; false: the daemon on this connection knows everything
 * already, or there is nothing to send. Client thread. */
bool gs_wish_news(struct gs_wire_wish *wish);

/* To be called when the message of gs_wish_news() has been sent. Client thread. */
void gs_wish_sent(void);

/* There is a new connection, whose daemon knows nothing. Client thread. */
void gs_wish_anew(void);
