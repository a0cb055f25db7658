/* SPDX-License-Identifier: Apache-2.0
 *
 * sees.c: owns the list of devices that a program sees (sees.h). One thread.
 */
#include "lockd/move/sees.h"

#include <stdlib.h>
#include <string.h>

const struct lockd_seen *lockd_sees_take(struct lockd_sees *sees,
                                         const struct gs_wire_sees *message)
{
    struct lockd_seen *one;

    if (message->count != sees->count) {
        free(sees->device);
        sees->device = calloc(message->count, sizeof *sees->device);
        sees->count = sees->device != NULL ? message->count : 0;
    }
    if (sees->device == NULL)
        return NULL;
    one = &sees->device[message->index];
    memcpy(one->uuid, message->uuid, sizeof one->uuid);
    memcpy(one->name, message->name, sizeof one->name);
    one->total = message->total;
    return one;
}

const struct lockd_seen *lockd_sees_find(const struct lockd_sees *sees, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < sees->count; i++)
        if (memcmp(sees->device[i].uuid, uuid, sizeof sees->device[i].uuid) == 0)
            return &sees->device[i];
    return NULL;
}

void lockd_sees_deinit(struct lockd_sees *sees)
{
    free(sees->device);
    sees->device = NULL;
    sees->count = 0;
}
