/* SPDX-License-Identifier: Apache-2.0
 *
 * set.c: `gpusharectl set NAME [PID] VALUE`: changes settings of the running daemon, until it ends
 * or reads its configuration again, or of one program, until it ends. `gpusharectl reload`: makes
 * the daemon read its configuration again.
 */
#include "common/help.h"
#include "common/size.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/ctl.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/program.h"
#include "lockd/protocol/setting_table.h"

#include <stdio.h>
#include <string.h>

static void list_settings(void)
{
    puts("\nsettings");
    for (const struct lockd_setting *at = lockd_settings; at->name != NULL; at++) {
        char left[80];

        if (at->op == 0)
            continue;
        snprintf(left, sizeof left, "  %s %s%s", at->name,
                 at->scope == LOCKD_SCOPE_PROGRAM ? "PID " : "", at->argument);
        gs_help_row(stdout, left, 35, at->help, NULL);
    }
}

/* Says it where a program has more than the limit that was just set: a limit takes nothing away. */
static void look_below(struct ctl *ctl, const struct ctl_act *act)
{
    struct ctl_answer answer;
    char demand[24], limit[24];

    if (ctl_ask_status(ctl, &answer) != 0)
        return;
    for (size_t i = 0; i < answer.client_count; i++) {
        const struct gs_wire_client *client = &answer.clients[i];
        const uint64_t has = client->demand + client->pinned;

        if (client->pid == act->pid && has > act->value)
            fprintf(
                stderr,
                "gpusharectl: process %d has %s now, more than the limit of %s: it keeps that, "
                "and gets no more until it has less\n",
                act->pid, gs_size_format(has, demand, sizeof demand),
                gs_size_format(act->value, limit, sizeof limit));
    }
    ctl_answer_deinit(&answer);
}

static enum ctl_exit set_one(struct ctl *ctl, const struct lockd_setting *setting, bool json,
                             int count, char **words)
{
    struct ctl_act act = {.op = setting->op, .json = json};
    const struct lockd_option option = lockd_setting_option(setting, &act.value);
    const bool of_program = setting->scope == LOCKD_SCOPE_PROGRAM;
    enum ctl_exit code;

    if (setting->op == 0)
        return ctl_usage(
            &ctl_set,
            "%s can only be set in the daemon's configuration file: change it there, "
            "then run gpusharectl reload",
            setting->name);
    if (count != (of_program ? 2 : 1))
        return ctl_usage(&ctl_set, "%s is set like this: %s %s%s", setting->name, setting->name,
                         of_program ? "PID " : "", setting->argument);
    if (of_program && ctl_pid(words[0], &act.pid) != 0)
        return ctl_usage(&ctl_set, "'%s' is not a process id", words[0]);
    if (lockd_option_value(&option, words[count - 1], &ctl->err) != 0)
        return ctl_usage(&ctl_set, "%s", ctl->err.text);
    code = ctl_act(ctl, &act);
    if (code == CTL_OK && strcmp(setting->name, "limit") == 0)
        look_below(ctl, &act);
    return code;
}

static enum ctl_exit set_run(struct ctl *ctl, int argc, char **argv)
{
    bool json = false;
    const struct lockd_setting *setting;
    char hint[64];
    int index = 1;

    if (lockd_options_read(ctl_json_option, &json, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_set, "%s", ctl->err.text);
    if (index == argc)
        return ctl_usage(&ctl_set, "give a name and a value (set --help lists them)");
    setting = lockd_setting_find(argv[index]);
    if (setting == NULL)
        return ctl_usage(&ctl_set, "there is no setting '%s' (set --help lists them)%s",
                         argv[index], lockd_setting_hint(argv[index], hint, sizeof hint));
    return set_one(ctl, setting, json, argc - index - 1, argv + index + 1);
}

static enum ctl_exit reload_run(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_act act = {.op = GS_CONTROL_RELOAD};
    int index = 1;

    if (lockd_options_read(ctl_json_option, &act.json, false, argc, argv, &index, &ctl->err) !=
        0)
        return ctl_usage(&ctl_reload, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_reload, "takes no arguments");
    return ctl_act(ctl, &act);
}

const struct ctl_command ctl_set = {
    "set",   "NAME [PID] VALUE", "change a setting (set --help lists them)",
    set_run, list_settings,      ctl_json_option};
const struct ctl_command ctl_reload = {
    "reload",   "",   "make the daemon read its configuration files again",
    reload_run, NULL, ctl_json_option};
