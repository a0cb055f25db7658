/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: reads a command line by a table (options.h). No state.
 */
#include "lockd/options.h"
#include "common/size.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int read_number(const struct lockd_option *option, const char *text, double unit_ns,
                       struct gs_err *err)
{
    char *end;
    double number;

    errno = 0;
    number = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(number))
        return gs_err_set(err, -EINVAL, "%s: '%s' is not a number of %s", option->name, text,
                          option->kind == LOCKD_OPTION_MS ? "milliseconds" : "seconds");
    if (number < (double)option->low || number > (double)option->high)
        return gs_err_set(err, -EINVAL, "%s: %s is outside %llu to %llu", option->name, text,
                          (unsigned long long)option->low, (unsigned long long)option->high);
    *(uint64_t *)option->value = (uint64_t)(number * unit_ns);
    return 0;
}

static int read_size(const struct lockd_option *option, const char *text, struct gs_err *err)
{
    uint64_t bytes = 0;

    if (gs_size_parse(text, &bytes) != 0)
        return gs_err_set(err, -EINVAL, "%s: '%s' is no size: write 512MiB, 2GiB", option->name,
                          text);
    if (bytes < option->low || bytes > option->high)
        return gs_err_set(err, -EINVAL, "%s: %s is outside %llu to %llu bytes", option->name,
                          text, (unsigned long long)option->low,
                          (unsigned long long)option->high);
    *(uint64_t *)option->value = bytes;
    return 0;
}

static int read_level(const struct lockd_option *option, const char *text, struct gs_err *err)
{
    static const struct {
        const char *name;
        uint64_t level;
    } levels[] = {{"error", 3}, {"warning", 4}, {"info", 6}, {"debug", 7}};

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(text, levels[i].name) == 0) {
            *(uint64_t *)option->value = levels[i].level;
            return 0;
        }
    }
    return gs_err_set(err, -EINVAL, "%s: '%s' is not error, warning, info or debug",
                      option->name, text);
}

int lockd_option_value(const struct lockd_option *option, const char *text, struct gs_err *err)
{
    switch (option->kind) {
    case LOCKD_OPTION_FLAG:
        *(bool *)option->value = true;
        return 0;
    case LOCKD_OPTION_TEXT:
        *(const char **)option->value = text;
        return 0;
    case LOCKD_OPTION_SECONDS:
        return read_number(option, text, 1e9, err);
    case LOCKD_OPTION_MS:
        if (strcmp(text, "auto") != 0)
            return read_number(option, text, 1e6, err);
        *(uint64_t *)option->value = UINT64_MAX;
        return 0;
    case LOCKD_OPTION_SIZE:
        if (strcmp(text, "auto") != 0)
            return read_size(option, text, err);
        *(uint64_t *)option->value = UINT64_MAX;
        return 0;
    case LOCKD_OPTION_LEVEL:
        return read_level(option, text, err);
    }
    return -EINVAL;
}

static const struct lockd_option *find(const struct lockd_option *table, const char *name,
                                       size_t length)
{
    for (; table->name != NULL; table++) {
        if (strlen(table->name) == length && strncmp(table->name, name, length) == 0)
            return table;
    }
    return NULL;
}

int lockd_options_parse(const struct lockd_option *table, int argc, char **argv, int *index,
                        struct gs_err *err)
{
    while (*index < argc && argv[*index][0] == '-' && argv[*index][1] != '\0') {
        const char *name = argv[*index], *text;
        const struct lockd_option *option;
        int code;

        (*index)++;
        if (strcmp(name, "--") == 0)
            return 0;
        name += strspn(name, "-");
        text = strchr(name, '=');
        option = find(table, name, text != NULL ? (size_t)(text - name) : strlen(name));
        if (option == NULL || argv[*index - 1][1] != '-')
            return gs_err_set(err, -EINVAL, "unknown option %s (--help lists them)",
                              argv[*index - 1]);
        if (option->argument == NULL && text != NULL)
            return gs_err_set(err, -EINVAL, "--%s takes no value", option->name);
        if (option->argument != NULL && text == NULL && *index == argc)
            return gs_err_set(err, -EINVAL, "--%s needs %s", option->name, option->argument);
        if (option->argument != NULL)
            text = text != NULL ? text + 1 : argv[(*index)++];
        code = lockd_option_value(option, text != NULL ? text : "", err);
        if (code != 0)
            return code;
    }
    return 0;
}

void lockd_options_help(const struct lockd_option *table, FILE *file)
{
    for (; table->name != NULL; table++) {
        char left[64];

        snprintf(left, sizeof left, "--%s%s%s", table->name, table->argument != NULL ? " " : "",
                 table->argument != NULL ? table->argument : "");
        fprintf(file, "  %-24s %s\n", left, table->help);
    }
}
