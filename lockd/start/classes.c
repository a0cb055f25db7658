/* SPDX-License-Identifier: Apache-2.0
 *
 * classes.c: the classes that the configuration gives to the programs of users and systemd units.
 * No state but the caller's list.
 */
#include "lockd/start/classes.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define CONTAINER_DIGITS 64 /* of a container's id, in the name of its control group */

int lockd_classes_take(struct lockd_lines *classes, const char *name, const char *value,
                       struct gs_err *err)
{
    return lockd_lines_read(classes, "classes", "class", name, value, err);
}

/* Whether the user names the control groups inside its own: below the user's own systemd, or in
 * a container. */
static bool is_the_users(const char *part, size_t length)
{
    size_t digits = 0;

    if (length > strlen("user@.service") && strncmp(part, "user@", 5) == 0)
        return true;
    for (size_t i = 0; i < length && digits < CONTAINER_DIGITS; i++)
        digits = isxdigit((unsigned char)part[i]) ? digits + 1 : 0;
    return digits == CONTAINER_DIGITS;
}

/* The length of the part of the path that the machine's systemd or a container's runtime has
 * named. */
static size_t named_by_machine(const char *units)
{
    for (const char *at = units; *at != '\0';) {
        size_t length;

        at += strspn(at, "/");
        length = strcspn(at, "/");
        if (is_the_users(at, length))
            return (size_t)(at - units) + length;
        at += length;
    }
    return strlen(units);
}

/* The rank of a class: how much it may get before others. */
static int rank_class(enum gs_wire_class class)
{
    switch (class) {
    case GS_CLASS_BACKGROUND:
        return 0;
    case GS_CLASS_BATCH:
        return 1;
    case GS_CLASS_INTERACTIVE:
        return 3;
    default:
        return 2; /* it may be found to be interactive */
    }
}

static enum gs_wire_class lower_class(enum gs_wire_class one, enum gs_wire_class other)
{
    return rank_class(other) < rank_class(one) ? other : one;
}

enum gs_wire_class lockd_classes_grant(const struct lockd_lines *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked)
{
    const struct lockd_line *given =
                                lockd_lines_find(classes, uid, units, named_by_machine(units)),
                            *named = lockd_lines_find(classes, uid, units, strlen(units));
    enum gs_wire_class class;

    if (named == NULL)
        return asked;
    class = (enum gs_wire_class)named->value;
    if (given != NULL)
        class = lower_class((enum gs_wire_class)given->value, class);
    return asked == GS_CLASS_AUTO ? class : lower_class(class, asked);
}
