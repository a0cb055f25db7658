/* SPDX-License-Identifier: Apache-2.0
 *
 * spank_gpushare.c: the SPANK plugin's callbacks (slurm/spank.h says in which process and with which rights each runs). State: the
 * configuration, the option and the step, of the one process that the plugin is loaded in.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#pragma GCC visibility push(default) /* what Slurm looks up */
#include <slurm/spank.h>
SPANK_PLUGIN(gpushare, 1)
#pragma GCC visibility pop

#include "cluster/slurm/share_option.h"
#include "cluster/slurm/step.h"

#define ACCOUNT_SIZE 512

static struct {
    struct gs_share_config config;
    struct gs_share_option option;
    struct gs_step step;
    bool given;     /* --gpushare stands on the command line */
    bool shares;    /* this step's programs share */
    bool told;      /* the figures */
    uint32_t ended; /* tasks */
} plugin;

static int complain_of(const struct gs_err *err)
{
    slurm_error("gpushare: %s", err->text);
    return -1;
}

static int take_option(int value, const char *text, int remote)
{
    struct gs_err err = {0};

    (void)value;
    (void)remote;
    /* Slurm writes an option without an argument as "(null)" for the processes of the step */
    if (text != NULL && strcmp(text, "(null)") == 0)
        text = NULL;
    if (gs_share_option_parse(text, &plugin.option, &err) != 0)
        return complain_of(&err);
    plugin.given = true;
    return 0;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    static char name[] = "gpushare", argument[] = "class[:weight]",
                usage[] = "share the GPU by gpushare; class: auto, interactive, batch or "
                          "background; weight: 1 to 10000 (100)";
    static struct spank_option option = {
        .name = name, .arginfo = argument, .usage = usage, .has_arg = 2, .cb = take_option};
    struct gs_err err = {0};

    if (gs_share_config_parse(argc, argv, &plugin.config, &err) != 0)
        return complain_of(&err);
    return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    struct gs_err err = {0};

    (void)argc;
    (void)argv;
    if (spank_remote(spank) != 1)
        return 0;
    plugin.shares = plugin.given || (plugin.config.shards && gs_step_has_shards(spank));
    if (!plugin.shares)
        return 0;
    return gs_step_begin(spank, &plugin.option, &plugin.step, &err) == 0 ? 0
                                                                         : complain_of(&err);
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
    struct gs_err err = {0};

    (void)spank;
    (void)argc;
    (void)argv;
    return !plugin.shares || gs_step_mount(&plugin.config, &err) == 0 ? 0 : complain_of(&err);
}

/* Records the sums of an ended step. No failure here may make the job fail. */
static void tell_account(spank_t spank)
{
    char account[ACCOUNT_SIZE], text[ACCOUNT_SIZE + 128];
    struct gs_err err = {0};

    plugin.told = true;
    if (gs_step_account(spank, &plugin.config, &plugin.step, account, sizeof account, &err) !=
        0) {
        slurm_info("gpushare: step %s: no figures: %s", plugin.step.group, err.text);
        return;
    }
    snprintf(text, sizeof text, "gpushare@%s=%s", plugin.step.node, account);
    slurm_info("%s", text);
    if (plugin.config.record && gs_record_add(plugin.step.job, text, &err) != 0)
        slurm_info("gpushare: step %s: not in the job's record: %s", plugin.step.group,
                   err.text);
}

/* After the last task of this node: later, the controller may take the job as finished, and
 * takes no comment any more. */
int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    plugin.ended++;
    if (plugin.shares && plugin.step.group[0] != '\0' && plugin.ended == plugin.step.tasks)
        tell_account(spank);
    return 0;
}

/* A step whose tasks did not all begin. */
int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (plugin.shares && plugin.step.group[0] != '\0' && plugin.ended != 0 && !plugin.told)
        tell_account(spank);
    return 0;
}
