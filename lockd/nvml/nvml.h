/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h: the GPUs of the machine and the processes on them, by NVIDIA's management library
 * (libnvidia-ml.so.1), if that is installed. The library also sees the processes that do not
 * use gpushare, and the GPUs that no program uses.
 */
#pragma once

#include "lockd/protocol/wire_check.h"

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

/* The GPUs of the machine and the processes on them, as NVML lists them. */

#define NVML_UNKNOWN       (-1)
#define NVML_BYTES_UNKNOWN UINT64_MAX
#define NVML_GPUS_MAX      64u
#define NVML_PROCESSES_MAX 8192u

/* A GPU of the machine. Values that NVML does not have: NVML_UNKNOWN, NVML_BYTES_UNKNOWN. */
struct nvml_gpu {
    char uuid[LOCKD_UUID_SIZE];
    char name[64];
    uint32_t index;      /* as nvidia-smi counts */
    int32_t busy;        /* per cent of the last sample period in which a kernel ran */
    int32_t temperature; /* degrees Celsius */
    int32_t power;       /* watts */
    int32_t power_limit; /* watts */
    int32_t lists;       /* 1: NVML lists the GPU's processes; 0: it cannot */
    int32_t samples;     /* 1: NVML tells how busy processes are; 0: it cannot */
    uint32_t zero;
    uint64_t total, used; /* bytes */
};

/* A process on a GPU. With its memory on two GPUs, a process stands there twice. */
struct nvml_process {
    uint32_t gpu; /* in nvml_table.gpus */
    int32_t pid;
    int32_t busy;    /* per cent of the last second; NVML_UNKNOWN */
    int32_t listed;  /* 0: it is only known to have been busy within the last second */
    uint64_t memory; /* bytes of the GPU, its contexts included; NVML_BYTES_UNKNOWN */
};

struct nvml_table {
    struct nvml_gpu *gpus;
    struct nvml_process *processes;
    uint32_t gpu_count, process_count;
    uint64_t answer;   /* its number, from 1; a look may return the answer of the look before */
    uint64_t asked_at; /* lockd_now() before the question: all figures are newer */
};

/* The GPU with that UUID, or with that number. NULL: NVML does not list it. Accepts NULL. */
const struct nvml_gpu *nvml_gpu(const struct nvml_table *table, const char *uuid);
const struct nvml_gpu *nvml_gpu_number(const struct nvml_table *table, unsigned index);
/* The process with that number on that GPU of the table. NULL: NVML does not list it. */
const struct nvml_process *nvml_process(const struct nvml_table *table,
                                        const struct nvml_gpu *gpu, int32_t pid);
/* Copies a table. 0 or -ENOMEM. */
int nvml_table_copy(struct nvml_table *to, const struct nvml_table *from);
void nvml_table_free(struct nvml_table *table);
