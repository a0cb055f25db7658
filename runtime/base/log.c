/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: one line per message, written with a single write(2), so that lines of several
 * processes do not mix.
 *
 * State: the descriptor, set at start and by the first driver call. Any thread.
 */
#include "runtime/base/log.h"

#include <fcntl.h>
#include <stdarg.h>

#include "runtime/base/base.h"

static struct gs_own_fd log_fd;
static bool quiet;

void gs_log_init(void)
{
    const char *path = secure_getenv("GPUSHARE_LOG");
    const char *silent = getenv("GPUSHARE_QUIET");
    GS_UNCANCELLED cancel = gs_cancel_off();
    static bool said;
    int fd;

    quiet = silent != NULL && strcmp(silent, "1") == 0;
    if (path == NULL || *path == '\0' || gs_own_fd(&log_fd) >= 0)
        return;
    if (strcmp(path, "stderr") == 0)
        fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    else
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0)
        gs_own_fd_set(&log_fd, fd);
    else
        gs_say_once(&said, "GPUSHARE_LOG=%s cannot be written (%s): name a file, or stderr",
                    path, strerror(errno));
}

static void write_line(int fd, const char *prefix, const char *format, va_list ap)
{
    char line[512];
    GS_UNCANCELLED cancel = gs_cancel_off();
    int length = snprintf(line, sizeof line, "%s", prefix);
    const int more = vsnprintf(line + length, sizeof line - (size_t)length - 1, format, ap);

    if (more < 0)
        return;
    length += more;
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (write(fd, line, (size_t)length) < 0)
        return; /* nobody left to tell */
}

void gs_log(const char *format, ...)
{
    const int saved = errno, fd = gs_own_fd(&log_fd);
    struct timespec now;
    char prefix[64];
    va_list ap;

    if (fd < 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(prefix, sizeof prefix, "%lld.%06ld gpushare[%d] ", (long long)now.tv_sec,
             now.tv_nsec / 1000, (int)getpid());
    va_start(ap, format);
    write_line(fd, prefix, format, ap);
    va_end(ap);
    errno = saved;
}

void gs_say_once(bool *said, const char *format, ...)
{
    GS_KEEP_ERRNO;
    va_list ap;

    if (__atomic_exchange_n(said, true, __ATOMIC_RELAXED) || quiet)
        return;
    va_start(ap, format);
    write_line(STDERR_FILENO, "gpushare: ", format, ap);
    va_end(ap);
}
