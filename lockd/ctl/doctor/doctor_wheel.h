/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_wheel.h: checks installations by pip.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_WHEEL_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_WHEEL_H

#include "lockd/ctl/doctor/doctor.h"

/* Python environments in which pip installed gpushare. */
void doctor_wheel(struct doctor *doctor);

#endif
