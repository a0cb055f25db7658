/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_process.h: checks a running program.
 */
#pragma once

#include "lockd/ctl/doctor/doctor.h"

/* Its file, its maps, its environment, its namespaces. */
void doctor_process(struct doctor *doctor);
