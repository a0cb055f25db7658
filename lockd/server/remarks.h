/* SPDX-License-Identifier: Apache-2.0
 *
 * remarks.h: the last remarks of programs, for `gpusharectl status`.
 */
#pragma once

#include "lockd/base/slots.h"

#include <stdint.h>

struct gs_wire_note;
struct lockd_connection;
struct lockd_server;

#define LOCKD_REMARKS 16

/* A remark, the newest of its kind and process. */
struct lockd_remark {
    struct lockd_stamp stamp; /* its owner: the number of its lockd_user */
    uint64_t owner;           /* id of the connection that it came from */
    int32_t pid;
    uint32_t kind, count;
    char name[32], text[192];
};

struct lockd_remarks {
    struct lockd_remark slot[LOCKD_REMARKS];
};

void lockd_remarks_add(struct lockd_remarks *remarks, const struct lockd_connection *from,
                       const struct gs_wire_note *note, uint64_t now);
/* Adds a remark of the daemon about a program. */
void lockd_remarks_say(const struct lockd_connection *about, const char *text);
/* Remarks on programs, and on groups that take turns separately, of which the scheduler tells. */
void lockd_remarks_programs(struct lockd_server *server);
