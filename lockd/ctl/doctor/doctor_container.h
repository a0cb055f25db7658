/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_container.h: checks programs in containers.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_CONTAINER_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_CONTAINER_H

#include "lockd/ctl/doctor/doctor.h"

/* The specification for container runtimes. */
void doctor_containers(struct doctor *doctor);
/* Whether the process lives in a container. */
bool doctor_is_contained(const struct doctor *doctor);
/* Whether the process sees the daemon there. */
void doctor_namespaces(struct doctor *doctor);

#endif
