/* SPDX-License-Identifier: Apache-2.0
 *
 * hostwatch.h: tells the scheduler how much host memory is available.
 */
#pragma once

#include "lockd/base/hostmem.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;

struct lockd_hostwatch {
    struct lockd_host memory;
    bool stale;  /* a program has left: the others' common control group may be narrower */
    uint64_t at; /* when to tell the scheduler again; 0: it was never told */
};

void lockd_hostwatch_init(struct lockd_hostwatch *watch);
/* A program has sent HELLO: the memory that all of them share may have changed. */
void lockd_hostwatch_came(struct lockd_server *server,
                          const struct lockd_connection *connection);
/* Tells the scheduler when it is time. Returns when to look again. */
uint64_t lockd_hostwatch_tend(struct lockd_server *server, uint64_t now);
