/* SPDX-License-Identifier: Apache-2.0
 *
 * peer.h: the process at the other end of a connection: its identity, and what follows from it for
 * the daemon.
 */
#pragma once

#include "lockd/programs/identity.h"

#include <stdbool.h>
#include <sys/types.h>

struct lockd_peer {
    struct lockd_identity identity;
    uid_t uid;
    pid_t pid;     /* 0: in a pid namespace that the daemon cannot see into */
    bool foreign;  /* the pid is the program's own word (lockd_peer_name) */
    bool controls; /* it may change settings */
};

/* here: the daemon's own identity. The peer may not change settings. */
void lockd_peer_init(struct lockd_peer *peer, const struct lockd_identity *identity,
                     const struct lockd_identity *here, uid_t uid, pid_t pid);
/* The peer says its process id, which counts only if the kernel has told none. */
void lockd_peer_name(struct lockd_peer *peer, pid_t said);
/* Whether it lives in the daemon's own pid namespace and in no container. */
bool lockd_peer_is_beside(const struct lockd_peer *peer);
