/* SPDX-License-Identifier: Apache-2.0
 *
 * others.h: who else in this process stands in front of libc's dlsym, or is a libgpushare.
 *
 * A program may have a dlsym of its own, or a library's that came before libc's (LD_PRELOAD,
 * linked): what it would ask without us is asked behind us. Of several copies of this library
 * (a program and a plugin patched for different ones) the first in the loader's order works;
 * the others hand everything on to it.
 */
#ifndef GS_RUNTIME_BASE_OTHERS_H
#define GS_RUNTIME_BASE_OTHERS_H

#include <stdbool.h>

#include "runtime/base/libc_symbols.h"

/* Where a dlsym or dlvsym that we do not answer goes on. NULL: not settled yet
 * (gs_others_dlsym). Read by doors_*.S. */
extern gs_dlsym_fn *gs_next_dlsym;
extern gs_dlvsym_fn *gs_next_dlvsym;

/* Looks: with the program's own objects in place. Idempotent, any thread. */
void gs_others_init(void);

/* The first one in search order that does not come back to us; libc's, if there is no other.
 * Settles that when it is called first, since the others' own constructors must have run.
 * Never NULL. Any thread. */
gs_dlsym_fn *gs_others_dlsym(void);
gs_dlvsym_fn *gs_others_dlvsym(void);

/* A copy of this library came before us: its function of that name; NULL: none, or we are the
 * first. */
void *gs_others_first(const char *name);
bool gs_others_are_first(void);

#endif
