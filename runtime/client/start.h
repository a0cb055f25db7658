/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h: starts the daemon on demand. Client thread only.
 */
#ifndef GS_RUNTIME_START_H
#define GS_RUNTIME_START_H

#include "common/err.h"
#include "common/paths.h"

/* Starts gpushare-lockd in the background; it finds the places as we do, unless one is named.
 * 0: it listens, or another one does. Else the reason is in why: -EAGAIN: trying again may
 * help; another -errno: it does not. It may take ten seconds where the daemon hangs. */
int gs_start_daemon(const struct gs_places *places, struct gs_err *why);

#endif
