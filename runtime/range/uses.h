/* SPDX-License-Identifier: Apache-2.0
 *
 * uses.h: which chunks the program uses, as far as its calls show it: for the choice of those
 * that are on the card where not all of them fit (swap/placement.h). A guess: nothing but speed
 * may depend on it.
 */
#ifndef GS_RUNTIME_RANGE_USES_H
#define GS_RUNTIME_RANGE_USES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

/* Something lies beyond the card, or has. Relaxed: read behind the gate's slow way only. */
extern _Atomic(bool) gs_uses_noted;

/* From now on calls are looked at. */
void gs_uses_begin(void);

/* A copy or a set of so many bytes there; others than the program's movable memory are passed
 * over. Any thread. */
void gs_uses_span(CUdeviceptr address, uint64_t bytes);

/* A launch with these parameters, in one of the two forms of cuLaunchKernel: all 8-byte words in
 * them are taken for addresses. Any thread. */
void gs_uses_launch(CUfunction function, void **params, void **extra);

#define GS_USES_WORDS 512u /* that are looked at for one launch */

/* The 8-byte words of such parameters; returns how many. Any thread. */
unsigned gs_uses_words(CUfunction function, void **params, void **extra,
                       uint64_t words[GS_USES_WORDS]);

/* Under gs_memory_lock: the program may have memory there that can be moved. */
bool gs_uses_is_movable(uint64_t word);

/* Under gs_memory_lock: so many launches got that address. */
void gs_uses_word(uint64_t word, uint64_t times);

/* Bytes noted since the last call. Client thread. */
uint64_t gs_uses_take(void);

/* A window has ended: addresses that no launch of it had are forgotten. Client thread. */
void gs_uses_age(void);

void gs_uses_after_fork(void);

#endif
