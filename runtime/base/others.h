/* SPDX-License-Identifier: Apache-2.0
 *
 * others.h: other objects in this process that stand before libc's dlsym, or are a libgpushare.
 *
 * A program may have a dlsym of its own, or use that of a library that comes before libc
 * (LD_PRELOAD, linked): the function that it would call without us is called behind us. If there
 * are several copies of this library (a program and a plugin patched for different copies), the
 * first in the loader's order works, and the others pass everything on to it.
 */
#pragma once

#include "runtime/base/base.h"
#include "runtime/base/libc_symbols.h"

/* The function that gets each dlsym or dlvsym that we do not answer. NULL: not settled yet
 * (gs_others_dlsym). Read by doors_*.S. */
extern gs_dlsym_fn *gs_next_dlsym;
extern gs_dlvsym_fn *gs_next_dlvsym;

/* Looks for them; the program's own objects must be loaded. Idempotent, any thread. */
void gs_others_init(void);

/* The first dlsym in search order that does not come back to us; libc's, if there is no other.
 * Settles that at its first call, since the other objects' constructors must have run. Never
 * NULL. Any thread. */
gs_dlsym_fn *gs_others_dlsym(void);
gs_dlvsym_fn *gs_others_dlvsym(void);

/* The function of that name in the copy of this library that came before ours; NULL: it has
 * none, or we are the first. */
void *gs_others_first(const char *name);
bool gs_others_are_first(void);

/* True if this library stands before libc in the loader's list, as in a patched program: imports
 * of other objects are bound to it first. */
bool gs_others_come_first(void);

/* Makes this library's functions visible to all objects that are loaded from now on, if it does
 * not come first: a library of an unpatched program needs it. Not in the constructor of a program
 * that is starting. */
void gs_others_publish(void);

/* True if this library is in the driver's place (calls/door.c). */
bool gs_others_is_door(void);
