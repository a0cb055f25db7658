/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h: programs that are held back by a person or by a quota.
 */
#ifndef GS_LOCKD_SERVER_PAUSE_H
#define GS_LOCKD_SERVER_PAUSE_H

struct lockd_connection;

/* Pauses the program if a person paused it or a quota holds it back; otherwise resumes it. */
void lockd_pause_apply(struct lockd_connection *connection);

#endif
