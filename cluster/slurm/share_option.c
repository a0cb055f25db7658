/* SPDX-License-Identifier: Apache-2.0
 *
 * share_option.c: reads the words. No state.
 */
#include "cluster/slurm/share_option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockd/protocol/wire.h"

static const char *const classes[GS_CLASS_COUNT] = {"auto", "interactive", "batch",
                                                    "background"};

static int take_class(const char *text, size_t length, struct gs_share_option *option,
                      struct gs_err *err)
{
    for (int i = 0; i < GS_CLASS_COUNT; i++) {
        if (strlen(classes[i]) != length || strncmp(classes[i], text, length) != 0)
            continue;
        snprintf(option->class, sizeof option->class, "%s", classes[i]);
        return 0;
    }
    return gs_err_set(err, -EINVAL,
                      "--gpushare=%s: the class must be auto, interactive, batch or background",
                      text);
}

static int take_weight(const char *text, struct gs_share_option *option, struct gs_err *err)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < 1 ||
        value > GS_WEIGHT_MAX)
        return gs_err_set(err, -EINVAL,
                          "--gpushare: the weight '%s' must be a number from 1 to %d", text,
                          GS_WEIGHT_MAX);
    option->weight = (unsigned)value;
    return 0;
}

int gs_share_option_parse(const char *text, struct gs_share_option *option, struct gs_err *err)
{
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    const size_t length =
        colon != NULL ? (size_t)(colon - text) : strlen(text != NULL ? text : "");
    int code = 0;

    *option = (struct gs_share_option){0};
    if (length != 0)
        code = take_class(text, length, option, err);
    if (code == 0 && colon != NULL)
        code = take_weight(colon + 1, option, err);
    return code;
}

/* --- plugstack.conf --- */

static int take_path(const char *word, const char *path, char *place, struct gs_err *err)
{
    if (*path != '/' || strlen(path) >= PATH_MAX)
        return gs_err_set(err, -EINVAL, "plugstack.conf: %s: give the full path of the program",
                          word);
    snprintf(place, PATH_MAX, "%s", path);
    return 0;
}

int gs_share_config_parse(int argc, char **argv, struct gs_share_config *config,
                          struct gs_err *err)
{
    int code = 0;

    *config = (struct gs_share_config){.door = GS_SHARE_BINDIR "/gpushare-door",
                                       .ctl = GS_SHARE_BINDIR "/gpusharectl",
                                       .record = true};
    for (int i = 0; i < argc && code == 0; i++) {
        const char *word = argv[i];

        if (strncmp(word, "door=", 5) == 0)
            code = take_path(word, word + 5, config->door, err);
        else if (strncmp(word, "ctl=", 4) == 0)
            code = take_path(word, word + 4, config->ctl, err);
        else if (strcmp(word, "shards") == 0)
            config->shards = true;
        else if (strcmp(word, "norecord") == 0)
            config->record = false;
        else
            code = gs_err_set(err, -EINVAL,
                              "plugstack.conf: unknown word '%s'; the plugin takes door=PATH, "
                              "ctl=PATH, shards and norecord",
                              word);
    }
    return code;
}
