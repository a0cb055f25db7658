/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks.h: prototypes of every wrapper, from the table.
 */
#pragma once

#include "runtime/client/client.h"
#include "runtime/memory/room.h"

/* The driver's answer, or ours in its place, if there is a driver. */
#define GS_READY(answer) (gs_client_ready() ? (answer) : CUDA_ERROR_NOT_INITIALIZED)

/* The driver's call, again as long as it has no memory and room can be made; device: NULL is the
 * current device. */
#define GS_IN_ROOM(device, call)                                                               \
    ({                                                                                         \
        unsigned attempt = 0;                                                                  \
        CUresult in_room;                                                                      \
                                                                                               \
        do                                                                                     \
            in_room = (call);                                                                  \
        while (in_room == CUDA_ERROR_OUT_OF_MEMORY && gs_room_make(device, attempt++));        \
        in_room;                                                                               \
    })

#pragma GCC visibility push(default)
#define GS_PASS(...)
#define GS_API(symbol, base, since, variant, family, action)                                   \
    __typeof__(*(GS_PFN(base, since, variant))0) __wrap_##symbol;
#include "wrap/driver_api.def"
#pragma GCC visibility pop
