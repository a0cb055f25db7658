/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: the daemon around the lock: connections, programs, gpusharectl.
 *
 * server.c owns the event loop, admit.c who may connect, connection.c what a connection says,
 * outbox.c what it is sent, status.c and control.c what gpusharectl asks, trace.c what happened
 * when, remarks.c what programs remarked, checkpoint.c who does not stop, users.c and quota.c what
 * each user has. One thread, but for those of closer.c.
 */
#ifndef GS_LOCKD_SERVER_SERVER_H
#define GS_LOCKD_SERVER_SERVER_H

#include "common/err.h"
#include "lockd/base/list.h"
#include "lockd/sched/scheduler.h"
#include "lockd/server/connection.h"
#include "lockd/server/handover.h"
#include "lockd/server/hostwatch.h"
#include "lockd/server/reload.h"
#include "lockd/server/remarks.h"
#include "lockd/server/successor.h"
#include "lockd/server/trace.h"
#include "lockd/start/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Another daemon serves this one's programs now. */
typedef bool lockd_superseded(const void *context);

struct lockd_server {
    struct lockd_config config;
    lockd_superseded *superseded; /* may be NULL */
    const void *superseded_context;
    uint64_t superseded_at; /* when it is asked again */
    lockd_reload *reload;   /* may be NULL */
    void *reload_context;
    struct sched *scheduler;
    struct lockd_list connections, dead;
    struct lockd_list silent;    /* connections that have said nothing yet, oldest first */
    struct lockd_list throttled; /* those that are not read for a moment */
    struct lockd_list users;
    struct lockd_list freezes; /* checkpoint.c */
    struct lockd_list closers; /* closer.c */
    uint32_t closing;          /* descriptors from packets that are not closed yet */
    struct lockd_handovers gifts;
    uint64_t freeze_at; /* when it looks for stuck programs again */
    uint64_t next_id;
    uint64_t started, programs_gone; /* since when no program is connected */
    uint32_t connection_count, program_count, connection_limit;
    struct lockd_successor successor;
    gid_t group; /* members may connect; (gid_t)-1: nobody but owner and root */
    int epoll, signals;
    int listeners[GS_PLACES];
    unsigned listener_count;
    uint32_t called; /* somebody waits to be accepted: one bit for each listener */
    int spare;       /* given up to accept (and refuse) one when descriptors run out */
    bool listening, stop;
    bool closed_late; /* a closer has closed a connection: there is room for another */
    bool guarded;     /* the kernel keeps descriptors from connections that do not want them */
    uint64_t listen_at;        /* when the listener is tried again if it is not watched */
    uint64_t descriptors_said; /* when the log last heard that none was left */
    uint64_t quota_at;         /* when programs are told anew what max-memory leaves them */
    struct lockd_hostwatch host;
    uint64_t watchdog_ns, watchdog_at; /* systemd's; 0: none */
    struct lockd_remarks remarks;
    struct lockd_trace trace;
};

/* listeners: GS_PLACES listening SOCK_SEQPACKET sockets at most, from now on the server's. 0 or
 * -errno. */
int lockd_server_init(struct lockd_server *server, const struct lockd_config *config,
                      const int *listeners, unsigned count, gid_t group, struct gs_err *err);
/* Serves until a signal or the idle time ends it. 0 or -errno. */
int lockd_server_run(struct lockd_server *server, struct gs_err *err);
void lockd_server_deinit(struct lockd_server *server);
/* Does what is due by now. Returns when something will be due again. */
uint64_t lockd_server_tend(struct lockd_server *server);

#endif
