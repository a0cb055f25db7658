/* SPDX-License-Identifier: Apache-2.0
 *
 * child.h: variables that are zero in a forked child, as they are when a program starts: what they
 * say is of the parent, and what they point to is left to it. A pthread_mutex_t and a
 * pthread_once_t are zero before their first use.
 */
#pragma once

#include <string.h>

#define GS_ZERO_IN_CHILD __attribute__((section("gs_child")))

/* For the child, once what these variables hold has been closed there. Nothing may take a lock
 * before: a thread of the parent may have held it. */
static inline void gs_child_clear(void)
{
    extern __attribute__((visibility("hidden"))) char __start_gs_child[], __stop_gs_child[];

    memset(__start_gs_child, 0, (size_t)(__stop_gs_child - __start_gs_child));
}
