/* SPDX-License-Identifier: Apache-2.0
 *
 * successor.h: a daemon whose limit of descriptors is too low for all programs makes way for
 * one that is started by a program with a higher limit.
 *
 * A process without privileges cannot raise its own hard limit, and exec(2) keeps it: only a
 * child of a process with a higher one has more. So the daemon gives up its socket and hangs up
 * on such a program, which finds no daemon and starts one, as always. When that one listens,
 * this one ends, and the other programs come back to it as after any restart. If none listens
 * in time, this one takes its place again; the programs that it has do not notice.
 *
 * Only for daemons in the background, and only programs of the daemon's own user: a service has
 * its limit from its administrator.
 */
#ifndef GS_LOCKD_SERVER_SUCCESSOR_H
#define GS_LOCKD_SERVER_SUCCESSOR_H

#include <stdbool.h>
#include <stdint.h>

struct lockd_server;
struct lockd_connection;
struct lockd_sockets;

struct lockd_successor {
    struct lockd_sockets *sockets; /* to be given up; NULL: this daemon never makes way */
    bool wanted;                   /* a caller was refused for want of descriptors */
    uint64_t until;                /* when the place is taken again; 0: it is not given up */
};

/* No descriptor is left for the caller at fd. True: the daemon makes way, and the caller is
 * hung up on without a word, so that it tries again. */
bool lockd_successor_look(struct lockd_server *server, int fd);
/* A program has said hello. */
void lockd_successor_came(struct lockd_server *server, struct lockd_connection *connection);
/* Ends the daemon, or takes its place again, when it is time. Returns when to look again. */
uint64_t lockd_successor_tend(struct lockd_server *server, uint64_t now);

#endif
