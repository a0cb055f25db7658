/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_table.c: tables of GPUs and processes: copies, and what is found in them. No state.
 */
#include "lockd/nvml/nvml_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void nvml_table_free(struct nvml_table *table)
{
    free(table->gpus);
    free(table->processes);
    *table = (struct nvml_table){0};
}

int nvml_table_make(struct nvml_table *table, uint32_t gpus, uint32_t processes)
{
    *table = (struct nvml_table){.gpus = calloc(gpus + 1u, sizeof *table->gpus),
                                 .processes = calloc(processes + 1u, sizeof *table->processes),
                                 .gpu_count = gpus,
                                 .process_count = processes};
    if (table->gpus != NULL && table->processes != NULL)
        return 0;
    nvml_table_free(table);
    return -ENOMEM;
}

int nvml_table_copy(struct nvml_table *to, const struct nvml_table *from)
{
    const int code = nvml_table_make(to, from->gpu_count, from->process_count);

    if (code != 0)
        return code;
    memcpy(to->gpus, from->gpus, from->gpu_count * sizeof *to->gpus);
    memcpy(to->processes, from->processes, from->process_count * sizeof *to->processes);
    return 0;
}

const struct nvml_gpu *nvml_gpu(const struct nvml_table *table, const char *uuid)
{
    for (uint32_t i = 0; table != NULL && i < table->gpu_count; i++) {
        if (strcmp(table->gpus[i].uuid, uuid) == 0)
            return &table->gpus[i];
    }
    return NULL;
}

const struct nvml_gpu *nvml_gpu_number(const struct nvml_table *table, unsigned index)
{
    for (uint32_t i = 0; table != NULL && i < table->gpu_count; i++) {
        if (table->gpus[i].index == index)
            return &table->gpus[i];
    }
    return NULL;
}

const struct nvml_process *nvml_process(const struct nvml_table *table,
                                        const struct nvml_gpu *gpu, int32_t pid)
{
    for (uint32_t i = 0; i < table->process_count; i++) {
        if (table->processes[i].pid == pid && &table->gpus[table->processes[i].gpu] == gpu)
            return &table->processes[i];
    }
    return NULL;
}
