/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_environment.h: checks the environment of a program.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_ENVIRONMENT_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_ENVIRONMENT_H

#include "lockd/ctl/doctor/doctor.h"

/* Checks the configuration. */

/* lockd.conf. */
void doctor_config(struct doctor *doctor);
/* GPUSHARE_CLASS; value may be NULL. whose: for the messages. */
void doctor_class(struct doctor *doctor, const char *value, const char *whose);

/* Variables that prevent or change sharing. environment: NAME=VALUE strings, each ended by
 * a zero byte. whose: for the messages. */
void doctor_environment(struct doctor *doctor, const char *environment, size_t size,
                        const char *whose);
/* The value of a variable in it, NULL if it is not there. */
const char *doctor_variable(const char *environment, size_t size, const char *name);

/* Checks installations by pip. */

/* Python environments in which pip installed gpushare. */
void doctor_wheel(struct doctor *doctor);

#endif
