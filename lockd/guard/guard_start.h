/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_start.h: starts the guard of a program.
 */
#ifndef GS_LOCKD_GUARD_GUARD_START_H
#define GS_LOCKD_GUARD_GUARD_START_H

#include <stdint.h>

/* Starts a guard of that process and gives it its first order. The daemon's end of the guard's
 * socket, or -errno. */
int lockd_guard_start(int32_t pid, char order);

#endif
