/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_command.c: `gpusharectl doctor [PID|FILE]`: finds out why a program does not share. Checks
 * the machine and the daemon, and a program if it is named; prints its findings with advice.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/doctor/doctor.h"
#include "lockd/ctl/doctor/doctor_daemon.h"
#include "lockd/ctl/doctor/doctor_environment.h"
#include "lockd/ctl/doctor/doctor_file.h"
#include "lockd/ctl/doctor/doctor_process.h"
#include "lockd/ctl/doctor/doctor_system.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/program.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char *const level_names[] = {"ok", "info", "warn", "fail"};

static enum doctor_level worst_level(const struct doctor *doctor)
{
    enum doctor_level level = DOCTOR_OK;

    for (size_t i = 0; i < doctor->count; i++) {
        if (doctor->findings[i].level > level)
            level = doctor->findings[i].level;
    }
    return level;
}

static void print_text(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];

        printf("%-5s %s\n", level_names[finding->level],
               finding->text != NULL ? finding->text : "");
        if (finding->advice[0] != '\0')
            printf("      -> %s\n", finding->advice);
        if (finding->command != NULL)
            printf("      $ %s\n", finding->command);
    }
    switch (worst_level(doctor)) {
    case DOCTOR_FAIL:
        puts("\nThe lines that begin with `fail` tell why it does not share.");
        break;
    case DOCTOR_WARN:
        puts("\nNothing certainly prevents sharing; the lines that begin with `warn` "
             "may matter.");
        break;
    default:
        puts("\nNothing was found that prevents sharing.");
    }
}

static int print_json(const struct doctor *doctor)
{
    json_t *findings = json_array();
    json_t *root;
    int code;

    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];

        json_array_append_new(
            findings, json_pack("{s:s, s:s, s:o, s:s?, s:s?}", "check", finding->check, "level",
                                level_names[finding->level], "text",
                                ctl_json_text(finding->text != NULL ? finding->text : ""),
                                "advice", finding->advice[0] != '\0' ? finding->advice : NULL,
                                "command", finding->command));
    }
    root = json_pack("{s:s, s:o?, s:o?, s:o}", "verdict", level_names[worst_level(doctor)],
                     "pid", doctor->pid != 0 ? json_integer(doctor->pid) : NULL, "file",
                     doctor->file != NULL ? ctl_json_text(doctor->file) : NULL, "findings",
                     findings);
    code = root == NULL || json_dumpf(root, stdout, JSON_INDENT(2)) != 0 ? -ENOMEM : 0;
    putchar('\n');
    json_decref(root);
    return code;
}

/* Our own environment, in the form of /proc/PID/environ. */
static void look_at_own_environment(struct doctor *doctor)
{
    size_t size = 0, at = 0;
    char *text;

    for (char **each = environ; *each != NULL; each++)
        size += strlen(*each) + 1;
    text = malloc(size + 1);
    if (text == NULL)
        return;
    for (char **each = environ; *each != NULL; each++) {
        memcpy(text + at, *each, strlen(*each) + 1);
        at += strlen(*each) + 1;
    }
    doctor_environment(doctor, text, size, "this shell");
    free(text);
}

static void free_doctor(struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        free(doctor->findings[i].text);
        free(doctor->findings[i].command);
    }
    ctl_answer_deinit(&doctor->answer);
    free(doctor);
}

static enum ctl_exit doctor_run(struct ctl *ctl, int argc, char **argv)
{
    struct doctor *doctor = calloc(1, sizeof *doctor);
    bool json = false;
    int index = 1, pid = 0, code = 0;
    enum doctor_level level;

    if (doctor == NULL)
        return CTL_FAILED;
    if (lockd_options_read(ctl_json_option, &json, false, argc, argv, &index, &ctl->err) != 0 ||
        index < argc - 1) {
        free(doctor);
        return ctl_usage(&ctl_doctor, "%s",
                         ctl->err.code != 0 ? ctl->err.text
                                            : "give at most one process id or file");
    }
    doctor->ctl = ctl;
    if (index < argc && ctl_pid(argv[index], &pid) == 0)
        doctor->pid = pid;
    else if (index < argc)
        doctor->file = argv[index];
    doctor_daemon(doctor);
    doctor_system(doctor);
    doctor_config(doctor);
    doctor_containers(doctor);
    if (doctor->pid != 0)
        doctor_process(doctor);
    else
        look_at_own_environment(doctor);
    doctor_wheel(doctor);
    if (doctor->file != NULL) {
        doctor_file(doctor, doctor->file, doctor->file);
        doctor_libraries(doctor, doctor->file);
    }
    if (json)
        code = print_json(doctor);
    else
        print_text(doctor);
    level = worst_level(doctor);
    free_doctor(doctor);
    return ctl_done(code != 0 || level == DOCTOR_FAIL ? CTL_FAILED : CTL_OK);
}

const struct ctl_command ctl_doctor = {
    "doctor",   "[PID|FILE]", "find out why a program does not share",
    doctor_run, NULL,         ctl_json_option};
