/* SPDX-License-Identifier: Apache-2.0
 *
 * findings.c: what the doctor has found so far. No state but the doctor's.
 */
#include "lockd/ctl/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "lockd/base/text.h"

void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
{
    struct doctor_finding *finding = &doctor->findings[doctor->count];
    va_list ap;

    if (doctor->count == DOCTOR_FINDINGS)
        return;
    doctor->count++;
    finding->check = check;
    finding->level = level;
    va_start(ap, format);
    vsnprintf(finding->text, sizeof finding->text, format, ap);
    va_end(ap);
    snprintf(finding->advice, sizeof finding->advice, "%s", advice != NULL ? advice : "");
    lockd_text_clean(finding->text, sizeof finding->text); /* it may be another's bytes */
    lockd_text_clean(finding->advice, sizeof finding->advice);
}
