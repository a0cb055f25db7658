/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_config.c: checks the configuration files, by running the daemon, and the class that a
 * program's environment names. No state.
 */
#include "common/paths.h"
#include "lockd/ctl/doctor/doctor_config.h"
#include "lockd/ctl/doctor/doctor_tool.h"
#include "lockd/ctl/doctor/findings.h"
#include "lockd/protocol/setting_table.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define USAGE 2 /* gpushare-lockd's exit code for an error in its files */

void doctor_config(struct doctor *doctor)
{
    char tool[600], check[] = "--check", said[512];
    char *argv[] = {tool, check, NULL};
    char *text = said;

    doctor_tool_find("gpushare-lockd", tool, sizeof tool);
    switch (doctor_tool_run(argv, STDERR_FILENO, said, sizeof said)) {
    case 0:
        doctor_add(doctor, "config.check", DOCTOR_OK, NULL,
                   "the configuration files have no error");
        break;
    case USAGE:
        text[strcspn(text, "\n")] = '\0';
        if (strncmp(text, "gpushare-lockd: ", 16) == 0)
            text += 16;
        doctor_add(doctor, "config.check", DOCTOR_FAIL,
                   "correct that line: with it no daemon starts, and a running one keeps its "
                   "old settings",
                   "%.300s", text);
        doctor_command(doctor, "sudo \"${EDITOR:-vi}\" %.*s", (int)strcspn(text, ":"), text);
        break;
    default:
        doctor_add(doctor, "config.check", DOCTOR_WARN,
                   "gpushare is not installed completely: no program can start the daemon",
                   "gpushare-lockd was not found beside gpusharectl or on the PATH");
        doctor_command(doctor, "command -v gpushare-lockd gpusharectl gpushare-patch");
    }
}

void doctor_class(struct doctor *doctor, const char *value, const char *whose)
{
    const struct lockd_setting *row = lockd_setting_find("class");
    uint64_t place = 0;
    struct lockd_option option;
    struct gs_err err = {0};

    if (value == NULL || value[0] == '\0' || row == NULL)
        return;
    option = lockd_setting_option(row, &place);
    if (lockd_option_value(&option, value, &err) == 0) {
        doctor_add(doctor, "environment.class", DOCTOR_INFO, NULL, "GPUSHARE_CLASS=%.40s in %s",
                   value, whose);
        return;
    }
    doctor_add(doctor, "environment.class", DOCTOR_WARN,
               "until a class is set, the program's behaviour decides it",
               "GPUSHARE_CLASS=%.40s in %s is ignored: it is not one of %s", value, whose,
               row->argument);
    if (doctor->pid != 0)
        doctor_command(doctor, "gpusharectl set class %d interactive", (int)doctor->pid);
    else
        doctor_command(doctor, "unset GPUSHARE_CLASS");
}
