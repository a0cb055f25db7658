/* SPDX-License-Identifier: Apache-2.0
 *
 * findings.c: adds and prints findings. State: struct doctor.
 */
#include "lockd/ctl/doctor/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockd/base/text.h"

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
