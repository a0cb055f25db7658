/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: sections of the configuration whose lines set a value for the programs of users and
 * systemd units: [classes], [overcommit].
 */
#pragma once

#include "common/err.h"
#include "lockd/protocol/wire.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKD_LINES      128
#define LOCKD_LINE_NAMES 96 /* bytes of a unit's name */

struct lockd_setting;

struct lockd_line {
    char unit[LOCKD_LINE_NAMES]; /* "": the line is for a user */
    uid_t uid;
    uint64_t value; /* in the unit of the section's setting */
};

struct lockd_lines {
    struct lockd_line all[LOCKD_LINES];
    size_t count;
};

/* Takes one line of that section. name: a user's name or number, or a unit with its suffix
 * (".service"); a later line of the same name replaces the earlier one. text: the value, as
 * of the setting. 0; -EINVAL with a text that tells what is allowed: wrong
 * value, no such user, name too long, too many lines. */
int lockd_lines_read(struct lockd_lines *lines, const char *section,
                     const struct lockd_setting *setting, const char *name, const char *text,
                     struct gs_err *err);

/* The memory beyond the card that the configuration allows the programs of a user or
 * systemd unit. */

struct lockd_config;

/* The bytes for a program of user `uid`; LOCKD_AUTO: the library's choice. units: the path of
 * its control group. The line of the last unit in it counts, else the user's, else the setting
 * `overcommit`. */
uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units);

/* The classes that the configuration gives to the programs of users and systemd units. */

/* The class of a program of user `uid` that asked for `asked` (GS_CLASS_AUTO: for none). units:
 * the path of its control group, of which each part may be a unit; the last unit with a line
 * counts, else the user's line. Units that users name themselves, below their user@.service or
 * in a container, never raise the class. A program may ask for less than the line says, never
 * for more. */
enum gs_wire_class lockd_classes_grant(const struct lockd_lines *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked);
