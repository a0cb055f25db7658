/* SPDX-License-Identifier: Apache-2.0
 *
 * card.h: what the driver itself says of the devices' memory (lockd/nvml), and how much host memory
 * is available, for the scheduler.
 */
#pragma once

#include "lockd/base/hostmem.h"

struct lockd_server;
struct nvml;
struct lockd_connection;

struct lockd_cards {
    struct nvml *nvml; /* NULL: nobody is asked at present */
    uint64_t looked;   /* when it last asked, or looked for an answer; 0: never */
    uint64_t told;     /* the number of the newest answer; 0: none */
    bool asked;        /* the next answer is to a question of a moment ago */
    uint64_t wait;     /* ... until the next look for it */
};

/* Asks when it is time to, and tells the scheduler the newest answer. Returns when to ask again. */
uint64_t lockd_card_tend(struct lockd_server *server, uint64_t now);
/* Asks nobody until it is time again. */
void lockd_card_stop(struct lockd_cards *cards);

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
