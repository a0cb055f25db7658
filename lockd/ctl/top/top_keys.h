/* SPDX-License-Identifier: Apache-2.0
 *
 * top_keys.h: what keys do in `gpusharectl top`.
 */
#ifndef GS_LOCKD_CTL_TOP_TOP_KEYS_H
#define GS_LOCKD_CTL_TOP_TOP_KEYS_H

#include "lockd/ctl/top/top.h"

/* A line of the help; NULL: there is none more. */
const char *top_keys_help(size_t line);
/* A key as getch() gives it; ERR: none came in time. false: the user has had enough. */
bool top_keys_take(struct top *top, int key);

#endif
