/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.h: one connection: its peer, and the messages that come from there.
 */
#pragma once

#include "lockd/server/admit.h"
#include "lockd/server/outbox.h"
#include "lockd/server/quota.h"
#include "lockd/server/relations.h"
#include "lockd/server/share.h"
#include "lockd/server/trace.h"

struct lockd_server;
struct lockd_user;
struct sched_client;
struct lockd_connection;

/* All connections of the daemon. */
struct lockd_connections {
    struct lockd_list all;       /* the oldest first, without the dead connections */
    struct lockd_list dead;      /* freed after the present events */
    struct lockd_list throttled; /* not read until their time has come */
    uint64_t next_id;
    uint64_t programs_gone;   /* when the last program disconnected */
    uint32_t count, programs; /* programs: connections that sent HELLO */
};

/* How fast a connection is read. */
struct lockd_rate {
    struct lockd_list link; /* of the throttled connections */
    uint64_t bucket;        /* users.h */
    uint64_t resume_at;     /* when a throttled connection is read again */
    bool throttled;
};

/* The program's description of itself. Empty before HELLO. */
struct lockd_hello {
    char name[32], version[16], group[32];
    int32_t own_pid; /* never more than a hint */
};

struct lockd_connection {
    struct lockd_list link;
    struct lockd_server *server;
    struct sched_client *client; /* after HELLO */
    struct lockd_user *user;
    uint64_t id;
    int fd;
    struct lockd_peer peer;
    bool dead; /* lockd_connection_kill() */
    struct lockd_hello hello;
    struct lockd_rate rate;
    struct lockd_silence silence;
    struct lockd_outbox out;
    struct lockd_tracks tracks;
    struct lockd_pause pause;
    struct lockd_wish wish;
    bool descriptors;                  /* some may be in flight to the daemon (users.h) */
    bool asked;                        /* the daemon has asked for some, by itself */
    struct lockd_move_program program; /* as lockd/move knows it (lockd_mover_init()) */
    struct lockd_trace_listener listening;
    struct lockd_related related; /* after HELLO */
};

/* NULL without memory; then the caller keeps fd. */
struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd,
                                              struct lockd_user *user,
                                              const struct lockd_identity *identity, pid_t pid);
void lockd_connection_free(struct lockd_connection *connection);
/* The socket has something to read. */
void lockd_connection_readable(struct lockd_connection *connection);
/* Handles one message of `size` bytes as received, and the descriptors that came with it. */
void lockd_connection_take(struct lockd_connection *connection, union lockd_message *message,
                           size_t size, struct gs_descriptors *with);
/* Reads throttled connections again when their time has come. Returns when to look again. */
uint64_t lockd_connection_resume(struct lockd_server *server, uint64_t now);

/* To be called after the scheduler and the epoll descriptor have been made. */
void lockd_mover_init(struct lockd_server *server);
