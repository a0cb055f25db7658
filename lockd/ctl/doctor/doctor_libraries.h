/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_libraries.h: checks the libraries of a program.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_LIBRARIES_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_LIBRARIES_H

#include "lockd/ctl/doctor/doctor.h"

/* Libraries that a file needs and that are not found. */
void doctor_libraries(struct doctor *doctor, const char *file);

#endif
