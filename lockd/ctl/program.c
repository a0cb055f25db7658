/* SPDX-License-Identifier: Apache-2.0
 *
 * program.c: `gpusharectl pause|resume|evict|suspend PID`: operations on one program or on all.
 * Also the function by which all commands request a change and print its outcome.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/program.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ctl_pid(const char *text, int32_t *pid)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value <= 0 || value > INT32_MAX)
        return -EINVAL;
    *pid = (int32_t)value;
    return 0;
}

void ctl_print_outcome(int code, uint32_t programs, const char *error)
{
    json_t *root =
        json_pack("{s:b, s:I, s:i, s:o*}", "ok", code == 0, "programs", (json_int_t)programs,
                  "errno", -code, "error", error != NULL ? ctl_json_text(error) : NULL);

    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

int ctl_control(struct ctl *ctl, const struct ctl_act *act, struct gs_wire_end *end)
{
    struct gs_wire_control control = {.op = act->op, .pid = act->pid, .value = act->value};
    struct ctl_answer answer;
    int code;

    lockd_wire_header(&control.header, GS_WIRE_CONTROL);
    code = ctl_ask(ctl, &control, sizeof control, &answer);
    if (code != 0)
        return code;
    *end = answer.end;
    ctl_answer_deinit(&answer);
    return 0;
}

enum ctl_exit ctl_act(struct ctl *ctl, const struct ctl_act *act)
{
    struct gs_wire_end end;
    const int code = ctl_control(ctl, act, &end);

    if (code != 0) {
        if (act->json)
            ctl_print_outcome(code, 0, ctl->err.text);
        return ctl_fail(ctl);
    }
    if (act->json)
        ctl_print_outcome(end.code, end.count, end.code != 0 ? end.text : NULL);
    else if (end.code == 0 && act->done != NULL)
        printf("%s %u %s\n", act->done, end.count, end.count == 1 ? "program" : "programs");
    if (end.code == 0)
        return ctl_done(CTL_OK);
    fprintf(stderr, "gpusharectl: %s\n", end.text);
    return ctl_refused(&end);
}

static enum ctl_exit operate_program(struct ctl *ctl, const struct ctl_command *command,
                                     struct ctl_act *act, bool all, int argc, char **argv)
{
    int index = 1;

    if (lockd_options_read(ctl_json_option, &act->json, false, argc, argv, &index, &ctl->err) !=
        0)
        return ctl_usage(command, "%s", ctl->err.text);
    if (index != argc - 1)
        return ctl_usage(command, all ? "give one process id, or all" : "give one process id");
    if ((!all || strcmp(argv[index], "all") != 0) && ctl_pid(argv[index], &act->pid) != 0)
        return ctl_usage(command, "'%s' is not a process id", argv[index]);
    return ctl_act(ctl, act);
}

static enum ctl_exit pause_run(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_act act = {.op = GS_CONTROL_PAUSE, .done = "paused"};

    return operate_program(ctl, &ctl_pause, &act, true, argc, argv);
}

static enum ctl_exit resume_run(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_act act = {.op = GS_CONTROL_RESUME, .done = "resumed"};

    return operate_program(ctl, &ctl_resume, &act, true, argc, argv);
}

static enum ctl_exit evict_run(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_act act = {.op = GS_CONTROL_EVICT, .done = "evicting"};

    return operate_program(ctl, &ctl_evict, &act, true, argc, argv);
}

static enum ctl_exit suspend_run(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_act act = {.op = GS_CONTROL_SUSPEND, .done = "suspended"};

    return operate_program(ctl, &ctl_suspend, &act, false, argc, argv);
}

const struct ctl_command ctl_pause = {
    "pause",
    "PID|all",
    "keep a program from running on GPUs; its memory stays until others need "
    "it",
    pause_run,
    NULL,
    ctl_json_option};
const struct ctl_command ctl_resume = {
    "resume",   "PID|all", "let a paused or suspended program run again",
    resume_run, NULL,      ctl_json_option};
const struct ctl_command ctl_evict = {
    "evict",   "PID|all", "move the memory of a program to the host until its next turn",
    evict_run, NULL,      ctl_json_option};
const struct ctl_command ctl_suspend = {
    "suspend",   "PID", "pause a program and move all its memory to the host",
    suspend_run, NULL,  ctl_json_option};
