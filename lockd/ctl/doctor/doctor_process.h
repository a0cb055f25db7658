/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_process.h: checks a running program.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_PROCESS_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_PROCESS_H

#include "lockd/ctl/doctor/doctor.h"

/* Its file, its maps, its environment, its namespaces. */
void doctor_process(struct doctor *doctor);

#endif
