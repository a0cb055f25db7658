/* SPDX-License-Identifier: Apache-2.0
 *
 * classes.h: the classes that the configuration gives to the programs of users and systemd units.
 */
#ifndef GS_LOCKD_START_CLASSES_H
#define GS_LOCKD_START_CLASSES_H

#include "common/err.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LOCKD_CLASSES     128
#define LOCKD_CLASS_NAMES 96 /* bytes of a unit's name */

struct lockd_class {
    char unit[LOCKD_CLASS_NAMES]; /* "": of the user */
    uid_t uid;
    enum gs_wire_class class;
};

/* Section [classes] of the configuration. */
struct lockd_classes {
    struct lockd_class all[LOCKD_CLASSES];
    size_t count;
};

/* Takes one line of the section. name: a user's name or number, or a unit with its suffix
 * (".service"); a later line of the same name takes the place of the earlier one. 0; -EINVAL with a
 * text that says what is allowed: no such class or user, too long, too many. */
int lockd_classes_take(struct lockd_classes *classes, const char *name, const char *value,
                       struct gs_err *err);

/* The class of a program of user `uid` that asked for `asked` (GS_CLASS_AUTO: for none). units: the
 * path of its control group, of which each part may be a unit; the last one that has a line
 * counts, then the user. What users name themselves, below their user@.service or in a container,
 * gives no higher class than they have without it. A program may ask for less than the line says,
 * never for more. */
enum gs_wire_class lockd_classes_grant(const struct lockd_classes *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked);

#endif
