/* SPDX-License-Identifier: Apache-2.0
 *
 * detach.h: takes the daemon into the background.
 */
#ifndef GS_LOCKD_START_DETACH_H
#define GS_LOCKD_START_DETACH_H

#include "common/err.h"
#include "lockd/start/sockets.h"

/* Goes to the background. The caller's process ends with 0 once the daemon listens; the daemon
 * has a session of its own, / as its folder, no inherited descriptors and no terminal. 0 in the
 * daemon, or -errno. */
int lockd_detach(const struct lockd_sockets *sockets, struct gs_err *err);

#endif
