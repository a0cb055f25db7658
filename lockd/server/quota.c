/* SPDX-License-Identifier: Apache-2.0
 *
 * quota.c: max-memory, the bytes that the programs of one user may have on one device together. A
 * program gets the rest as its limit there: with each report of its own, and within TELL_NS after
 * the demand of the others has changed. A program that has more all the same (it connected with
 * more, or several grew at once) is held back like a paused one until other programs of its user
 * make room. A demand that was allowed once is never revoked. State: struct lockd_quotas, and one
 * struct lockd_quota for each track. One thread.
 *
 * Invariant: no permission given here raises the sum of the demands on a device, over a user's
 * programs that are not held back there, above max-memory (plus a 64th, for rounding in the
 * programs).
 */
#include "lockd/server/quota.h"
#include "lockd/server/server.h"

#include <string.h>

/* Combines the reasons for which a program is held back; takes wishes of programs, and chooses
 * the class of each. State: struct lockd_pause and lockd_wish. A wish is complete, so only its
 * differences from the last wish are carried out. */

static void apply_pause(struct lockd_connection *connection)
{
    const struct lockd_pause *pause = &connection->pause;

    sched_pause(connection->client,
                (!pause->comes_back && (pause->asked || pause->wished)) || pause->moves ||
                    pause->over != 0,
                lockd_now());
}

void lockd_pause_ask(struct lockd_connection *connection, bool asked)
{
    connection->pause.asked = asked;
    connection->pause.wished &= asked;
    apply_pause(connection);
}

/* A partly covered program reports as demand only what is not on the device: the rest is pinned. */
void lockd_pause_state(struct lockd_connection *connection)
{
    struct lockd_pause *pause = &connection->pause;
    const struct lockd_tracks *tracks = &connection->tracks;
    const bool before = pause->comes_back;
    bool partial = false, missing = false;

    for (size_t i = 0; i < tracks->count; i++) {
        const bool here = (tracks->track[i].flags & GS_STATE_PARTIAL) != 0;

        partial |= here;
        missing |= here && tracks->track[i].demand != 0;
    }
    pause->comes_back = missing && (before || !pause->partial);
    pause->partial |= partial;
    if (pause->comes_back != before)
        apply_pause(connection);
}

void lockd_pause_move(struct lockd_connection *connection, bool moves)
{
    if (connection->dead)
        return;
    connection->pause.moves = moves;
    apply_pause(connection);
}

/* --- wishes of programs --- */

static enum gs_wire_class granted_by(const struct lockd_connection *connection,
                                     const struct lockd_lines *classes)
{
    return lockd_classes_grant(classes, connection->peer.uid, connection->peer.identity.units,
                               connection->wish.class);
}

enum gs_wire_class lockd_wish_granted(const struct lockd_connection *connection)
{
    const struct lockd_setting *setting = lockd_setting_find("class");
    const enum gs_wire_class class =
        granted_by(connection, &connection->server->config.classes);
    char asked[32], granted[32], line[256];

    if (class == connection->wish.class)
        return class;
    snprintf(line, sizeof line,
             "%s (process %d, user %u) has class %s by [classes] of the configuration, and "
             "asked for %s",
             connection->hello.name, (int)connection->peer.pid, (unsigned)connection->peer.uid,
             lockd_setting_format(setting, class, false, granted, sizeof granted),
             lockd_setting_format(setting, connection->wish.class, false, asked, sizeof asked));
    if (connection->wish.class == GS_CLASS_AUTO)
        lockd_log(LOCKD_LOG_DEBUG, "%s", line);
    else
        lockd_user_say(connection->user, LOCKD_LOG_INFO, "%s", line);
    return class;
}

static void update_class(struct lockd_connection *connection)
{
    struct sched_client_settings set = sched_client_info(connection->client).set;

    set.class = lockd_wish_granted(connection);
    sched_client_set(connection->client, set, lockd_now());
}

void lockd_wish_reconsider(struct lockd_connection *connection,
                           const struct lockd_lines *before)
{
    if (connection->client == NULL ||
        granted_by(connection, before) ==
            granted_by(connection, &connection->server->config.classes))
        return;
    update_class(connection);
}

void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish)
{
    const bool suspended = (wish->flags & GS_WISH_SUSPEND) != 0;

    if (suspended != connection->wish.suspended) {
        connection->wish.suspended = suspended;
        connection->pause.wished = suspended;
        apply_pause(connection);
        if (suspended)
            sched_evict(connection->client, lockd_now());
        lockd_log(LOCKD_LOG_DEBUG, "%s (process %d) %s itself", connection->hello.name,
                  (int)connection->peer.pid, suspended ? "suspends" : "resumes");
    }
    if ((wish->flags & GS_WISH_CLASS) != 0 && wish->class_number != connection->wish.class) {
        connection->wish.class = (enum gs_wire_class)wish->class_number;
        update_class(connection);
    }
}

#define ROUNDING 64
#define TELL_NS  1000000000u

/* The sum of the demands of the user's programs on that device, without programs that are held
 * back. */
static uint64_t sum_demand(struct lockd_server *server, const struct lockd_user *user,
                           const uint8_t *uuid)
{
    uint64_t sum = 0;

    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        const struct lockd_track *track =
            each->user == user ? lockd_track_find(&each->tracks, uuid) : NULL;

        sum += track != NULL && !track->quota.over ? track->demand : 0;
    }
    return sum;
}

/* The sum without this program. all: the sum with it. */
static uint64_t sum_others(const struct lockd_track *track, uint64_t all)
{
    return track->quota.over ? all : all - track->demand;
}

