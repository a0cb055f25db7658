/* SPDX-License-Identifier: Apache-2.0
 *
 * sees.h: the devices that a program says it sees, whether it uses them or not.
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stdint.h>

struct lockd_seen {
    uint8_t uuid[16];
    uint64_t total;
    char name[64];
};

struct lockd_sees {
    struct lockd_seen *device; /* devices that it has not named yet are 0 */
    uint32_t count;
};

/* Takes over one message. Returns the device; NULL without memory: then the program cannot be
 * moved. */
const struct lockd_seen *lockd_sees_take(struct lockd_sees *sees,
                                         const struct gs_wire_sees *message);
/* NULL: it does not see that device. */
const struct lockd_seen *lockd_sees_find(const struct lockd_sees *sees, const uint8_t uuid[16]);
void lockd_sees_deinit(struct lockd_sees *sees);
