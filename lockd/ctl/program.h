/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h: operations on one program or on all.
 */
#pragma once

#include "lockd/ctl/ctl.h"

struct ctl_act {
    uint32_t op; /* enum gs_control_op */
    int32_t pid;
    uint64_t value;
    bool json;
    /* Such as "paused": printed with the number of programs; NULL: prints nothing. */
    const char *done;
};
/* Carries out one control operation, and prints nothing. 0: *end is the daemon's answer; else
 * -errno, with the error in ctl->err. */
int ctl_control(struct ctl *ctl, const struct ctl_act *act, struct gs_wire_end *end);
/* Prints the outcome of a request: the error in ctl->err (code is not 0), or the daemon's refusal;
 * as JSON success, too. Returns the exit code. */
enum ctl_exit ctl_outcome(struct ctl *ctl, int code, const struct gs_wire_end *end, bool json);
/* Reads a process id from the command line. 0 or -EINVAL. */
int ctl_pid(const char *text, int32_t *pid);
/* The same, and prints an error in the command line. */
int ctl_pid_operand(struct ctl *ctl, const char *text, int32_t *pid);
