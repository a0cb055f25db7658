/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_table.h: the GPUs of the machine and the processes on them, as NVML lists them.
 */
#pragma once

#include "lockd/protocol/names.h"

#include <stdbool.h>
#include <stdint.h>

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
    uint64_t answer; /* its number, from 1; a look may return the answer of the look before */
};

/* The GPU with that UUID, or with that number. NULL: NVML does not list it. Accepts NULL. */
const struct nvml_gpu *nvml_gpu(const struct nvml_table *table, const char *uuid);
const struct nvml_gpu *nvml_gpu_number(const struct nvml_table *table, unsigned index);
/* The process with that number on that GPU of the table. NULL: NVML does not list it. */
const struct nvml_process *nvml_process(const struct nvml_table *table,
                                        const struct nvml_gpu *gpu, int32_t pid);

/* Makes a table with room for so many, all zero; copies a table. 0 or -ENOMEM. */
int nvml_table_make(struct nvml_table *table, uint32_t gpus, uint32_t processes);
int nvml_table_copy(struct nvml_table *to, const struct nvml_table *from);
void nvml_table_free(struct nvml_table *table);
