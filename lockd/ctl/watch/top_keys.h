/* SPDX-License-Identifier: Apache-2.0
 *
 * top_keys.h: the keys of `gpusharectl top`.
 */
#pragma once

#include "lockd/ctl/watch/top.h"
#include "common/err.h"
#include "lockd/protocol/wire.h"

/* Opens a descriptor of a program's process, to be closed by the caller. -errno: the
 * process has ended, cannot be seen from here, or another process has its number. */
int top_process_open(const struct gs_wire_client *client, struct gs_err *err);
/* Sends the signal. 0 or -errno. */
int top_process_signal(int pidfd, int number, struct gs_err *err);

/* A line of the help, in `buffer` or elsewhere; NULL: there are no more. */
const char *top_keys_help(size_t line, char *buffer, size_t size);
/* The key at that place of the footer, as "p pause"; NULL: there are no more. */
const char *top_keys_footer(size_t place);
/* Handles a key as getch() returns it; ERR: none came in time. False: the user wants to
 * quit. */
bool top_keys_take(struct top *top, int key);
