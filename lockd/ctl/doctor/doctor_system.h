/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system.h: checks the machine.
 */
#pragma once

#include "lockd/ctl/doctor/doctor.h"

/* The driver, devices, MIG, MPS, host memory, gpushare's library. */
void doctor_system(struct doctor *doctor);
/* Whether that is a libcuda.so.1 to link with, which comes with the toolkit. */
bool doctor_is_stub(const char *path);
#define DOCTOR_STUB_ADVICE "take the toolkit's stubs folder out of LD_LIBRARY_PATH"
#define DOCTOR_STUB_COMMAND                                                                    \
    "export LD_LIBRARY_PATH=$(tr : '\\n' <<<\"$LD_LIBRARY_PATH\" | grep -v stubs | paste "     \
    "-sd:)"

/* The specification for container runtimes. */
void doctor_containers(struct doctor *doctor);
/* Whether the process lives in a container. */
bool doctor_is_contained(const struct doctor *doctor);
/* Whether the process sees the daemon there. */
void doctor_namespaces(struct doctor *doctor);

/* lockd.conf. */
void doctor_config(struct doctor *doctor);

/* Variables that prevent or change sharing. environment: NAME=VALUE strings, each ended by
 * a zero byte. whose: for the messages. */
void doctor_environment(struct doctor *doctor, const char *environment, size_t size,
                        const char *whose);
/* The value of a variable in it, NULL if it is not there. */
const char *doctor_variable(const char *environment, size_t size, const char *name);

/* Python environments in which pip installed gpushare. */
void doctor_wheel(struct doctor *doctor);
