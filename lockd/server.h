/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: the daemon around the lock: connections, programs, gpusharectl.
 *
 * server.c owns the event loop, connection.c one connection's bytes, control.c what gpusharectl
 * asks, notes.c what programs said. One thread.
 */
#ifndef GS_LOCKD_SERVER_H
#define GS_LOCKD_SERVER_H

#include "common/err.h"
#include "lockd/list.h"
#include "lockd/lock.h"
#include "lockd/wire_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKD_NOTES 16

struct lockd_server_options {
    struct lockd_settings settings;
    uint64_t idle_exit_ns; /* LOCKD_NEVER: a service */
};

/* A note, the newest of its kind and process. */
struct lockd_note {
    uint64_t owner; /* id of the connection that said it */
    uint64_t at;    /* when; 0: the slot is free */
    int32_t pid;
    uint32_t kind, count;
    char name[32], text[192];
};

struct lockd_notes {
    struct lockd_note slot[LOCKD_NOTES];
};

struct lockd_server {
    struct lockd_server_options options;
    struct lockd_lock *lock;
    struct lockd_list connections, dead;
    uint64_t next_id;
    uint64_t started, programs_gone; /* since when no program is connected */
    uint32_t connection_count, program_count, connection_limit;
    gid_t group; /* members may connect; (gid_t)-1: nobody but owner and root */
    int epoll, listener, signals;
    bool listening, stop;
    struct lockd_notes notes;
};

struct lockd_connection {
    struct lockd_list link;
    struct lockd_server *server;
    struct lockd_client *client; /* after HELLO */
    uint64_t id;
    int fd;
    uid_t uid;
    pid_t pid;
    bool foreign; /* the pid is the program's own word */
    bool dead, writable_wanted;
    char name[32], version[16];
    unsigned char *out; /* whole messages that the socket would not take yet */
    size_t out_size, out_room;
};

uint64_t lockd_now(void);

/* listener: a listening SOCK_SEQPACKET socket, from now on the server's. 0 or -errno. */
int lockd_server_init(struct lockd_server *server, const struct lockd_server_options *options,
                      int listener, gid_t group, struct gs_err *err);
/* Serves until a signal or the idle time ends it. 0 or -errno. */
int lockd_server_run(struct lockd_server *server, struct gs_err *err);
void lockd_server_deinit(struct lockd_server *server);
/* Sends the targets that the lock has put out. */
void lockd_server_flush(struct lockd_server *server);

/* connection.c */
struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd);
/* Queues a whole message; a connection that does not read what it is sent is given up. */
void lockd_connection_send(struct lockd_connection *connection, const void *message,
                           size_t size);
/* Marks it; the server frees it after the events at hand. format: why, for the log; NULL: an
 * ordinary end. */
void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void lockd_connection_readable(struct lockd_connection *connection);
void lockd_connection_writable(struct lockd_connection *connection);
void lockd_connection_free(struct lockd_connection *connection);

/* control.c */
void lockd_control_status(struct lockd_connection *connection);
void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control);

/* notes.c */
void lockd_notes_add(struct lockd_notes *notes, const struct lockd_connection *from,
                     const struct gs_wire_note *note, uint64_t now);

#endif
