/* SPDX-License-Identifier: Apache-2.0
 *
 * hostwatch.h: tells the scheduler how much host memory is available.
 */
#ifndef GS_LOCKD_SERVER_HOSTWATCH_H
#define GS_LOCKD_SERVER_HOSTWATCH_H

#include "lockd/base/hostmem.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;

struct lockd_hostwatch {
    struct lockd_host memory;
    bool stale;  /* a program has left: the others may have less in common */
    uint64_t at; /* when the scheduler is told again; 0: it has never been */
};

void lockd_hostwatch_init(struct lockd_hostwatch *watch);
/* A program has said hello: the memory that all of them share may be another one. */
void lockd_hostwatch_came(struct lockd_server *server,
                          const struct lockd_connection *connection);
/* Tells the scheduler when it is time. Returns when to look again. */
uint64_t lockd_hostwatch_tend(struct lockd_server *server, uint64_t now);

#endif
