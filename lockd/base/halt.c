/* SPDX-License-Identifier: Apache-2.0
 *
 * halt.c: reads from /proc and the control groups whether a process is stopped. No state.
 */
#include "lockd/base/halt.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 4352

/* The state is the letter after the name, which is in brackets and may contain any character. */
enum lockd_halt lockd_halt_of_process(pid_t pid)
{
    char path[64], text[512];
    const char *end = NULL;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return LOCKD_HALT_NONE;
    if (fgets(text, sizeof text, file) != NULL)
        end = strrchr(text, ')');
    fclose(file);
    if (end == NULL || end[1] != ' ')
        return LOCKD_HALT_NONE;
    return end[2] == 'T'   ? LOCKD_HALT_STOPPED
           : end[2] == 't' ? LOCKD_HALT_TRACED
                           : LOCKD_HALT_NONE;
}

static bool has_line(const char *path, const char *wanted)
{
    char line[128];
    FILE *file = fopen(path, "re");
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        found = strcmp(line, wanted) == 0;
    }
    fclose(file);
    return found;
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
    enum lockd_halt halt = lockd_halt_of_process(pid);
    char path[64], *line = NULL;
    size_t size = 0;
    FILE *file;

    if (halt != LOCKD_HALT_NONE)
        return halt;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return halt;
    while (halt == LOCKD_HALT_NONE && getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (is_frozen_group(line))
            halt = LOCKD_HALT_FROZEN;
    }
    free(line);
    fclose(file);
    return halt;
}
