/* SPDX-License-Identifier: Apache-2.0
 *
 * inherited.h: the attributes that a daemon inherits from the program that started it, and must
 * not keep, since it serves other programs as well.
 */
#ifndef GS_LOCKD_START_INHERITED_H
#define GS_LOCKD_START_INHERITED_H

#include <stdint.h>

#define LOCKD_DESCRIPTORS_MAX 65536u /* more than these are not asked for */

/* Signals: none blocked, none ignored. For every daemon. */
void lockd_inherited_signals(void);

/* The rest, for a daemon that goes to the background: umask, limits, nice value, scheduling
 * policy, processors, I/O priority and OOM score, as far as the process may. A service has
 * these from its administrator and keeps them. */
void lockd_inherited_drop(void);

/* Descriptors that a process may raise its limit to; 0: not known, it is another user's. */
uint64_t lockd_inherited_descriptors(int32_t pid);

#endif
