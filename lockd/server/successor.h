/* SPDX-License-Identifier: Apache-2.0
 *
 * successor.h: a daemon whose limit of descriptors is too low for all programs makes way for
 * another daemon, started by a program with a higher limit.
 *
 * A process without privileges cannot raise its own hard limit, and exec(2) keeps it: only a child
 * of a process with a higher limit has more. So the daemon gives up its socket and closes the
 * connection of such a program, which finds no daemon and starts another, as always. When that
 * daemon listens, this one ends, and the other programs reconnect as after any restart. If none
 * listens in time, this one takes its place again, unnoticed by the programs that are connected.
 *
 * This is only for daemons in the background, and only by programs of the daemon's own user: the
 * administrator sets the limit of a service.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct lockd_server;
struct lockd_connection;
struct lockd_sockets;

struct lockd_successor {
    struct lockd_sockets *sockets; /* to give up; NULL: this daemon never makes way */
    bool wanted;                   /* a caller was refused because no descriptor was left */
    uint64_t until;                /* when to take the place again; 0: it is not given up */
};

/* No descriptor is left for the caller at fd. True: the daemon makes way, and the caller's
 * connection is to be closed without a message, so that it tries again. */
bool lockd_successor_look(struct lockd_server *server, int fd);
/* A program has sent HELLO. */
void lockd_successor_came(struct lockd_server *server, struct lockd_connection *connection);
/* Ends the daemon when its successor serves, or takes the place again when it is time. Returns
 * when to look again. */
uint64_t lockd_successor_tend(struct lockd_server *server, uint64_t now);
