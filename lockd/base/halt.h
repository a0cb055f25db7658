/* SPDX-License-Identifier: Apache-2.0
 *
 * halt.h: whether somebody has stopped a process, so that it cannot answer; when it was started.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum lockd_halt {
    LOCKD_HALT_NONE,    /* it runs, as far as this process may see */
    LOCKD_HALT_STOPPED, /* by a signal: Ctrl-Z, SIGSTOP */
    LOCKD_HALT_TRACED,  /* by a debugger */
    LOCKD_HALT_FROZEN,  /* with its control group: docker pause, systemctl freeze */
};

/* By the state of the process alone, which tells nothing of its control group: one short file. */
enum lockd_halt lockd_halt_of_process(pid_t pid);
/* ... and of its control group, of version 1 or 2. */
enum lockd_halt lockd_halt_of(pid_t pid);

/* Opens /proc/PID/NAME for reading; NULL, with errno. */
FILE *lockd_process_open(pid_t pid, const char *name);
/* When the process was started, in clock ticks since boot; 0: not known. */
uint64_t lockd_process_started(pid_t pid);
