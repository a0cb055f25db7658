/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: what the checks of `gpusharectl doctor` share. Each file adds findings;
 * doctor_command.c prints them.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_H

#include "lockd/ctl/ctl.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_INFO, /* good to know */
    DOCTOR_WARN, /* may be the reason */
    DOCTOR_FAIL, /* is the reason */
};

struct doctor_finding {
    const char *check; /* a name for scripts: "daemon.reachable" */
    enum doctor_level level;
    /* Never cut, since a part of a path names another file; NULL without memory. */
    char *text;
    char *command;    /* one line for a shell; NULL: nothing. Each WARN and FAIL has one */
    char advice[256]; /* advice; "": none */
};

#define DOCTOR_FINDINGS 64

struct doctor {
    struct ctl *ctl;
    struct ctl_answer answer; /* the daemon's; all zero: it does not run */
    pid_t pid;                /* 0: no process was named */
    const char *file;         /* NULL: no file was named */
    struct doctor_finding findings[DOCTOR_FINDINGS];
    size_t count;
    bool full; /* the last finding had no room */
};

#endif
