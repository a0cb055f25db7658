/* SPDX-License-Identifier: Apache-2.0
 *
 * balance_load.h: the load of programs, and how busy they keep the cards.
 */
#ifndef GS_LOCKD_MOVE_BALANCE_LOAD_H
#define GS_LOCKD_MOVE_BALANCE_LOAD_H

#include "lockd/move/balance.h"

/* NULL: no program sees such a card. */
struct balance_place *balance_place_find(const struct balance *balance, const uint8_t *uuid);
struct balance_sight *balance_sight_find(const struct balance_program *program,
                                         const struct balance_place *place);
/* Reads the load of all programs and adds it up for all cards. Returns whether any program
 * waited, or may have lost time to others that run at the same time. */
bool balance_load_take(struct balance *balance, uint64_t now_ns);
/* The program is on another card now: its earlier figures no longer serve for comparison. */
void balance_load_forget(struct balance_program *program);

#endif
