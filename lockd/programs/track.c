/* SPDX-License-Identifier: Apache-2.0
 *
 * track.c: the tracks of one program, one for each of its devices. trace.c stores the last report
 * and target in them, quota.c the state under max-memory. No other state.
 */
#include "lockd/programs/track.h"

#include "lockd/sched/scheduler.h"

#include <stdlib.h>
#include <string.h>

struct lockd_track *lockd_track_find(const struct lockd_tracks *tracks, const uint8_t *uuid)
{
    for (size_t i = 0; i < tracks->count; i++) {
        if (memcmp(tracks->track[i].uuid, uuid, sizeof tracks->track[i].uuid) == 0)
            return &tracks->track[i];
    }
    return NULL;
}

struct lockd_track *lockd_track_get(struct lockd_tracks *tracks, const uint8_t *uuid)
{
    struct lockd_track *const found = lockd_track_find(tracks, uuid);
    struct lockd_track *grown;

    if (found != NULL || tracks->count >= LOCKD_DEVICES_PER_CLIENT)
        return found;
    grown = realloc(tracks->track, (tracks->count + 1) * sizeof *grown);
    if (grown == NULL)
        return NULL;
    tracks->track = grown;
    grown += tracks->count++;
    memset(grown, 0, sizeof *grown);
    memcpy(grown->uuid, uuid, sizeof grown->uuid);
    return grown;
}

void lockd_track_drop(struct lockd_tracks *tracks, const uint8_t *uuid)
{
    struct lockd_track *track = lockd_track_find(tracks, uuid);

    if (track != NULL)
        *track = tracks->track[--tracks->count];
}

void lockd_track_deinit(struct lockd_tracks *tracks)
{
    free(tracks->track);
    *tracks = (struct lockd_tracks){.track = NULL};
}
