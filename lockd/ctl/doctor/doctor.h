/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: what the checks of `gpusharectl doctor` share. Each file adds findings;
 * doctor_command.c prints them.
 */
#pragma once

#include "lockd/ctl/ctl.h"

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

/* Adds a finding; advice may be NULL. */
void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds a command to paste to the last finding. */
void doctor_command(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Quotes a path for a shell. Returns buffer. */
#define DOCTOR_QUOTED (4 * 4096 + 8)
const char *doctor_quote(const char *path, char *buffer);

/* The path of a tool beside this program, else its name, to be found on the PATH. Returns
 * buffer. */
const char *doctor_tool_find(const char *name, char *buffer, size_t size);
/* Runs a tool and reads the beginning of its output to that stream. Returns its exit code, or
 * -errno. */
int doctor_tool_run(char *const argv[], int stream, char *text, size_t size);

/* The answer of gpushare-patch about a file. */
enum doctor_patched {
    DOCTOR_UNKNOWN, /* gpushare-patch is missing, or there is no such file */
    DOCTOR_UNPATCHED,
    DOCTOR_PATCHED,
    DOCTOR_ORPHANED, /* patched, but its library is missing */
};

/* Libraries that a file needs and that are not found. */
void doctor_libraries(struct doctor *doctor, const char *file);
/* Whether a program is prepared, and whether it can be. path: the file to read; name: for the
 * messages. */
void doctor_file(struct doctor *doctor, const char *path, const char *name);
enum doctor_patched doctor_patched(const char *path);
