/* SPDX-License-Identifier: Apache-2.0
 *
 * gift.c: passes descriptors of device memory on. State: the gift at hand (of lockd_server),
 * only while one state is taken. The lock knows nothing of it: for it memory has left one
 * program, and another one may have more.
 */
#include "lockd/gift.h"
#include "lockd/log.h"
#include "lockd/server.h"

#include <stdio.h>
#include <string.h>

/* A process of another pid namespace has more numbers than the one it has here. */
static bool look(const struct lockd_connection *connection)
{
    char path[64], line[256];
    FILE *file;
    bool beside = false;

    if (connection->foreign || connection->pid <= 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)connection->pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "NSpid:", 6) == 0)
            beside = strchr(line, '\t') == strrchr(line, '\t');
    fclose(file);
    return beside;
}

static bool is_beside(struct lockd_connection *connection)
{
    if (connection->beside == LOCKD_BESIDE_UNKNOWN)
        connection->beside = look(connection) ? LOCKD_BESIDE_YES : LOCKD_BESIDE_NO;
    return connection->beside == LOCKD_BESIDE_YES;
}

unsigned lockd_gift_most(const struct lockd_server *server)
{
    return server->config.hands_over ? GS_PACKET_FDS : 0;
}

void lockd_gift_offer(struct lockd_connection *connection, const struct gs_wire_state *state,
                      struct gs_descriptors *descriptors)
{
    struct lockd_server *server = connection->server;

    if (!server->config.hands_over || state->given_bytes == 0 || descriptors->count == 0 ||
        descriptors->count != state->given || !is_beside(connection))
        return;
    server->gift = (struct lockd_gift){.from = connection,
                                       .uuid = state->uuid,
                                       .descriptors = descriptors,
                                       .bytes = state->given_bytes};
}

void lockd_gift_end(struct lockd_server *server)
{
    server->gift = (struct lockd_gift){0};
}

/* How many pieces of the gift may go there. */
static unsigned share_of(const struct lockd_gift *gift, struct lockd_connection *to,
                         const struct gs_wire_target *target, uint64_t rise)
{
    uint64_t count;

    if (gift->from == NULL || gift->from == to || gift->from->user != to->user ||
        (target->flags & GS_TARGET_RUN) == 0 ||
        memcmp(gift->uuid, target->uuid, sizeof target->uuid) != 0 || !is_beside(to))
        return 0;
    count = rise / gift->bytes;
    return count < gift->descriptors->count ? (unsigned)count : gift->descriptors->count;
}

void lockd_gift_send(struct lockd_connection *connection, struct gs_wire_target *target,
                     uint64_t rise)
{
    struct lockd_gift *gift = &connection->server->gift;
    const unsigned count = share_of(gift, connection, target, rise);
    struct gs_descriptors with = {.count = 0};
    bool passed;

    if (connection->server->config.hands_over && connection->user->programs > 1 &&
        is_beside(connection))
        target->flags |= GS_TARGET_GIVE;
    if (count != 0) {
        target->gifts = count;
        target->gift_bytes = gift->bytes;
        gift->descriptors->count -= count;
        with.count = count;
        memcpy(with.fd, &gift->descriptors->fd[gift->descriptors->count],
               count * sizeof with.fd[0]);
        passed = lockd_connection_pass(connection, target, sizeof *target, &with);
        gs_descriptors_close(&with);
        if (passed)
            return;
        target->gifts = 0;
        target->gift_bytes = 0;
    }
    lockd_connection_send(connection, target, sizeof *target);
}

void lockd_gift_changed(const struct lockd_server *server, bool before)
{
    if (before && !server->config.hands_over)
        lockd_log(LOCKD_LOG_INFO,
                  "no memory is handed over from now on; programs that have some keep it, and "
                  "cannot be checkpointed, until it has left the device or they end");
    else if (!before && server->config.hands_over)
        lockd_log(LOCKD_LOG_INFO, "memory is handed over from now on");
}
