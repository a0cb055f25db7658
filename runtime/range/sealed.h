/* SPDX-License-Identifier: Apache-2.0
 *
 * sealed.h: memory that nobody can change any more: a file of memfd_create(2) with seals. It may
 * come from any program of the user, so it is checked before it is mapped. No state; any thread.
 */
#pragma once

#include "runtime/base/base.h"

/* A file of so many bytes, all zero, close-on-exec; -errno: there is none. */
int gs_sealed_new(uint64_t bytes);
/* Writes to it. False: there is no memory. */
bool gs_sealed_write(int fd, const char *from, uint64_t bytes, uint64_t offset);
/* From now on nobody can change it. */
bool gs_sealed_close(int fd);

/* Maps the file, read-only; forked children do not get it. *filled: one bit for each block of so
 * many bytes, at most 64, that has no hole. NULL: it is not sealed, or not of that size. To be
 * unmapped by gs_host_unmap(). */
char *gs_sealed_map(int fd, uint64_t bytes, uint64_t block, uint64_t *filled);
