/* SPDX-License-Identifier: Apache-2.0
 *
 * admit.h: accepts connections, or refuses them with the reason.
 */
#pragma once

#include "common/place.h"
#include "lockd/base/list.h"

#include <sys/types.h>

struct lockd_server;

/* The listeners, and the limits of connections. */
struct lockd_admission {
    int listeners[GS_PLACES];
    unsigned listener_count;
    uint32_t called; /* one bit for each listener at which a caller waits */
    uint32_t limit;  /* connections of all users */
    gid_t group; /* its members may connect; (gid_t)-1: only root and the daemon's user may */
    bool room_made;     /* a connection has ended, so there is room for another */
    bool listening;     /* epoll watches the listeners */
    uint64_t listen_at; /* when to watch them again if it does not */
    int spare;          /* a descriptor in reserve, to refuse a caller when there is no other */
    uint64_t descriptors_said; /* when the log last got a line about that */
    struct lockd_list silent;  /* connections that have sent nothing yet, the oldest first */
};

/* The silence of one connection. */
struct lockd_silence {
    struct lockd_list link; /* of the silent connections */
    uint64_t since;         /* when it was accepted */
};

/* listeners: at most GS_PLACES, which the server owns from now on. group: as in the struct.
 * Opens nothing. */
void lockd_admit_init(struct lockd_admission *admission, const int *listeners, unsigned count,
                      gid_t group);
/* Raises the limit of descriptors. 0 or -errno. */
int lockd_admit_open(struct lockd_admission *admission, struct gs_err *err);
void lockd_admit_deinit(struct lockd_admission *admission);
/* True if tag is a listener's; notes that a caller waits there. */
bool lockd_admit_event(struct lockd_admission *admission, const void *tag);
/* Accepts or refuses one caller at each listener where one waits. */
void lockd_admit_callers(struct lockd_server *server);
/* Watches the listeners again if connections have ended. */
void lockd_admit_again(struct lockd_server *server);
/* Tries once a second while the listeners are not watched. Returns when to look again. */
uint64_t lockd_admit_resume(struct lockd_server *server, uint64_t now);
/* Ends connections that have sent nothing for too long. Returns when to look again. */
uint64_t lockd_admit_silent(struct lockd_server *server, uint64_t now);
