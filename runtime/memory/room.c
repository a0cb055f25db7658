/* SPDX-License-Identifier: Apache-2.0
 *
 * room.c: makes room on a full card. No state.
 */
#include "runtime/memory/room.h"

#include <errno.h>
#include <time.h>

#include "runtime/client/client.h"
#include "runtime/memory/graph_memory.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/base/log.h"
#include "runtime/uncancelled.h"

/* 5 s: the daemon counts one request a second, each for a small part of the card */
#define ATTEMPTS 50
#define A_SECOND 10 /* attempts */

/* what this process holds and does not use */
static bool give_own(struct gs_device *device)
{
    const uint64_t idle = gs_idle_give_back(device, NULL, UINT64_MAX);

    return gs_graph_memory_trim(device) || idle != 0;
}

bool gs_room_make(struct gs_device *device, unsigned attempt)
{
    const int saved = errno;

    if (device == NULL)
        device = gs_device_current();
    if (device == NULL) /* with none current it can only be a guess */
        device = gs_device_at(0);
    if (device == NULL)
        return false;
    if (attempt == 0 && give_own(device)) { /* nobody else has to leave for that */
        errno = saved;
        return true;
    }
    if (attempt >= ATTEMPTS || !gs_client_short(device, attempt / A_SECOND))
        return false;
    gs_log("the driver is out of memory for something that cannot be moved: asked for room, "
           "attempt %u",
           attempt + 1);
    gs_pause(100000000);
    errno = saved;
    return true;
}
