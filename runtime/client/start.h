/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h: starts the daemon on demand. Client thread only.
 */
#pragma once

#include "common/place.h"

/* Starts gpushare-lockd in the background; it finds its places as the program does, unless a
 * socket is named. 0: it listens, or another daemon does. Else `why` has the reason: with -EAGAIN
 * trying again may help, with another -errno it does not. It may take ten seconds if the daemon
 * hangs. */
int gs_start_daemon(const struct gs_places *places, struct gs_err *why);
