/* SPDX-License-Identifier: Apache-2.0
 *
 * setting_table.c: the rows of settings.def, and common operations on them: find a row, check a
 * value against its bounds, print a value. No state.
 */
#include "lockd/protocol/setting_table.h"

#include "lockd/base/text.h"

#include <inttypes.h>
#include <string.h>

const struct lockd_setting lockd_settings[] = {
#define GS_SETTING(field, name, section, scope, op, kind, argument, low, high, initial, help)  \
    {name,                                                                                     \
     section,                                                                                  \
     LOCKD_SCOPE_##scope,                                                                      \
     op,                                                                                       \
     GS_OPTION_##kind,                                                                         \
     argument,                                                                                 \
     low,                                                                                      \
     high,                                                                                     \
     initial,                                                                                  \
     help,                                                                                     \
     offsetof(struct lockd_values, field)},
#define GS_SETTING_TEXT(field, name, section, scope, argument, initial, help)                  \
    GS_SETTING(field, name, section, scope, 0, NAME, argument, 0, 0, initial, help)
#include "lockd/protocol/settings.def"
#undef GS_SETTING
#undef GS_SETTING_TEXT
    {.name = NULL},
};

const struct lockd_setting *lockd_setting_find(const char *name)
{
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        if (strcmp(at->name, name) == 0)
            return at;
    }
    return NULL;
}

const char *lockd_setting_hint(const char *name, char *buffer, size_t size)
{
    buffer[0] = '\0';
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        if (lockd_text_is_similar(name, at->name))
            snprintf(buffer, size, "; did you mean '%s'?", at->name);
    }
    return buffer;
}

const struct lockd_setting *lockd_setting_of_op(uint32_t op)
{
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        if (at->op == op && op != 0)
            return at;
    }
    return NULL;
}

void *lockd_setting_place(const struct lockd_setting *setting, struct lockd_values *values)
{
    return (char *)values + setting->offset;
}

struct gs_option lockd_setting_option(const struct lockd_setting *setting, void *value)
{
    return (struct gs_option){
        .name = setting->name,
        .argument = setting->argument,
        .kind = setting->kind,
        .value = value,
        .low = setting->low,
        .high = setting->high,
        .help = setting->help,
        .initial = setting->initial,
    };
}

void lockd_settings_default(struct lockd_values *values)
{
    memset(values, 0, sizeof *values);
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        const struct gs_option option =
            lockd_setting_option(at, lockd_setting_place(at, values));
        struct gs_err err = {0};

        gs_option_value(&option, at->initial,
                        &err); /* all defaults are valid: test_settings.c */
    }
}

bool lockd_setting_allows(const struct lockd_setting *setting, uint64_t value)
{
    const int64_t number = (int64_t)value, most = (int64_t)setting->high;

    if (setting->kind == GS_OPTION_SIGNED)
        return number >= -most && number <= most;
    if (value == UINT64_MAX)
        return gs_option_word(setting->kind, setting->argument) != NULL;
    return value >= setting->low && value <= setting->high;
}

/* Of each kind of number: the unit that people write, its size in that of the value, and that unit. */
static const struct {
    const char *text;
    double size;
    const char *unit;
} numbers[GS_OPTION_LIST + 1] = {[GS_OPTION_SECONDS] = {" s", 1e9, "ns"},
                                 [GS_OPTION_MS] = {" ms", 1e6, "ns"},
                                 [GS_OPTION_PERCENT] = {" %", 1e4, "ppm"},
                                 [GS_OPTION_SIZE] = {"", 1, "bytes"}};

static void format_bytes(uint64_t bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;

    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer, size, "%" PRIu64 "%s", bytes, units[unit]);
}

/* The index-th word of "a|b|c". */
static void choice_word(const char *argument, uint64_t index, char *buffer, size_t size)
{
    for (; index > 0 && argument != NULL; index--) {
        argument = strchr(argument, '|');
        argument = argument != NULL ? argument + 1 : NULL;
    }
    if (argument == NULL)
        snprintf(buffer, size, "unknown");
    else
        snprintf(buffer, size, "%.*s", (int)strcspn(argument, "|"), argument);
}

char *lockd_setting_format(const struct lockd_setting *setting, uint64_t value, bool with_unit,
                           char *buffer, size_t size)
{
    const char *word = gs_option_word(setting->kind, setting->argument),
               *unit = numbers[setting->kind].text;

    if (value == UINT64_MAX && word != NULL) {
        snprintf(buffer, size, "%s", word);
        return buffer;
    }
    switch (setting->kind) {
    case GS_OPTION_SIZE:
        format_bytes(value, buffer, size);
        break;
    case GS_OPTION_SIGNED:
        snprintf(buffer, size, "%" PRId64, (int64_t)value);
        break;
    case GS_OPTION_YES:
        snprintf(buffer, size, "%s", value == 1 ? "yes" : "no");
        break;
    case GS_OPTION_CHOICE:
        choice_word(setting->argument, value, buffer, size);
        break;
    default:
        snprintf(buffer, size, "%.15g%s",
                 (double)value / (unit != NULL ? numbers[setting->kind].size : 1),
                 with_unit && unit != NULL ? unit : "");
    }
    return buffer;
}

char *lockd_setting_range(const struct lockd_setting *setting, char *buffer, size_t size)
{
    const char *word = gs_option_word(setting->kind, setting->argument);
    char low[32], high[32];

    if (setting->kind == GS_OPTION_YES || setting->kind == GS_OPTION_CHOICE) {
        snprintf(buffer, size, "%s", setting->argument);
        return buffer;
    }
    if (setting->kind == GS_OPTION_SIGNED)
        snprintf(low, sizeof low, "-%" PRIu64, setting->high);
    else
        lockd_setting_format(setting, setting->low, false, low, sizeof low);
    lockd_setting_format(setting, setting->high, true, high, sizeof high);
    snprintf(buffer, size, "%s to %s%s%s", low, high, word != NULL ? ", or " : "",
             word != NULL ? word : "");
    return buffer;
}

const char *lockd_setting_unit(const struct lockd_setting *setting)
{
    return numbers[setting->kind].unit != NULL ? numbers[setting->kind].unit : "";
}

char *lockd_setting_words(const struct lockd_setting *setting, char *buffer, size_t size)
{
    size_t at = 0;

    buffer[0] = '\0';
    for (const char *word = setting->argument; *word != '\0';) {
        const size_t length = strcspn(word, "|");

        if (*word >= 'a' && *word <= 'z' && at < size)
            at += (size_t)snprintf(buffer + at, size - at, "%s%.*s", at != 0 ? " " : "",
                                   (int)length, word);
        word += length + (word[length] == '|');
    }
    return buffer;
}
