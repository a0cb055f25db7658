/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.c: combines the reasons for which a program is held back; takes wishes of programs, and
 * chooses the class of each. State: struct lockd_pause and lockd_wish. A wish is complete, so only
 * its differences from the last wish are carried out.
 */
#include "lockd/server/pause.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/protocol/setting_table.h"
#include "lockd/server/outbox.h"
#include "lockd/server/server.h"
#include "lockd/server/users.h"

#include <stdio.h>

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
    connection->pause.moves = moves;
    apply_pause(connection);
}

void lockd_pause_hold(struct lockd_connection *connection, bool over)
{
    connection->pause.over += over ? 1 : UINT32_MAX;
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

void lockd_wish_reconsider(struct lockd_connection *connection,
                           const struct lockd_lines *before)
{
    if (connection->client == NULL ||
        granted_by(connection, before) ==
            granted_by(connection, &connection->server->config.classes))
        return;
    sched_class(connection->client, lockd_wish_granted(connection), lockd_now());
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
        sched_class(connection->client, lockd_wish_granted(connection), lockd_now());
    }
}

void lockd_wish_grown(struct lockd_connection *connection)
{
    if (connection->pause.wished)
        sched_evict(connection->client, lockd_now());
}
