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
/* Reads a process id from the command line. 0 or -EINVAL. */
int ctl_pid(const char *text, int32_t *pid);
