/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: adds and prints findings, and runs other tools. State: struct doctor.
 */
#include "lockd/ctl/doctor/doctor.h"
#include "common/same.h"
#include "lockd/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *write_text(const char *format, va_list ap)
{
    char *text = NULL;

    if (vasprintf(&text, format, ap) < 0)
        return NULL;
    lockd_text_clean(text, strlen(text) + 1); /* the text may have bytes from elsewhere */
    return text;
}

void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
{
    struct doctor_finding *finding = &doctor->findings[doctor->count];
    va_list ap;

    doctor->full = doctor->count == DOCTOR_FINDINGS;
    if (doctor->full)
        return;
    doctor->count++;
    finding->check = check;
    finding->level = level;
    va_start(ap, format);
    finding->text = write_text(format, ap);
    va_end(ap);
    snprintf(finding->advice, sizeof finding->advice, "%s", advice != NULL ? advice : "");
    lockd_text_clean(finding->advice, sizeof finding->advice);
}

void doctor_command(struct doctor *doctor, const char *format, ...)
{
    struct doctor_finding *finding = &doctor->findings[doctor->count - 1];
    va_list ap;

    if (doctor->full)
        return;
    va_start(ap, format);
    free(finding->command);
    finding->command = write_text(format, ap);
    va_end(ap);
}

const char *doctor_quote(const char *path, char *buffer)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@";
    size_t at = 0;

    if (path[0] != '\0' && path[0] != '-' && path[strspn(path, plain)] == '\0') {
        snprintf(buffer, DOCTOR_QUOTED, "%s", path);
        return buffer;
    }
    at += (size_t)snprintf(buffer, DOCTOR_QUOTED, "%s'", path[0] == '-' ? "./" : "");
    for (; *path != '\0' && at + 6 < DOCTOR_QUOTED; path++)
        at += (size_t)snprintf(buffer + at, DOCTOR_QUOTED - at, "%.*s", *path == '\'' ? 4 : 1,
                               *path == '\'' ? "'\\''" : path);
    snprintf(buffer + at, DOCTOR_QUOTED - at, "'");
    return buffer;
}

#define PATIENCE_MS 20000

extern char **environ;

const char *doctor_tool_find(const char *name, char *buffer, size_t size)
{
    static const char *const beside[] = {"", "../rewriter/", "../lockd/"};
    char self[PATH_MAX];
    const bool is_known = gs_own_path(self, 1);

    for (size_t i = 0; is_known && i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(buffer, size, "%s/%s%s", self, beside[i], name);
        if (access(buffer, X_OK) == 0)
            return buffer;
    }
    snprintf(buffer, size, "%s", name); /* on PATH */
    return buffer;
}

/* Reads until the end or the time limit. */
static void read_all(int fd, char *text, size_t size)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t got = 0;
    ssize_t more;

    while (got < size - 1 && poll(&ready, 1, PATIENCE_MS) > 0 &&
           (more = read(fd, text + got, size - 1 - got)) > 0)
        got += (size_t)more;
    text[got] = '\0';
}

int doctor_tool_run(char *const argv[], int stream, char *text, size_t size)
{
    const int other = stream == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO;
    posix_spawn_file_actions_t actions;
    int ends[2], started, status = 0;
    pid_t pid;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], stream);
    posix_spawn_file_actions_addopen(&actions, other, "/dev/null", O_WRONLY, 0);
    started = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (started == 0) {
        read_all(ends[0], text, size);
        close(ends[0]);
        /* it has ended or is ending, unless it took too long or printed too much */
        for (int i = 0; i < 100 && waitpid(pid, &status, WNOHANG) == 0; i++) {
            if (i == 50)
                kill(pid, SIGKILL);
            poll(NULL, 0, i < 50 ? 2 : 20);
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
    }
    close(ends[0]);
    return -started;
}
