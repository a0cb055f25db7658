/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_move.h: the guard of a program that changes devices.
 */
#ifndef GS_LOCKD_MOVE_GUARD_MOVE_H
#define GS_LOCKD_MOVE_GUARD_MOVE_H

#include "lockd/move/guard_driver.h"

/* Carries out MOVE or TAKE_UP. record: the descriptor that came with TAKE_UP; -1: none. Returns
 * only when the program is on one of the devices, with or without the daemon. Returns an exit
 * code. */
int lockd_guard_move(const struct guard_driver *driver, const struct lockd_guard_order *order,
                     int record);
/* The daemon's next packet. with: the descriptor that came with it, or -1. False: the daemon has
 * gone, or sent no valid message. */
bool lockd_guard_hear(struct lockd_guard_order *order, int *with);

#endif
