/* SPDX-License-Identifier: Apache-2.0
 *
 * err.c: fills struct gs_err: one line that fits, whatever names it contains. No state, any
 * thread, no allocation.
 */
#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHOLE 16384 /* bytes: two paths of PATH_MAX and a sentence about them */

__attribute__((format(printf, 4, 0))) static void
fill(struct gs_err *err, int code, const char *reason, const char *format, va_list ap)
{
    const size_t head = sizeof err->text / 4;
    char whole[WHOLE];
    size_t length;

    if (err == NULL || err->code != 0)
        return;
    err->code = code;
    vsnprintf(whole, sizeof whole, format, ap);
    length = strlen(whole);
    if (reason != NULL)
        snprintf(whole + length, sizeof whole - length, ": %s", reason);
    length = strlen(whole);
    for (char *c = whole; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) /* in a file's name: one line, no tricks */
            *c = '?';
    if (length < sizeof err->text)
        memcpy(err->text, whole, length + 1);
    else /* without its middle, which is a long path; the end says what to do */
        snprintf(err->text, sizeof err->text, "%.*s ... %s", (int)head, whole,
                 whole + length - (sizeof err->text - head - sizeof " ... "));
}

int(gs_err_set)(struct gs_err *err, int code, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fill(err, code, NULL, format, ap);
    va_end(ap);
    return code;
}

int(gs_err_errno)(struct gs_err *err, int code, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fill(err, code, strerror(-code), format, ap);
    va_end(ap);
    return code;
}

#ifndef NDEBUG
struct gs_err *gs_err_at(struct gs_err *err, const char *file, int line)
{
    if (err != NULL && err->code == 0) {
        err->file = file;
        err->line = line;
    }
    return err;
}
#endif
