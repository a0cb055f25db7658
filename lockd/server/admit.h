/* SPDX-License-Identifier: Apache-2.0
 *
 * admit.h: accepts connections, or refuses them with the reason.
 */
#ifndef GS_LOCKD_SERVER_ADMIT_H
#define GS_LOCKD_SERVER_ADMIT_H

#include "common/err.h"

#include <stdint.h>

struct lockd_server;

int lockd_admit_init(struct lockd_server *server, struct gs_err *err);
/* Accepts one connection, or refuses it. */
void lockd_admit_one(struct lockd_server *server, int listener);
/* Watches the listeners again after connections ended. */
void lockd_admit_again(struct lockd_server *server);
/* The same when there may be descriptors again. Returns when to look again. */
uint64_t lockd_admit_resume(struct lockd_server *server, uint64_t now);
/* Ends connections that have said nothing for too long. Returns when to look again. */
uint64_t lockd_admit_silent(struct lockd_server *server, uint64_t now);

#endif
