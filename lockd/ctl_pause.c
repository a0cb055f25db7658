/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl_pause.c: `gpusharectl pause|resume PID|all`: a paused program does not run on any device;
 * its memory stays where it is until others need the room.
 */
#include "lockd/ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ctl_exit operate(struct ctl *ctl, const struct ctl_command *command, uint32_t op,
                             int argc, char **argv)
{
    struct gs_wire_end end;
    enum ctl_exit code;
    long pid = 0;
    char *rest;

    if (argc != 2)
        return ctl_usage(command, "one process id, or all, is needed");
    if (strcmp(argv[1], "all") != 0) {
        errno = 0;
        pid = strtol(argv[1], &rest, 10);
        if (errno != 0 || *rest != '\0' || pid <= 0 || pid > INT32_MAX)
            return ctl_usage(command, "that is no process id");
    }
    code = ctl_operate(ctl, op, (int32_t)pid, 0, &end);
    if (code == CTL_OK)
        printf("%s %u %s\n", op == GS_CONTROL_PAUSE ? "paused" : "resumed", end.count,
               end.count == 1 ? "program" : "programs");
    return code;
}

static enum ctl_exit pause_run(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, &ctl_pause, GS_CONTROL_PAUSE, argc, argv);
}

static enum ctl_exit resume_run(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, &ctl_resume, GS_CONTROL_RESUME, argc, argv);
}

const struct ctl_command ctl_pause = {
    "pause", "PID|all", "stop a program from using GPUs; its memory stays until others need it",
    pause_run};
const struct ctl_command ctl_resume = {"resume", "PID|all", "let it go on", resume_run};
