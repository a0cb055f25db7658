/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_config.h: checks the configuration.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_CONFIG_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_CONFIG_H

#include "lockd/ctl/doctor/doctor.h"

/* lockd.conf. */
void doctor_config(struct doctor *doctor);
/* GPUSHARE_CLASS; value may be NULL. whose: for the messages. */
void doctor_class(struct doctor *doctor, const char *value, const char *whose);

#endif
