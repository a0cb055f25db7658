/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h: how busy devices are, by NVIDIA's management library (libnvidia-ml.so.1), where there is
 * one. The daemon counts the time in which a program was allowed to run; NVML measures the part of
 * the last second in which a kernel ran.
 */
#ifndef GS_LOCKD_CTL_NVML_H
#define GS_LOCKD_CTL_NVML_H

#include "lockd/ctl/ctl.h"

/* A process that asks the library. One thread at a time. */
struct ctl_nvml;

enum ctl_nvml_use {
    CTL_NVML_ONCE, /* for one question; values not answered within a second are unknown */
    /* For repeated questions: the first question waits as long, later questions hardly. A late answer is shown
     * at the next question. A library that was missing or failed is tried again after a minute. */
    CTL_NVML_KEPT,
};

/* NULL: no memory. Does not wait. */
struct ctl_nvml *ctl_nvml_open(enum ctl_nvml_use use);
/* Accepts NULL. */
void ctl_nvml_close(struct ctl_nvml *nvml);

/* The UUID of the device with that number, as nvidia-smi counts. False: NVML does not know it. */
bool ctl_nvml_uuid(struct ctl_nvml *nvml, unsigned index, char uuid[LOCKD_UUID_SIZE]);

/* Fills in answer->device_busy and answer->client_busy (CTL_BUSY_UNKNOWN where NVML has no
 * value). Accepts NULL. */
void ctl_nvml_look(struct ctl_nvml *nvml, struct ctl_answer *answer);

/* The same with a process of its own. Prints a fault of the library to stderr. */
void ctl_nvml_look_once(struct ctl_answer *answer);

/* The first fault of the library, as a sentence without a full stop; returned only once. NULL:
 * there was none, or it was returned before. Valid until the next call. Accepts NULL. */
const char *ctl_nvml_remark(struct ctl_nvml *nvml);

#endif
