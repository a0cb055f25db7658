/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.h: spreading is kept only where the program does not become slower by it. A kernel that reads its
 * memory several times (a product of matrices) reads what lies beyond the card as often over the
 * bus; nothing that a launch says tells such kernels from others. So the time that the program
 * takes for a byte that it uses is compared, window by window, with the best since spreading
 * began; where it is worse, the exchanges since then are undone.
 *
 * Times hold rests of the program and its work on the CPU as well. So a trial may be lost by chance: the chunks
 * go back, and after some windows spreading is tried again. Client thread only.
 */
#ifndef GS_RUNTIME_SWAP_TRIAL_H
#define GS_RUNTIME_SWAP_TRIAL_H

#include <stdbool.h>

#include "runtime/swap/exchange.h"

/* No trial runs that waits for the end of its window, and the last lost one is long enough ago. */
bool gs_trial_may_spread(void);

/* The two have changed places to spread what lies beyond the card. */
void gs_trial_note(const struct gs_exchange_chunk *to_card,
                   const struct gs_exchange_chunk *beyond);

/* A window has ended in which the program took so many ns for each byte that it used; 0: that is not known. */
void gs_trial_end_window(double pace);

/* Under gs_memory_lock: the next two that change places back. False: there are none. */
bool gs_trial_choose(const struct gs_device *device, struct gs_exchange_chunk *to_card,
                     struct gs_exchange_chunk *beyond);

/* Those have changed places, or could not. */
void gs_trial_undone(void);

/* Chunks change places for another reason: what was measured is of the past. */
void gs_trial_forget(void);

#endif
