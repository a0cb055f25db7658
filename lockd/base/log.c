/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: writes log lines to stderr, each with one write(2). The daemon never waits for the
 * reader of the log: a line for which there is no room at once is lost, and counted. A terminal
 * takes part of a line and waits for room for the rest, and another process may write into a
 * pipe that has just had room; so both are opened again as non-blocking, and the descriptors of
 * other processes stay as they are. One thread.
 */
#include "lockd/base/log.h"

#include "lockd/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    enum lockd_log_level level;
    int fd;
    bool journal; /* stderr goes to journald, which understands "<6>" */
    unsigned lost;
} log_state = {LOCKD_LOG_INFO, STDERR_FILENO, false, 0};

/* Processes inherit the variable even if their stderr is not the journal: systemd.exec(5). */
static bool is_journal(const char *stream)
{
    char ours[64];
    struct stat st;

    if (stream == NULL || fstat(STDERR_FILENO, &st) != 0)
        return false;
    snprintf(ours, sizeof ours, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, ours) == 0;
}

enum lockd_log_level lockd_log_level_at(uint64_t place)
{
    static const enum lockd_log_level levels[] = {LOCKD_LOG_ERROR, LOCKD_LOG_WARNING,
                                                  LOCKD_LOG_INFO, LOCKD_LOG_DEBUG};

    return levels[place];
}

void lockd_log_open(enum lockd_log_level level)
{
    log_state.level = level;
    log_state.journal = is_journal(getenv("JOURNAL_STREAM"));
}

void lockd_log_serve(void)
{
    const int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct stat st;
    const bool anew =
        isatty(STDERR_FILENO) || (fstat(STDERR_FILENO, &st) == 0 && S_ISFIFO(st.st_mode));
    const int fd = anew ? open("/proc/self/fd/2", flags) : -1;

    if (fd >= 0)
        log_state.fd = fd;
}

/* A pipe that is ready takes a whole line. False: nothing reads it. */
static bool write_line(const char *line, size_t length)
{
    struct pollfd ready = {.fd = log_state.fd, .events = POLLOUT};

    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
           write(log_state.fd, line, length) == (ssize_t)length;
}

/* Writes the beginning of a line. Returns its length. */
static size_t format_head(enum lockd_log_level level, char *line, size_t size)
{
    const int length = log_state.journal
                           ? snprintf(line, size, "<%d>", (int)level)
                           : snprintf(line, size, "%s: ", program_invocation_short_name);

    return length > 0 ? (size_t)length : 0;
}

static void log_lost_lines(void)
{
    char line[128];
    size_t length = format_head(LOCKD_LOG_WARNING, line, sizeof line);

    length +=
        (size_t)snprintf(line + length, sizeof line - length,
                         "%u log lines were lost: the reader of the log is too slow or has "
                         "stopped\n",
                         log_state.lost);
    if (write_line(line, length))
        log_state.lost = 0;
}

void lockd_log(enum lockd_log_level level, const char *format, ...)
{
    char line[1024];
    size_t length;
    int written;
    va_list ap;

    if (level > log_state.level)
        return;
    if (log_state.lost != 0)
        log_lost_lines();
    length = format_head(level, line, sizeof line);
    va_start(ap, format);
    written = vsnprintf(line + length, sizeof line - length - 1, format, ap);
    va_end(ap);
    if (written < 0)
        return;
    /* names of programs, containers and files are chosen by others */
    lockd_text_clean(line + length, sizeof line - length - 1);
    length += strlen(line + length);
    line[length++] = '\n';
    log_state.lost += !write_line(line, length) && log_state.lost < UINT_MAX;
}
