/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.c: combines the reasons for which a program is held back. No state.
 */
#include "lockd/server/pause.h"

#include "lockd/base/clock.h"
#include "lockd/server/server.h"

static void apply_pause(struct lockd_connection *connection)
{
    const struct lockd_pause *pause = &connection->pause;

    sched_pause(connection->server->scheduler, connection->client,
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

void lockd_pause_wish(struct lockd_connection *connection, bool wished)
{
    connection->pause.wished = wished;
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
