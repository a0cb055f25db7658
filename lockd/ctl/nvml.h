/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h: how busy devices really are, by NVIDIA's management library (libnvidia-ml.so.1), where
 * there is one. The daemon counts for how long a program was allowed to run; NVML measures in how
 * much of the last second a kernel did.
 */
#ifndef GS_LOCKD_CTL_NVML_H
#define GS_LOCKD_CTL_NVML_H

#include "lockd/ctl/ctl.h"

/* A process that asks the library. One thread at a time. */
struct ctl_nvml;

enum ctl_nvml_use {
    CTL_NVML_ONCE, /* one question; what is not answered within a second is not known */
    CTL_NVML_KEPT, /* asked again and again: the first time waits as long, later ones hardly; what comes late is shown
                      at the next, and a library that was missing or failed is tried again after a minute */
};

/* NULL: no memory. It waits for nothing. */
struct ctl_nvml *ctl_nvml_open(enum ctl_nvml_use use);
/* Accepts NULL. */
void ctl_nvml_close(struct ctl_nvml *nvml);

/* The UUID of the device with that number, as nvidia-smi counts them. False: NVML does not tell. */
bool ctl_nvml_uuid(struct ctl_nvml *nvml, unsigned index, char uuid[LOCKD_UUID_SIZE]);

/* Fills in answer->device_busy and answer->client_busy (CTL_BUSY_UNKNOWN where NVML does not
 * tell). Accepts NULL. */
void ctl_nvml_look(struct ctl_nvml *nvml, struct ctl_answer *answer);

/* The same by a process for this alone. A fault of the library is told on stderr. */
void ctl_nvml_look_once(struct ctl_answer *answer);

/* The first fault of the library, as a sentence without a full stop, told once; NULL: none, or it was told. Valid until
 * the next call. Accepts NULL. */
const char *ctl_nvml_remark(struct ctl_nvml *nvml);

#endif
