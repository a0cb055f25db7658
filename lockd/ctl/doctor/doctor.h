/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: what `gpusharectl doctor` looks at. Each file of it adds findings; doctor.c
 * prints them.
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
    DOCTOR_WARN, /* may be why */
    DOCTOR_FAIL, /* is why */
};

struct doctor_finding {
    const char *check; /* a name for scripts: "daemon.reachable" */
    enum doctor_level level;
    char text[512];
    char advice[256]; /* what to do; "" for nothing */
};

#define DOCTOR_FINDINGS 64

struct doctor {
    struct ctl *ctl;
    struct ctl_answer answer; /* of the daemon; not running: all zero */
    pid_t pid;                /* 0: no process was named */
    const char *file;         /* NULL: no file was named */
    struct doctor_finding findings[DOCTOR_FINDINGS];
    size_t count;
};

/* Adds a finding; advice may be NULL. */
void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* doctor_daemon.c: the socket, its folder, the daemon, what it knows of the process. */
void doctor_daemon(struct doctor *doctor);
/* doctor_system.c: driver, devices, MIG, MPS, host memory, the library. */
void doctor_system(struct doctor *doctor);
/* A libcuda.so.1 to link with, which comes with the toolkit. */
bool doctor_is_stub(const char *path);
#define DOCTOR_STUB_ADVICE "take the toolkit's stubs folder out of LD_LIBRARY_PATH"
/* doctor_environment.c: variables in the way. environment: NAME=VALUE strings, each ended by a
 * zero byte. whose: for the messages. */
void doctor_environment(struct doctor *doctor, const char *environment, size_t size,
                        const char *whose);
/* The value of a variable in it, NULL if it is not there. */
const char *doctor_variable(const char *environment, size_t size, const char *name);
/* doctor_file.c: is this program prepared, and can it be? path: what is read; name: what is
 * said. */
void doctor_file(struct doctor *doctor, const char *path, const char *name);
/* doctor_process.c: a running program: its file, its maps, its environment, its namespaces. */
void doctor_process(struct doctor *doctor);

#endif
