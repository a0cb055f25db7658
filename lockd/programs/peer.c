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

/* A process of another pid namespace has more numbers than the one it has here. */
static bool is_in_our_namespace(const struct lockd_peer *peer)
{
    char path[64], line[256];
    FILE *file;
    bool beside = false;

    if (peer->foreign || peer->pid <= 0 || peer->identity.contained)
        return false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)peer->pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "NSpid:", 6) == 0)
            beside = strchr(line, '\t') == strrchr(line, '\t');
    fclose(file);
    return beside;
}

bool lockd_peer_is_beside(struct lockd_peer *peer)
{
    if (peer->beside == LOCKD_BESIDE_UNKNOWN)
        peer->beside = is_in_our_namespace(peer) ? LOCKD_BESIDE_YES : LOCKD_BESIDE_NO;
    return peer->beside == LOCKD_BESIDE_YES;
}
