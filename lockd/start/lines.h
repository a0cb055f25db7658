/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: the lines of a section of the configuration that give something to the programs of users and
 * systemd units: [classes], [overcommit].
 */
#ifndef GS_LOCKD_START_LINES_H
#define GS_LOCKD_START_LINES_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKD_LINES      128
#define LOCKD_LINE_NAMES 96 /* bytes of a unit's name */

struct lockd_line {
    char unit[LOCKD_LINE_NAMES]; /* "": of the user */
    uid_t uid;
    uint64_t value; /* as the setting of the section has it */
};

struct lockd_lines {
    struct lockd_line all[LOCKD_LINES];
    size_t count;
};

/* Takes one line. name: a user's name or number, or a unit with its suffix (".service"); a later
 * line of the same name takes the place of the earlier one. 0; -EINVAL with a text that says what is
 * allowed: no such user, too long, too many. */
int lockd_lines_take(struct lockd_lines *lines, const char *section, const char *name,
                     uint64_t value, struct gs_err *err);
/* The same with the text of a value of that setting, in the section of that name. */
int lockd_lines_read(struct lockd_lines *lines, const char *section, const char *setting_name,
                     const char *name, const char *text, struct gs_err *err);

/* The line of the innermost unit in the first `length` bytes of the path of a control group, else the
 * user's; NULL: none. */
const struct lockd_line *lockd_lines_find(const struct lockd_lines *lines, uid_t uid,
                                          const char *units, size_t length);

#endif
