/* SPDX-License-Identifier: Apache-2.0
 *
 * peer.c: keeps what the daemon knows about the process at the other end of a connection. State:
 * struct lockd_peer. One thread.
 */
#include "lockd/programs/peer.h"

#include <stdio.h>
#include <string.h>

void lockd_peer_init(struct lockd_peer *peer, const struct lockd_identity *identity,
                     const struct lockd_identity *here, uid_t uid, pid_t pid)
{
    *peer = (struct lockd_peer){
        .identity = *identity,
        .uid = uid,
        .pid = pid,
    };
    peer->identity.contained = lockd_identity_is_contained(identity, here);
}

void lockd_peer_name(struct lockd_peer *peer, pid_t said)
{
    if (peer->pid > 0)
        return;
    peer->pid = said;
    peer->foreign = true;
}

bool lockd_peer_is_beside(const struct lockd_peer *peer)
{
    /* a process of another pid namespace has more numbers than the number that it has here */
    return !peer->foreign && peer->pid > 0 && !peer->identity.contained &&
           peer->identity.depth == 1;
}
