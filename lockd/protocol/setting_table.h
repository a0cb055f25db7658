/* SPDX-License-Identifier: Apache-2.0
 *
 * setting_table.h: the table of settings (settings.def) for the daemon, gpusharectl and the generator of pages.
 */
#pragma once

#include "common/options.h"
#include "lockd/protocol/wire_check.h"

#define GS_MS      1000000ull
#define GS_SECOND  1000000000ull
#define GS_PERCENT 10000ull /* in millionths */

enum lockd_scope { LOCKD_SCOPE_DAEMON, LOCKD_SCOPE_USER, LOCKD_SCOPE_PROGRAM };

/* A value for each row, in its unit; UINT64_MAX: auto, never, none. */
struct lockd_values {
#define GS_SETTING(field, name, section, scope, op, kind, argument, low, high, initial, help)  \
    uint64_t field;
#define GS_SETTING_TEXT(field, name, section, scope, argument, initial, help)                  \
    char field[GS_OPTION_NAME_SIZE];
#include "lockd/protocol/settings.def"
#undef GS_SETTING
#undef GS_SETTING_TEXT
};

struct lockd_setting {
    const char *name, *section;
    enum lockd_scope scope;
    uint32_t op; /* of gs_wire_control; 0: not changeable while the daemon runs */
    enum gs_option_kind kind;
    const char *argument;
    uint64_t low, high;
    const char *initial, *help;
    size_t offset; /* in struct lockd_values */
};

/* All of them, ended by a row whose name is NULL. */
extern const struct lockd_setting lockd_settings[];

/* The row of that name, or with that operation; NULL: there is none. */
const struct lockd_setting *lockd_setting_find(const char *name);
/* "; did you mean 'NAME'?" in buffer, where a setting has nearly that name, else "". Returns
 * buffer. */
const char *lockd_setting_hint(const char *name, char *buffer, size_t size);
const struct lockd_setting *lockd_setting_of_op(uint32_t op);
/* The place of the setting in values: a uint64_t *, or with GS_OPTION_NAME a char *. */
void *lockd_setting_place(const struct lockd_setting *setting, struct lockd_values *values);
/* The same row as an option that is read into value. */
struct gs_option lockd_setting_option(const struct lockd_setting *setting, void *value);
/* The default of every row. */
void lockd_settings_default(struct lockd_values *values);
/* Whether a message may set it to that value. Not for texts. */
bool lockd_setting_allows(const struct lockd_setting *setting, uint64_t value);
/* The allowed values, such as "1 to 3600000 ms, or auto". */
char *lockd_setting_range(const struct lockd_setting *setting, char *buffer, size_t size);
/* The value as a user writes it: "500", "2GiB", "auto"; with_unit: "500 ms". Not for texts. */
char *lockd_setting_format(const struct lockd_setting *setting, uint64_t value, bool with_unit,
                           char *buffer, size_t size);
/* The unit of a value in the table: "ns", "bytes", "ppm"; "": it has none. */
const char *lockd_setting_unit(const struct lockd_setting *setting);
/* The literal words of the argument: "auto", "yes no". */
char *lockd_setting_words(const struct lockd_setting *setting, char *buffer, size_t size);
