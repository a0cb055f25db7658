/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h: the GPUs of the machine and the processes on them, by NVIDIA's management library
 * (libnvidia-ml.so.1), if that is installed. The library also sees the processes that do not
 * use gpushare, and the GPUs that no program uses.
 */
#pragma once

#include "lockd/nvml/nvml_table.h"

/* A process that asks the library, and its newest answer. For one thread at a time. */
struct nvml;

enum nvml_use {
    NVML_ONCE, /* for one question; values not answered within a second are unknown */
    /* For repeated questions: the first question waits as long, later questions hardly. A late
     * answer is returned at the next question. A library that was missing or failed is tried
     * again after a minute. */
    NVML_KEPT,
    NVML_NEVER_WAITS, /* as NVML_KEPT, for an event loop: no question waits at all */
};

/* NULL: no memory. Does not wait. */
struct nvml *nvml_open(enum nvml_use use);
/* Accepts NULL. With NVML_NEVER_WAITS it leaves a process that the kernel holds to init. */
void nvml_close(struct nvml *nvml);

/* Asks again, and returns the newest answer, which is valid until the next call and may be that of
 * the look before; NULL: none has come yet. Accepts NULL. */
const struct nvml_table *nvml_look(struct nvml *nvml);

/* The descriptor that can be read when an answer comes, for poll(); -1: no process is asked.
 * The descriptor may change with each call. */
int nvml_descriptor(const struct nvml *nvml);

/* The first fault of the library, as a sentence without a full stop; returned only once. NULL:
 * there was none, or it was returned before. Valid until the next call. Accepts NULL. */
const char *nvml_remark(struct nvml *nvml);
