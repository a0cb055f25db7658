/* SPDX-License-Identifier: Apache-2.0
 *
 * share_option.h: what users and administrators tell the plugin: `--gpushare[=CLASS[:WEIGHT]]`, and the words behind the
 * plugin's name in plugstack.conf. No Slurm in here.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "common/err.h"

#define GS_SHARE_CLASS_SIZE 16

/* What --gpushare says. */
struct gs_share_option {
    char class[GS_SHARE_CLASS_SIZE]; /* as in GPUSHARE_CLASS; "": not given */
    unsigned weight;                 /* 0: not given */
};

/* text: what stands behind the `=`; NULL or "": nothing. 0; -EINVAL, with the reason in err. */
int gs_share_option_parse(const char *text, struct gs_share_option *option, struct gs_err *err);

/* The words of plugstack.conf. */
struct gs_share_config {
    char door[PATH_MAX]; /* the program gpushare-door */
    char ctl[PATH_MAX];  /* the program gpusharectl */
    bool shards;         /* steps with shards share without the option, too */
    bool record;         /* write into the job's record */
};

/* Without words: the programs that were installed with the plugin, no shards, record. 0; -EINVAL. */
int gs_share_config_parse(int argc, char **argv, struct gs_share_config *config,
                          struct gs_err *err);
