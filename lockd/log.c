/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: writes log lines to stderr, each with one write(2). Its two settings are made once at
 * start. One thread.
 */
#include "lockd/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    enum lockd_log_level level;
    bool journal; /* stderr goes to journald, which reads "<6>" */
} log_settings = {LOCKD_LOG_INFO, false};

void lockd_log_open(enum lockd_log_level level)
{
    log_settings.level = level;
    log_settings.journal = getenv("JOURNAL_STREAM") != NULL;
}

void lockd_log(enum lockd_log_level level, const char *format, ...)
{
    char line[1024];
    size_t length = 0;
    int written;
    va_list ap;

    if (level > log_settings.level)
        return;
    written = log_settings.journal ? snprintf(line, sizeof line, "<%d>", (int)level)
                                   : snprintf(line, sizeof line, "gpushare-lockd: ");
    length += written > 0 ? (size_t)written : 0;
    va_start(ap, format);
    written = vsnprintf(line + length, sizeof line - length - 1, format, ap);
    va_end(ap);
    if (written < 0)
        return;
    length += (size_t)written;
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, length) < 0)
        return; /* nowhere left to say so */
}
