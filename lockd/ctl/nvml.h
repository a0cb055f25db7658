/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h: how busy devices really are, by NVIDIA's management library (libnvidia-ml.so.1), where
 * there is one. The daemon counts for how long a program was allowed to run; NVML measures in how
 * much of the last second a kernel did.
 */
#ifndef GS_LOCKD_CTL_NVML_H
#define GS_LOCKD_CTL_NVML_H

#include "lockd/ctl/ctl.h"

/* The library, loaded; NULL: there is none, or it does not work here. One thread at a time. */
struct ctl_nvml;

struct ctl_nvml *ctl_nvml_open(void);
/* Accepts NULL. */
void ctl_nvml_close(struct ctl_nvml *nvml);

/* The UUID of the device with that number, as nvidia-smi counts them. False: NVML does not tell. */
bool ctl_nvml_uuid(const struct ctl_nvml *nvml, unsigned index, char uuid[LOCKD_UUID_SIZE]);

/* Fills in answer->device_busy and answer->client_busy (CTL_BUSY_UNKNOWN where NVML does not
 * tell). Accepts NULL. */
void ctl_nvml_look(const struct ctl_nvml *nvml, struct ctl_answer *answer);

#endif