static void hold_program(struct lockd_connection *connection, struct lockd_track *track,
                         bool over)
{
    char text[sizeof((struct gs_wire_note *)0)->text];

    if (track->quota.over == over)
        return;
    track->quota.over = over;
    connection->user->over += over ? 1 : UINT32_MAX;
    if (over && connection->pause.over == 0) {
        snprintf(text, sizeof text,
                 "held back: user %u would have more than max-memory on a device; it "
                 "continues when the user's other programs there use less",
                 (unsigned)connection->peer.uid);
        lockd_remarks_say(connection, text);
        lockd_user_say(connection->user, LOCKD_LOG_WARNING, "process %d (%s): %s",
                       (int)connection->peer.pid, connection->hello.name, text);
    }
    connection->pause.over += over ? 1 : UINT32_MAX;
    apply_pause(connection);
}

static bool exceeds_quota(uint64_t demand, uint64_t others, uint64_t most)
{
    return most != UINT64_MAX && demand != 0 && others + demand > most + most / ROUNDING;
}

static void release_held(struct lockd_server *server, struct lockd_user *user,
                         const uint8_t *uuid)
{
    const uint64_t most = server->config.set.max_memory;
    uint64_t sum;

    if (user->over == 0)
        return;
    sum = sum_demand(server, user, uuid);
    /* the oldest first */
    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        struct lockd_track *track =
            each->user == user ? lockd_track_find(&each->tracks, uuid) : NULL;

        if (track == NULL || !track->quota.over || exceeds_quota(track->demand, sum, most))
            continue;
        sum += track->demand;
        track->quota.allowed = track->demand;
        hold_program(each, track, false);
    }
}

/* Tells the scheduler how much is left for the program. */
static void tell_limit(struct lockd_connection *connection, struct lockd_track *track,
                       uint64_t others)
{
    const uint64_t most = connection->server->config.set.max_memory;
    uint64_t limit = UINT64_MAX;

    if (most != UINT64_MAX) {
        limit = most > others ? most - others : 0;
        limit =
            limit < track->quota.allowed && !track->quota.over ? track->quota.allowed : limit;
    }
    track->quota.limited = limit != UINT64_MAX;
    sched_quota(connection->client, track->uuid, limit, lockd_now());
}

static void plan_telling(struct lockd_server *server)
{
    if (server->config.set.max_memory != UINT64_MAX && server->quota.tell_at == LOCKD_NEVER)
        server->quota.tell_at = lockd_now() + TELL_NS;
}

uint64_t lockd_quota_tend(struct lockd_server *server, uint64_t now)
{
    const struct lockd_user *user = NULL;
    const uint8_t *uuid = NULL;
    uint64_t all = 0; /* of the last user and device, mostly the same as the next one's */

    if (now < server->quota.tell_at)
        return server->quota.tell_at;
    server->quota.tell_at = LOCKD_NEVER;
    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        for (size_t i = 0; i < each->tracks.count; i++) {
            struct lockd_track *track = &each->tracks.track[i];

            if (uuid == NULL || user != each->user ||
                memcmp(uuid, track->uuid, sizeof track->uuid) != 0)
                all = sum_demand(server, each->user, track->uuid);
            user = each->user;
            uuid = track->uuid;
            if (server->config.set.max_memory != UINT64_MAX || track->quota.limited)
                tell_limit(each, track, sum_others(track, all));
        }
    }
    return LOCKD_NEVER;
}

void lockd_quota_state(struct lockd_connection *connection, const struct gs_wire_state *state)
{
    const uint64_t most = connection->server->config.set.max_memory;
    struct lockd_track *track = lockd_track_get(&connection->tracks, state->uuid);
    uint64_t others, before;

    if (track == NULL || (most == UINT64_MAX && !track->quota.limited))
        return;
    before = track->quota.over ? 0 : track->quota.allowed;
    others = sum_others(track, sum_demand(connection->server, connection->user, state->uuid));
    hold_program(connection, track,
                 state->demand > before && exceeds_quota(state->demand, others, most));
    if (!track->quota.over)
        track->quota.allowed = state->demand;
    tell_limit(connection, track, others);
    if (state->demand != track->demand)
        plan_telling(connection->server);
    if (state->demand < before) {
        track->demand = state->demand;
        release_held(connection->server, connection->user, state->uuid);
    }
}

void lockd_quota_left(struct lockd_connection *connection, const uint8_t *uuid)
{
    struct lockd_track *track = lockd_track_find(&connection->tracks, uuid);

    if (track == NULL)
        return;
    hold_program(connection, track, false);
    track->demand = track->quota.allowed = 0;
    plan_telling(connection->server);
    release_held(connection->server, connection->user, uuid);
}

uint64_t lockd_quota_room(const struct lockd_connection *connection, const uint8_t *uuid)
{
    const uint64_t most = connection->server->config.set.max_memory;
    uint64_t sum;

    if (most == UINT64_MAX)
        return most;
    sum = sum_demand(connection->server, connection->user, uuid);
    lockd_each (const struct lockd_connection, each, &connection->server->connections.all,
                link) {
        sum += each->user == connection->user ? each->program.away_bytes : 0;
    }
    return most > sum ? most - sum : 0;
}

void lockd_quota_gone(struct lockd_connection *connection)
{
    connection->user->over -= connection->pause.over;
    connection->pause.over = 0;
    if (connection->tracks.count != 0)
        plan_telling(connection->server);
    for (size_t i = 0; i < connection->tracks.count; i++)
        release_held(connection->server, connection->user, connection->tracks.track[i].uuid);
}

void lockd_quota_changed(struct lockd_server *server)
{
    server->quota.tell_at = lockd_now(); /* at once */
    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        for (size_t i = 0; i < each->tracks.count && each->pause.over != 0; i++) {
            if (each->tracks.track[i].quota.over)
                release_held(server, each->user, each->tracks.track[i].uuid);
        }
    }
}
