/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_file.h: checks a program's file.
 */
#pragma once

#include "lockd/ctl/doctor/doctor.h"

/* Libraries that a file needs and that are not found. */
void doctor_libraries(struct doctor *doctor, const char *file);

/* Whether a program is prepared, and whether it can be. path: the file to read; name: for the
 * messages. */
void doctor_file(struct doctor *doctor, const char *path, const char *name);
/* The answer of gpushare-patch about a file. */
enum doctor_patched {
    DOCTOR_UNKNOWN, /* gpushare-patch is missing, or there is no such file */
    DOCTOR_UNPATCHED,
    DOCTOR_PATCHED,
    DOCTOR_ORPHANED, /* patched, but its library is missing */
};
enum doctor_patched doctor_patched(const char *path);
