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
#include "lockd/server/closer.h"
#include "lockd/start/config.h"
#include "lockd/server/checkpoint.h"
#include "lockd/server/handover.h"
#include "lockd/base/hostmem.h"
#include "lockd/base/list.h"
#include "lockd/sched/scheduler.h"
#include "lockd/server/successor.h"
#include "lockd/server/trace.h"
#include "lockd/server/users.h"
#include "lockd/protocol/wire_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKD_REMARKS 16

/* A note, the newest of its kind and process. */
struct lockd_remark {
    uint64_t owner; /* id of the connection that said it */
    uint64_t at;    /* when; 0: the slot is free */
    uid_t uid;
    int32_t pid;
    uint32_t kind, count;
    char name[32], text[192];
};

struct lockd_remarks {
    struct lockd_remark slot[LOCKD_REMARKS];
};

/* Reads the configuration anew; for SIGHUP and `gpusharectl reload`. config: in: the present
 * one, out: the new one. 0, or -errno with config untouched. */
typedef int lockd_reload(void *context, struct lockd_config *config, struct gs_err *err);

/* Another daemon serves this one's programs now. */
typedef bool lockd_superseded(const void *context);

struct lockd_server {
    struct lockd_config config;
    lockd_superseded *superseded; /* may be NULL */
    const void *superseded_context;
    uint64_t superseded_at; /* when it is asked again */
    lockd_reload *reload;   /* may be NULL */
    void *reload_context;
    struct sched *lock;
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
    struct lockd_host host;
    bool host_stale;  /* a program has left: the others may have less in common */
    uint64_t host_at; /* when the lock must be told again how much host memory there is */
    uint64_t watchdog_ns, watchdog_at; /* systemd's; 0: none */
    struct lockd_remarks notes;
    struct lockd_trace trace;
};

/* Whole messages that the socket would not take yet. */
struct lockd_outbox {
    unsigned char *bytes;
    size_t head, size, room;
};

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

/* clock.c: CLOCK_MONOTONIC, ns. */
uint64_t lockd_now(void);

/* listeners: GS_PLACES listening SOCK_SEQPACKET sockets at most, from now on the server's. 0 or
 * -errno. */
int lockd_server_init(struct lockd_server *server, const struct lockd_config *config,
                      const int *listeners, unsigned count, gid_t group, struct gs_err *err);
/* Serves until a signal or the idle time ends it. 0 or -errno. */
int lockd_server_run(struct lockd_server *server, struct gs_err *err);
void lockd_server_deinit(struct lockd_server *server);
/* Does what is due by now. Returns when something will be due again. */
uint64_t lockd_server_tend(struct lockd_server *server);
/* Sends the targets that the lock has put out. */
void lockd_server_flush(struct lockd_server *server);
/* A program has said hello: what it and the others share of host memory. */
void lockd_server_came(struct lockd_server *server, const struct lockd_connection *connection);
/* From now on that configuration counts, which lockd_config_finish() has passed. */
void lockd_server_configure(struct lockd_server *server, const struct lockd_config *config);
/* Takes over a configuration that was read anew; 0, or -errno and nothing has changed. */
int lockd_server_reload(struct lockd_server *server, struct gs_err *err);
/* Frees connections that ended and what the lock knows of them. */
void lockd_server_bury(struct lockd_server *server);

/* admit.c: accepts one connection, or refuses it with the reason. */
void lockd_admit_one(struct lockd_server *server, int listener);
/* Watches the listener again after connections ended. */
void lockd_admit_again(struct lockd_server *server);
int lockd_admit_init(struct lockd_server *server, struct gs_err *err);
/* ... or when there may be descriptors again. Returns when to look again. */
uint64_t lockd_admit_resume(struct lockd_server *server, uint64_t now);
/* Gives up connections that have said nothing for too long. Returns when to look again. */
uint64_t lockd_admit_silent(struct lockd_server *server, uint64_t now);

/* connection.c: NULL without memory; fd stays the caller's then. */
struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd,
                                              struct lockd_user *user, pid_t pid);
/* Marks it; the server frees it after the events at hand. format: why, for the log; NULL: an
 * ordinary end. */
void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void lockd_connection_readable(struct lockd_connection *connection);
/* Takes one message of `size` bytes as received, and what came with it. */
void lockd_connection_take(struct lockd_connection *connection, union lockd_message *message,
                           size_t size, struct gs_descriptors *with);
void lockd_connection_free(struct lockd_connection *connection);
/* Reads those again whose time has come. Returns when to look again. */
uint64_t lockd_connection_resume(struct lockd_server *server, uint64_t now);

/* outbox.c: sends or queues a whole message; a connection that does not read what it is sent is
 * given up. */
void lockd_connection_send(struct lockd_connection *connection, const void *message,
                           size_t size);
/* Sends it now, with the descriptors, which stay the caller's. False: it has not been sent. */
bool lockd_connection_pass(struct lockd_connection *connection, const void *message,
                           size_t size, const struct gs_descriptors *with);
void lockd_connection_writable(struct lockd_connection *connection);
void lockd_connection_watch(struct lockd_connection *connection);
void lockd_outbox_deinit(struct lockd_connection *connection);

/* status.c */
void lockd_status_send(struct lockd_connection *connection);
/* Answers GS_WIRE_GET. */
void lockd_status_settings(struct lockd_connection *connection, const struct gs_wire_get *get);

/* control.c */
/* The settings of one program: the rows of settings.def whose scope is PROGRAM; the others are 0. */
void lockd_control_values(const struct lockd_connection *program, struct lockd_values *values);
void lockd_control_operate(struct lockd_connection *connection,
                           const struct gs_wire_control *control);
/* Pauses the program if somebody did or it is held back; else it may go on. */
void lockd_connection_pause(struct lockd_connection *connection);

/* quota.c: a state is about to be handed to the lock. */
void lockd_quota_state(struct lockd_connection *connection, const struct gs_wire_state *state);
/* Lets go whom of the user's programs there is room for again on that device. */
void lockd_quota_make_room(struct lockd_server *server, struct lockd_user *user,
                           const uint8_t *uuid);
/* The connection has left the list of connections. */
void lockd_quota_gone(struct lockd_connection *connection);
/* max-memory is another one. */
void lockd_quota_changed(struct lockd_server *server);
/* Tells programs what is left for them, when others have come, gone, or changed. Returns when
 * to look again. */
uint64_t lockd_quota_tend(struct lockd_server *server, uint64_t now);

/* remarks.c */
void lockd_remarks_apart(struct lockd_server *server); /* groups that have become too large */
void lockd_remarks_add(struct lockd_remarks *notes, const struct lockd_connection *from,
                       const struct gs_wire_note *note, uint64_t now);

#endif
