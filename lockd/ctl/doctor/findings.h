/* SPDX-License-Identifier: Apache-2.0
 *
 * findings.h: adds findings, and the commands that mend them.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_FINDINGS_H
#define GS_LOCKD_CTL_DOCTOR_FINDINGS_H

#include "lockd/ctl/doctor/doctor.h"

/* Adds a finding; advice may be NULL. */
void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds a command to paste to the last finding. */
void doctor_command(struct doctor *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Quotes a path for a shell. Returns buffer. */
#define DOCTOR_QUOTED (4 * 4096 + 8)
const char *doctor_quote(const char *path, char *buffer);

#endif
