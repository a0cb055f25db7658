/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h: all settings of the daemon, from its files and its command line.
 */
#pragma once

#include "lockd/protocol/setting_table.h"
#include "lockd/sched/scheduler.h"

/* Sections of the configuration whose lines set a value for the programs of users and
 * systemd units: [classes], [overcommit]. */

#define LOCKD_LINES      128
#define LOCKD_LINE_NAMES 96 /* bytes of a unit's name */

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

/* The class of a program of user `uid` that asked for `asked` (GS_CLASS_AUTO: for none). units:
 * the path of its control group, of which each part may be a unit; the last unit with a line
 * counts, else the user's line. Units that users name themselves, below their user@.service or
 * in a container, never raise the class. A program may ask for less than the line says, never
 * for more. */
enum gs_wire_class lockd_classes_grant(const struct lockd_lines *classes, uid_t uid,
                                       const char *units, enum gs_wire_class asked);

#define LOCKD_CONFIG_PATH "/etc/gpushare/lockd.conf"
#define LOCKD_CONFIG_MAX  65536 /* bytes of one file */

struct lockd_config {
    struct lockd_values set;        /* as read, or changed by gpusharectl */
    struct sched_settings settings; /* the scheduler's settings that follow from it */
    struct lockd_lines classes;     /* of users and units */
    struct lockd_lines overcommits; /* the same: bytes beyond the card */
    bool hands_over;   /* memory that leaves a program goes directly to another program */
    gid_t control_gid; /* of control-group; (gid_t)-1: only the owner and root */
};

/* The bytes beyond the card for a program of user `uid`; LOCKD_AUTO: the library's choice. units:
 * the path of its control group. The line of the last unit in it counts, else the user's, else the
 * setting `overcommit`. */
uint64_t lockd_overcommits_of(const struct lockd_config *config, uid_t uid, const char *units);

/* The number of rows of settings.def that are keys of the file. */
enum {
    LOCKD_CONFIG_KEYS = 0
#define GS_SETTING(field, name, section, scope, op, kind, argument, low, high, initial, help)  \
    +(LOCKD_SCOPE_##scope != LOCKD_SCOPE_PROGRAM)
#define GS_SETTING_TEXT(field, name, section, scope, argument, initial, help) +1
#include "lockd/protocol/settings.def"
#undef GS_SETTING
#undef GS_SETTING_TEXT
};

/* Fills table with the keys, ended by an empty entry. Each is a command-line option as well. */
void lockd_config_table(struct lockd_config *config,
                        struct gs_option table[LOCKD_CONFIG_KEYS + 1]);
void lockd_config_default(struct lockd_config *config);
/* Derives the settings of the daemon's parts from the values, and checks values against each
 * other. 0 or -EINVAL. */
int lockd_config_finish(struct lockd_config *config, struct gs_err *err);
/* Looks up the control group. 0 or -ENOENT. */
int lockd_config_group(struct lockd_config *config, struct gs_err *err);
/* Reads the text of one file. path: for messages. 0, or -EINVAL with "path:line: what is
 * allowed"; config may then be half changed. */
int lockd_config_text(struct lockd_config *config, const char *path, const char *text,
                      size_t size, struct gs_err *err);
/* Reads path and then path.d's *.conf in the order of their names. A file that is not there is
 * no error unless must_exist. 0 or -errno. */
int lockd_config_files(struct lockd_config *config, const char *path, bool must_exist,
                       struct gs_err *err);
