/* SPDX-License-Identifier: Apache-2.0
 *
 * halt.c: reads from /proc and the control groups whether a process is stopped, and when it was
 * started. No state.
 */
#include "lockd/base/halt.h"
#include "common/fd.h"

#include <stdbool.h>
#include <string.h>

#define PATH_SIZE 4352

FILE *lockd_process_open(pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

/* Reads /proc/PID/stat. Returns the text from its third field on, which is behind the name, in brackets
 * and of any characters; NULL: it cannot be read. */
static const char *read_stat(pid_t pid, char *text, size_t size)
{
    GS_CLOSE_FILE FILE *file = lockd_process_open(pid, "stat");
    const char *end;

    if (file == NULL)
        return NULL;
    text[fread(text, 1, size - 1, file)] = '\0';
    end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' ? end + 2 : NULL;
}

enum lockd_halt lockd_halt_of_process(pid_t pid)
{
    char text[1024];
    const char *state = read_stat(pid, text, sizeof text);

    return state == NULL   ? LOCKD_HALT_NONE
           : *state == 'T' ? LOCKD_HALT_STOPPED
           : *state == 't' ? LOCKD_HALT_TRACED
                           : LOCKD_HALT_NONE;
}

uint64_t lockd_process_started(pid_t pid)
{
    char text[1024];
    const char *at = read_stat(pid, text, sizeof text);

    for (int field = 3; at != NULL && field < 22; field++) {
        at = strchr(at, ' ');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static bool has_line(const char *path, const char *wanted)
{
    GS_CLOSE_FILE FILE *file = fopen(path, "re");
    char line[128];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, wanted) == 0)
            return true;
    }
    return false;
}

/* A line of /proc/PID/cgroup, "NUMBER:CONTROLLERS:PATH"; version 2 has the number 0. A frozen
 * group's own files say so, also if a group above it was frozen. */
static bool is_frozen_group(const char *line)
{
    const char *controllers = strchr(line, ':');
    const char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    char path[PATH_SIZE];

    if (group == NULL)
        return false;
    if (strncmp(controllers, ":freezer:", 9) == 0) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/freezer%s/freezer.state", group + 1);
        return has_line(path, "FROZEN");
    }
    if (strncmp(line, "0::", 3) != 0)
        return false;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cgroup.events", group + 1);
    if (has_line(path, "frozen 1"))
        return true;
    snprintf(path, sizeof path, "/sys/fs/cgroup/unified%s/cgroup.events", group + 1);
    return has_line(path, "frozen 1");
}

enum lockd_halt lockd_halt_of(pid_t pid)
{
    const enum lockd_halt halt = lockd_halt_of_process(pid);
    GS_CLOSE_FILE FILE *file =
        halt == LOCKD_HALT_NONE ? lockd_process_open(pid, "cgroup") : NULL;
    GS_FREE char *line = NULL;
    size_t size = 0;

    while (file != NULL && getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (is_frozen_group(line))
            return LOCKD_HALT_FROZEN;
    }
    return halt;
}
