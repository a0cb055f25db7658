/* SPDX-License-Identifier: Apache-2.0
 *
 * err.c: fills struct gs_err. No state, any thread, no allocation.
 */
#include "common/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0))) static int fill(struct gs_err *err, int code,
                                                      const char *format, va_list ap)
{
    if (err == NULL || err->code != 0)
        return 0;
    err->code = code;
    return vsnprintf(err->text, sizeof err->text, format, ap);
}

int gs_err_set(struct gs_err *err, int code, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fill(err, code, format, ap);
    va_end(ap);
    return code;
}

int gs_err_errno(struct gs_err *err, int code, const char *format, ...)
{
    va_list ap;
    int length;

    va_start(ap, format);
    length = fill(err, code, format, ap);
    va_end(ap);
    if (length > 0 && (size_t)length < sizeof err->text)
        snprintf(err->text + length, sizeof err->text - (size_t)length, ": %s",
                 strerror(-code));
    return code;
}
