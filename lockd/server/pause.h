/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h: programs that are held back by a person or by a quota.
 */
#ifndef GS_LOCKD_SERVER_PAUSE_H
#define GS_LOCKD_SERVER_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;

/* A program is paused while either holds. */
struct lockd_pause {
    bool asked;    /* gpusharectl paused it */
    bool wished;   /* the program suspended itself */
    uint32_t over; /* devices on which a quota holds it back */
};

/* gpusharectl pauses the program, or resumes it, also where it has suspended itself. */
void lockd_pause_ask(struct lockd_connection *connection, bool asked);
/* The program suspends itself, or ends that. */
void lockd_pause_wish(struct lockd_connection *connection, bool wished);
/* A quota holds the program back on one device more, or on one less. */
void lockd_pause_hold(struct lockd_connection *connection, bool over);

#endif
