/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: sections of the configuration whose lines set a value for the programs of users and
 * systemd units. Users are looked up when the line is read. No state but the caller's list.
 */
#include "lockd/start/lines.h"
#include "lockd/start/config.h"
#include "lockd/protocol/setting_table.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_unit(const char *name)
{
    static const char *const suffixes[] = {".service", ".scope", ".slice"};
    const size_t length = strlen(name);

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t suffix = strlen(suffixes[i]);

        if (length > suffix && strcmp(name + length - suffix, suffixes[i]) == 0)
            return true;
    }
    return false;
}

static int find_user(const char *name, uid_t *uid, struct gs_err *err)
{
    const struct passwd *user;
    unsigned long number;
    char *end;

    if (isdigit((unsigned char)name[0])) {
        errno = 0;
        number = strtoul(name, &end, 10);
        if (*end != '\0' || errno != 0 || number >= UINT32_MAX)
            return gs_err_set(err, -EINVAL, "'%s' is not the number of a user", name);
        *uid = (uid_t)number;
        return 0;
    }
    user = getpwnam(name); /* one thread, at the start and at a reload only */
    if (user == NULL)
        return gs_err_set(
            err, -EINVAL,
            "'%s' is not a user of this machine; write the name or number of one, or "
            "a systemd unit with its suffix, as in jupyter.service",
            name);
    *uid = user->pw_uid;
    return 0;
}

static int take_line(struct lockd_lines *lines, const char *section, const char *name,
                     uint64_t value, struct gs_err *err)
{
    struct lockd_line new = {.uid = (uid_t)-1, .value = value};
    size_t at = 0;
    int code;

    if (strlen(name) >= sizeof new.unit)
        return gs_err_set(err, -EINVAL, "%.20s...: the name is longer than %zu bytes", name,
                          sizeof new.unit - 1);
    if (is_unit(name))
        memcpy(new.unit, name, strlen(name) + 1);
    else if ((code = find_user(name, &new.uid, err)) != 0)
        return code;
    while (at < lines->count &&
           (lines->all[at].uid != new.uid || strcmp(lines->all[at].unit, new.unit) != 0))
        at++;
    if (at == LOCKD_LINES)
        return gs_err_set(err, -EINVAL, "%s: [%s] has more than %d lines", name, section,
                          LOCKD_LINES);
    lines->all[at] = new;
    lines->count += at == lines->count ? 1 : 0;
    return 0;
}

/* The last place of the unit's name in the first `length` bytes of the path; 0: there is
 * none. */
static size_t find_unit(const char *units, size_t length, const char *unit)
{
    size_t found = 0;

    for (const char *at = units; at < units + length; at += strcspn(at, "/")) {
        at += strspn(at, "/");
        if (strcspn(at, "/") == strlen(unit) && strncmp(at, unit, strlen(unit)) == 0)
            found = (size_t)(at - units) + 1;
    }
    return found;
}

int lockd_lines_read(struct lockd_lines *lines, const char *section,
                     const struct lockd_setting *setting, const char *name, const char *text,
                     struct gs_err *err)
{
    uint64_t value = 0;
    struct gs_option option = lockd_setting_option(setting, &value);
    int code;

    option.name = name; /* for the message */
    code = gs_option_value(&option, text, err);
    return code != 0 ? code : take_line(lines, section, name, value, err);
}

/* The line of the innermost unit in the first `length` bytes of a control group's path,
 * else the line of the user. NULL: there is none. */
static const struct lockd_line *find_line(const struct lockd_lines *lines, uid_t uid,
                                          const char *units, size_t length)
{
    const struct lockd_line *line = NULL;
    size_t deepest = 0;

    for (size_t i = 0; i < lines->count; i++) {
        const struct lockd_line *each = &lines->all[i];
        const size_t depth = each->unit[0] != '\0' ? find_unit(units, length, each->unit) : 0;

        if (depth > deepest || (deepest == 0 && each->unit[0] == '\0' && each->uid == uid)) {
            deepest = depth;
            line = each;
        }
    }
    return line;
}

uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units)
{
    const struct lockd_line *line = find_line(&config->overcommits, uid, units, strlen(units));

    return line != NULL ? line->value : config->set.overcommit;
}

/* The classes that the configuration gives to the programs of users and systemd units. */

#define CONTAINER_DIGITS 64 /* of a container's id, in the name of its control group */

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
        return 2; /* it goes first while it is young */
    }
}

static enum gs_wire_class lower_class(enum gs_wire_class one, enum gs_wire_class other)
{
    return rank_class(other) < rank_class(one) ? other : one;
}

enum gs_wire_class lockd_classes_grant(const struct lockd_lines *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked)
{
    const struct lockd_line *given = find_line(classes, uid, units, named_by_machine(units)),
                            *named = find_line(classes, uid, units, strlen(units));
    enum gs_wire_class class;

    if (named == NULL)
        return asked;
    class = (enum gs_wire_class)named->value;
    if (given != NULL)
        class = lower_class((enum gs_wire_class)given->value, class);
    return asked == GS_CLASS_AUTO ? class : lower_class(class, asked);
}
