/* SPDX-License-Identifier: Apache-2.0
 *
 * libc_symbols.h: libc's own dlsym and dlvsym, found without calling either.
 */
#pragma once

struct link_map;

typedef void *gs_dlsym_fn(void *handle, const char *name);
typedef void *gs_dlvsym_fn(void *handle, const char *name, const char *version);

/* Set before any code of the program runs (by the library's constructor, or by the first door
 * that is called earlier). Never NULL afterwards. */
extern gs_dlsym_fn *gs_libc_dlsym;
extern gs_dlvsym_fn *gs_libc_dlvsym;

/* Idempotent, any thread. */
void gs_libc_symbols_init(void);

/* The function that an object defines for others under this name; NULL: none. */
void *gs_object_function(const struct link_map *object, const char *name);
