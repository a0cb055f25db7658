/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h: programs that are held back by a person, a quota, their own wish or a move.
 */
#ifndef GS_LOCKD_SERVER_PAUSE_H
#define GS_LOCKD_SERVER_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;

/* A program is paused while any of them holds. */
struct lockd_pause {
    bool asked;    /* gpusharectl paused it */
    bool wished;   /* the program suspended itself */
    bool moves;    /* it is on its way to another device */
    uint32_t over; /* devices on which a quota holds it back */
};

/* gpusharectl pauses the program, or resumes it, also where it has suspended itself. */
void lockd_pause_ask(struct lockd_connection *connection, bool asked);
/* The program suspends itself, or ends that. */
void lockd_pause_wish(struct lockd_connection *connection, bool wished);
/* The program is stopped, to be moved to another device; or that is over. */
void lockd_pause_move(struct lockd_connection *connection, bool moves);
/* A quota holds the program back on one device more, or on one less. */
void lockd_pause_hold(struct lockd_connection *connection, bool over);

#endif
