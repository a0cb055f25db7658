/* SPDX-License-Identifier: Apache-2.0
 *
 * classes.h: the classes that the configuration gives to the programs of users and systemd units.
 */
#ifndef GS_LOCKD_START_CLASSES_H
#define GS_LOCKD_START_CLASSES_H

#include "common/err.h"
#include "lockd/protocol/wire.h"
#include "lockd/start/lines.h"

#include <sys/types.h>

/* Takes one line of the section [classes], as lockd_lines_read() does. */
int lockd_classes_take(struct lockd_lines *classes, const char *name, const char *value,
                       struct gs_err *err);

/* The class of a program of user `uid` that asked for `asked` (GS_CLASS_AUTO: for none). units:
 * the path of its control group, of which each part may be a unit; the last unit with a line
 * counts, else the user's line. Units that users name themselves, below their user@.service or
 * in a container, never raise the class. A program may ask for less than the line says, never
 * for more. */
enum gs_wire_class lockd_classes_grant(const struct lockd_lines *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked);

#endif
