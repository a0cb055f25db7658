/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.h: exchanges are kept only where the program does not become slower by them. A kernel that reads
 * its memory several times (a product of matrices) reads what lies beyond the card as often over the
 * bus; nothing that a launch says tells such kernels from others. So the time that the program
 * takes for a byte that it uses is compared, window by window, with the best so far; where it is worse
 * after exchanges, those since the best are undone.
 *
 * The program's work on the CPU counts as well, so a trial may be lost by chance, or because the program
 * does something else now: the chunks go back, and after some windows the same is tried again. Client
 * thread only.
 */
#pragma once

#include "runtime/swap/exchange.h"

/* Exchanges may begin: no other ones wait to be judged, and the last lost trial is long enough ago. */
bool gs_trial_may_begin(void);

/* The two have changed places. beyond->range NULL: the card had room. */
void gs_trial_note(const struct gs_exchange_chunk *to_card,
                   const struct gs_exchange_chunk *beyond);

/* The two that gs_trial_choose() found have changed places back, or could not. */
void gs_trial_note_undone(void);

/* A window has ended in which the program took so many ns for each byte that it used; 0: that is
 * not known. */
void gs_trial_end_window(double pace);

/* Under gs_memory_lock: the next two that change places back. False: there are none. */
bool gs_trial_choose(const struct gs_device *device, struct gs_exchange_chunk *to_card,
                     struct gs_exchange_chunk *beyond);

void gs_trial_after_fork(void);
