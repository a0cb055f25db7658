/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system.h: checks the machine.
 */
#ifndef GS_LOCKD_CTL_DOCTOR_DOCTOR_SYSTEM_H
#define GS_LOCKD_CTL_DOCTOR_DOCTOR_SYSTEM_H

#include "lockd/ctl/doctor/doctor.h"

/* The driver, devices, MIG, MPS, host memory, gpushare's library. */
void doctor_system(struct doctor *doctor);
/* Whether that is a libcuda.so.1 to link with, which comes with the toolkit. */
bool doctor_is_stub(const char *path);
#define DOCTOR_STUB_ADVICE "take the toolkit's stubs folder out of LD_LIBRARY_PATH"
#define DOCTOR_STUB_COMMAND                                                                    \
    "export LD_LIBRARY_PATH=$(tr : '\\n' <<<\"$LD_LIBRARY_PATH\" | grep -v stubs | paste "     \
    "-sd:)"

/* Checks programs in containers. */

/* The specification for container runtimes. */
void doctor_containers(struct doctor *doctor);
/* Whether the process lives in a container. */
bool doctor_is_contained(const struct doctor *doctor);
/* Whether the process sees the daemon there. */
void doctor_namespaces(struct doctor *doctor);

#endif
