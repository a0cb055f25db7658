/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: the checks of `gpusharectl doctor`. Each file adds findings; doctor_command.c
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
    /* Both are whole, since a path that is cut names another file; NULL without memory. */
    char *text;
    char *command;    /* one line for a shell; NULL: nothing. Each WARN and FAIL has one */
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
    bool full; /* the last finding had no room */
};

/* Adds a finding; advice may be NULL. */
void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The command to paste for the finding that was added last. */
void doctor_command(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A path as a word of a shell's line. Returns buffer. */
#define DOCTOR_QUOTED (4 * 4096 + 8)
const char *doctor_quote(const char *path, char *buffer);

/* doctor_tool.c: the path of a tool beside this program, else its name, for the PATH. Returns
 * buffer. */
const char *doctor_tool_find(const char *name, char *buffer, size_t size);
/* Runs it and reads the beginning of what it writes to that stream. Its exit code, or -errno. */
int doctor_tool_run(char *const argv[], int stream, char *text, size_t size);

/* doctor_config.c: lockd.conf; and GPUSHARE_CLASS (value may be NULL). */
void doctor_config(struct doctor *doctor);
void doctor_class(struct doctor *doctor, const char *value, const char *whose);
/* doctor_libraries.c: those that a file needs and that are not found. */
void doctor_libraries(struct doctor *doctor, const char *file);
/* doctor_container.c: the specification for containers; whether the process lives in one, and what
 * it sees of the daemon there. */
void doctor_containers(struct doctor *doctor);
bool doctor_is_contained(const struct doctor *doctor);
void doctor_namespaces(struct doctor *doctor);
/* doctor_wheel.c: Python environments that gpushare was installed in by pip. */
void doctor_wheel(struct doctor *doctor);
/* doctor_daemon.c: the socket, its folder, the daemon, what it knows of the process. */
void doctor_daemon(struct doctor *doctor);
/* doctor_system.c: driver, devices, MIG, MPS, host memory, the library. */
void doctor_system(struct doctor *doctor);
/* A libcuda.so.1 to link with, which comes with the toolkit. */
bool doctor_is_stub(const char *path);
#define DOCTOR_STUB_ADVICE "take the toolkit's stubs folder out of LD_LIBRARY_PATH"
#define DOCTOR_STUB_COMMAND                                                                    \
    "export LD_LIBRARY_PATH=$(tr : '\\n' <<<\"$LD_LIBRARY_PATH\" | grep -v stubs | paste "     \
    "-sd:)"
#define DOCTOR_GROUP_COMMAND "sudo usermod -aG gpushare \"$USER\""
/* doctor_environment.c: variables in the way. environment: NAME=VALUE strings, each ended by a
 * zero byte. whose: for the messages. */
void doctor_environment(struct doctor *doctor, const char *environment, size_t size,
                        const char *whose);
/* The value of a variable in it, NULL if it is not there. */
const char *doctor_variable(const char *environment, size_t size, const char *name);
/* doctor_file.c: is this program prepared, and can it be? path: what is read; name: what is
 * said. */
void doctor_file(struct doctor *doctor, const char *path, const char *name);
/* The answer of gpushare-patch about a file. */
enum doctor_patched {
    DOCTOR_UNKNOWN, /* it cannot be asked, or there is no such file */
    DOCTOR_UNPATCHED,
    DOCTOR_PATCHED,
    DOCTOR_ORPHANED, /* patched, and its library is gone */
};
enum doctor_patched doctor_patched(const char *path);
/* doctor_process.c: a running program: its file, its maps, its environment, its namespaces. */
void doctor_process(struct doctor *doctor);

#endif
