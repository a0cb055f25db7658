/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.h: what the program wants of the daemon and of its own gate, between the functions of
 * gpushare.h, which any thread calls, and the client thread.
 */
#ifndef GS_RUNTIME_API_WISH_H
#define GS_RUNTIME_API_WISH_H

#include <stdbool.h>
#include <stdint.h>

#include "lockd/protocol/wire.h"

/* Any thread: the class (enum gs_wire_class), or to be suspended or not, from now on. */
void gs_wish_class(uint32_t class_number);
void gs_wish_suspend(bool suspended);

/* Any thread: the program has nothing to do until its next pass through the gate. */
void gs_wish_idle(void);

/* True if it said so and no thread has passed the gate since. Client thread. */
bool gs_wish_is_idle(void);

/* Fills in the message, but for its header; false: the daemon on this connection knows all
 * already, or there is nothing to say. Client thread. */
bool gs_wish_news(struct gs_wire_wish *wish);

/* To be called when the message of gs_wish_news() has been sent. Client thread. */
void gs_wish_sent(void);

/* A new connection, whose daemon knows nothing. Client thread. */
void gs_wish_anew(void);

void gs_wish_after_fork(void);

#endif
