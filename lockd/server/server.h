/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: the daemon around the scheduler: one struct that holds the parts of all files of
 * this room, and the loop that runs them. Each part is described in the header of the file that
 * owns it. One thread, apart from those that close descriptors (users.c).
 */
#pragma once

#include "lockd/base/clock.h"
#include "lockd/server/card.h"
#include "lockd/server/connection.h"
#include "lockd/server/handover.h"
#include "lockd/server/control.h"
#include "lockd/server/successor.h"
#include "lockd/server/users.h"

#include <signal.h>

/* The watchdog of systemd. */
struct lockd_watchdog {
    uint64_t every_ns; /* 0: there is none */
    uint64_t at;
};

/* The loop of server.c. */
struct lockd_loop {
    int epoll, signals;
    bool stop; /* the daemon ends after the present events */
    /* Whether a service has taken over is looked for once a second: its place; NULL: it is not. */
    const struct lockd_sockets *sockets;
    uint64_t sockets_at; /* when to look again */
    struct lockd_watchdog watchdog;
};

struct lockd_server {
    struct lockd_config config;
    struct sched *scheduler;
    uint64_t started, started_real; /* by the clock that never goes back; since the epoch */
    struct lockd_identity here;     /* the daemon's own */
    struct lockd_loop loop;
    struct lockd_accounts accounts;
    struct lockd_admission admission;
    struct lockd_cards cards;
    struct lockd_connections connections;
    struct lockd_list users;
    struct lockd_closers closers;
    struct lockd_relations relations;
    struct lockd_handovers handovers;
    struct lockd_hostwatch host;
    struct lockd_moves moves;
    struct lockd_quotas quota;
    struct lockd_remarks remarks;
    struct lockd_trace trace;
    struct lockd_reloading reload;
    struct lockd_shares shares;
    struct lockd_successor successor;
};

/* From now on SIGTERM, SIGINT and SIGHUP wait for lockd_server_run(). To be called before the
 * socket listens: from then on a signal ends the daemon in good order. set: out: these signals.
 * 0 or -errno. */
int lockd_server_hold_signals(sigset_t *set);

/* listeners: at most GS_PLACES listening SOCK_SEQPACKET sockets, which the server owns from now
 * on. 0 or -errno. */
int lockd_server_init(struct lockd_server *server, const struct lockd_config *config,
                      const int *listeners, unsigned count, gid_t group, struct gs_err *err);
/* Serves until a signal or the idle time ends it. 0 or -errno. */
int lockd_server_run(struct lockd_server *server, struct gs_err *err);
void lockd_server_deinit(struct lockd_server *server);
/* Does everything that is due by now. Returns when something will be due again. */
uint64_t lockd_server_tend(struct lockd_server *server);
