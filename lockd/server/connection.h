/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.h: one connection: who is at its other end, and what comes from there.
 */
#ifndef GS_LOCKD_SERVER_CONNECTION_H
#define GS_LOCKD_SERVER_CONNECTION_H

#include "common/packet.h"
#include "lockd/base/list.h"
#include "lockd/protocol/wire_check.h"
#include "lockd/server/handover.h"
#include "lockd/server/outbox.h"
#include "lockd/server/trace.h"
#include "lockd/server/track.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct lockd_checkpoint;
struct lockd_server;
struct lockd_user;
struct sched_client;

struct lockd_connection {
    struct lockd_list link, silent, throttle;
    struct lockd_server *server;
    struct sched_client *client; /* after HELLO */
    struct lockd_user *user;
    uint64_t id, since;
    uint64_t bucket, resume_at;
    uint64_t limit; /* bytes on a device, by gpusharectl */
    int fd;
    uid_t uid;
    pid_t pid;
    uint32_t watched; /* what epoll looks for */
    bool foreign;     /* the pid is the program's own word */
    bool controls;    /* may change settings */
    bool descriptors; /* some may be on their way to it (closer.h) */
    bool dead, throttled;
    bool paused; /* by gpusharectl */
    enum lockd_beside beside;
    uint32_t over; /* devices on which it is held back (quota.c) */
    char name[32], version[16], group[32];
    struct lockd_outbox out;
    struct lockd_tracks tracks;
    struct lockd_checkpoint *freeze; /* NULL unless the driver has it, or is about to */
    uint64_t freeze_at;              /* not before */
    struct lockd_listener listener;
};

/* NULL without memory; fd stays the caller's then. */
struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd,
                                              struct lockd_user *user, pid_t pid);
void lockd_connection_free(struct lockd_connection *connection);
/* The socket has something to read. */
void lockd_connection_readable(struct lockd_connection *connection);
/* Takes one message of `size` bytes as received, and the descriptors that came with it. */
void lockd_connection_take(struct lockd_connection *connection, union lockd_message *message,
                           size_t size, struct gs_descriptors *with);
/* Reads throttled connections again when their time has come. Returns when to look again. */
uint64_t lockd_connection_resume(struct lockd_server *server, uint64_t now);

#endif
