/* SPDX-License-Identifier: Apache-2.0
 *
 * quota.c: max-memory, what one user's programs may have on one device together. A program is
 * told what is left of it as its limit there: with each report of its own, and within TELL_NS
 * when others have less or more. One that has more all the same (it came with it,
 * or several grew at once) is held back, as if it was paused, until others of its user make
 * room; what was allowed once is not taken away. One thread.
 *
 * Invariant: the demands on a device of a user's programs that are not held back there are not
 * raised above max-memory by anything allowed here (and a 64th, for rounding in the programs).
 */
#include "lockd/base/log.h"
#include "lockd/server/server.h"

#include <stdio.h>
#include <string.h>

#define ROUNDING 64
#define TELL_NS  1000000000u

static struct lockd_track *find(struct lockd_connection *connection, const uint8_t *uuid)
{
    for (size_t i = 0; i < connection->tracks.count; i++) {
        if (memcmp(connection->tracks.track[i].uuid, uuid, 16) == 0)
            return &connection->tracks.track[i];
    }
    return NULL;
}

/* What the user's programs have on that device, without those that are held back. */
static uint64_t demand_of(struct lockd_server *server, const struct lockd_user *user,
                          const uint8_t *uuid)
{
    uint64_t sum = 0;

    lockd_list_each (at, &server->connections) {
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);
        const struct lockd_track *track = each->user == user ? find(each, uuid) : NULL;

        sum += track != NULL && !track->over ? track->demand : 0;
    }
    return sum;
}

/* all: what the user's programs have there with this one. */
static uint64_t others_demand(const struct lockd_track *track, uint64_t all)
{
    return track->over ? all : all - track->demand;
}

static void note(struct lockd_connection *connection)
{
    struct gs_wire_note note = {.pid = (int32_t)connection->pid, .kind = GS_NOTE_OTHER};

    memcpy(note.name, connection->name, sizeof note.name);
    snprintf(note.text, sizeof note.text,
             "held back: user %u would have more than max-memory on a device; it goes on when "
             "his other programs there have less",
             (unsigned)connection->uid);
    lockd_remarks_add(&connection->server->notes, connection, &note, lockd_now());
    lockd_log(LOCKD_LOG_WARNING, "process %d (%s): %s", (int)connection->pid, connection->name,
              note.text);
}

static void hold_back(struct lockd_connection *connection, struct lockd_track *track, bool over)
{
    if (track->over == over)
        return;
    track->over = over;
    connection->over += over ? 1 : UINT32_MAX;
    connection->user->over += over ? 1 : UINT32_MAX;
    if (over && connection->over == 1)
        note(connection);
    lockd_connection_pause(connection);
}

static bool exceeds(uint64_t demand, uint64_t others, uint64_t most)
{
    return most != UINT64_MAX && demand != 0 && others + demand > most + most / ROUNDING;
}

void lockd_quota_make_room(struct lockd_server *server, struct lockd_user *user,
                           const uint8_t *uuid)
{
    const uint64_t most = server->config.set.max_memory;
    uint64_t sum;

    if (user->over == 0)
        return;
    sum = demand_of(server, user, uuid);
    lockd_list_each (at, &server->connections) { /* who came first is let go first */
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);
        struct lockd_track *track = each->user == user ? find(each, uuid) : NULL;

        if (track == NULL || !track->over || exceeds(track->demand, sum, most))
            continue;
        sum += track->demand;
        track->allowed = track->demand;
        hold_back(each, track, false);
    }
}

/* Tells the lock what is left for it. */
static void tell(struct lockd_connection *connection, struct lockd_track *track,
                 uint64_t others)
{
    const uint64_t most = connection->server->config.set.max_memory;
    uint64_t limit = UINT64_MAX;

    if (most != UINT64_MAX) {
        limit = most > others ? most - others : 0;
        limit = limit < track->allowed && !track->over ? track->allowed : limit;
    }
    track->limited = limit != UINT64_MAX;
    sched_quota(connection->server->lock, connection->client, track->uuid, limit, lockd_now());
}

static void tell_later(struct lockd_server *server)
{
    if (server->config.set.max_memory != UINT64_MAX && server->quota_at == LOCKD_NEVER)
        server->quota_at = lockd_now() + TELL_NS;
}

uint64_t lockd_quota_tend(struct lockd_server *server, uint64_t now)
{
    const struct lockd_user *user = NULL;
    const uint8_t *uuid = NULL;
    uint64_t all = 0; /* of the last user and device: mostly it is the next one's too */

    if (now < server->quota_at)
        return server->quota_at;
    server->quota_at = LOCKD_NEVER;
    lockd_list_each (at, &server->connections) {
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        for (size_t i = 0; i < each->tracks.count; i++) {
            struct lockd_track *track = &each->tracks.track[i];

            if (uuid == NULL || user != each->user ||
                memcmp(uuid, track->uuid, sizeof track->uuid) != 0)
                all = demand_of(server, each->user, track->uuid);
            user = each->user;
            uuid = track->uuid;
            if (server->config.set.max_memory != UINT64_MAX || track->limited)
                tell(each, track, others_demand(track, all));
        }
    }
    return LOCKD_NEVER;
}

void lockd_quota_state(struct lockd_connection *connection, const struct gs_wire_state *state)
{
    const uint64_t most = connection->server->config.set.max_memory;
    struct lockd_track *track = lockd_track_get(&connection->tracks, state->uuid);
    uint64_t others, before;

    if (track == NULL || (most == UINT64_MAX && !track->limited))
        return;
    before = track->over ? 0 : track->allowed;
    others = others_demand(track, demand_of(connection->server, connection->user, state->uuid));
    hold_back(connection, track,
              state->demand > before && exceeds(state->demand, others, most));
    if (!track->over)
        track->allowed = state->demand;
    tell(connection, track, others);
    if (state->demand != track->demand)
        tell_later(connection->server);
    if (state->demand < before) {
        track->demand = state->demand;
        lockd_quota_make_room(connection->server, connection->user, state->uuid);
    }
}

void lockd_quota_gone(struct lockd_connection *connection)
{
    connection->user->over -= connection->over;
    connection->over = 0;
    if (connection->tracks.count != 0)
        tell_later(connection->server);
    for (size_t i = 0; i < connection->tracks.count; i++)
        lockd_quota_make_room(connection->server, connection->user,
                              connection->tracks.track[i].uuid);
}

void lockd_quota_changed(struct lockd_server *server)
{
    server->quota_at = lockd_now(); /* at once */
    lockd_list_each (at, &server->connections) {
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        for (size_t i = 0; i < each->tracks.count && each->over != 0; i++) {
            if (each->tracks.track[i].over)
                lockd_quota_make_room(server, each->user, each->tracks.track[i].uuid);
        }
    }
}
