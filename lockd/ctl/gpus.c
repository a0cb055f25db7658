/* SPDX-License-Identifier: Apache-2.0
 *
 * gpus.c: joins the daemon's answer with what NVML tells about the GPUs and their processes. A
 * process that NVML lists and the daemon does not know is an outsider: gpushare can neither move
 * its memory nor stop it. No state.
 */
#include "lockd/ctl/gpus.h"
#include "common/fd.h"
#include "lockd/base/halt.h"
#include "lockd/base/text.h"

#include <string.h>
#include <sys/stat.h>

/* The GPU of that device; NULL: NVML does not list it. */
static const struct nvml_gpu *gpu_of(const struct ctl_answer *answer, const uint8_t uuid[16])
{
    char text[LOCKD_UUID_SIZE];

    return nvml_gpu(&answer->gpus, lockd_uuid_text(uuid, text));
}

bool ctl_place_at(const struct ctl_answer *answer, size_t n, struct ctl_place *place)
{
    if (n < answer->gpus.gpu_count) {
        *place = (struct ctl_place){.gpu = &answer->gpus.gpus[n]};
        for (size_t i = 0; i < answer->device_count && place->device == NULL; i++) {
            if (gpu_of(answer, answer->devices[i].uuid) == place->gpu)
                place->device = &answer->devices[i];
        }
        return true;
    }
    n -= answer->gpus.gpu_count;
    for (size_t i = 0; i < answer->device_count; i++) {
        if (gpu_of(answer, answer->devices[i].uuid) == NULL && n-- == 0) {
            *place = (struct ctl_place){.device = &answer->devices[i]};
            return true;
        }
    }
    return false;
}

bool ctl_outsider_there(const struct ctl_answer *answer, const struct ctl_outsider *outsider,
                        const struct ctl_place *place)
{
    return place->gpu == &answer->gpus.gpus[outsider->gpu];
}

const char *ctl_why_name(enum ctl_why why)
{
    static const char *const names[] = {[CTL_UNPREPARED] = "unprepared",
                                        [CTL_ELSEWHERE] = "elsewhere",
                                        [CTL_HIDDEN] = "hidden",
                                        [CTL_ENDED] = "ended"};

    return names[why];
}

int ctl_device_busy(const struct ctl_answer *answer, size_t index)
{
    const struct nvml_gpu *gpu = gpu_of(answer, answer->devices[index].uuid);

    return gpu != NULL ? gpu->busy : CTL_BUSY_UNKNOWN;
}

/* The process of the program, and its GPU; NULL: NVML does not list it, or it cannot be known which
 * it is. */
static const struct nvml_process *process_of(const struct ctl_answer *answer,
                                             const struct gs_wire_client *client,
                                             const struct nvml_gpu **gpu)
{
    const bool known = client->condition != GS_CONDITION_NO_DEVICE && client->pid > 0 &&
                       (client->flags & GS_CLIENT_FOREIGN) == 0;

    *gpu = known ? gpu_of(answer, client->uuid) : NULL;
    return *gpu != NULL ? nvml_process(&answer->gpus, *gpu, client->pid) : NULL;
}

int ctl_client_busy(const struct ctl_answer *answer, size_t index)
{
    const struct nvml_gpu *gpu;
    const struct nvml_process *process = process_of(answer, &answer->clients[index], &gpu);

    if (process != NULL)
        return process->busy;
    /* idle processes have no samples */
    return gpu != NULL && gpu->samples == 1 ? 0 : CTL_BUSY_UNKNOWN;
}

uint64_t ctl_client_external(const struct ctl_answer *answer, size_t index)
{
    const struct gs_wire_client *client = &answer->clients[index];
    const struct nvml_gpu *gpu;
    const struct nvml_process *process = process_of(answer, client, &gpu);
    const uint64_t known = client->resident + client->pinned;

    if (process == NULL || process->memory == NVML_BYTES_UNKNOWN)
        return NVML_BYTES_UNKNOWN;
    return process->memory > known ? process->memory - known : 0;
}

const char *ctl_heat_text(const struct nvml_gpu *gpu, char *buffer)
{
    int at = 0;

    buffer[0] = '\0';
    if (gpu != NULL && gpu->temperature != NVML_UNKNOWN)
        at = snprintf(buffer, CTL_HEAT_SIZE, "%d C", gpu->temperature);
    if (gpu != NULL && gpu->power != NVML_UNKNOWN)
        at += snprintf(buffer + at, CTL_HEAT_SIZE - (size_t)at, "%s%d", at != 0 ? ", " : "",
                       gpu->power);
    if (gpu != NULL && gpu->power != NVML_UNKNOWN)
        snprintf(buffer + at, CTL_HEAT_SIZE - (size_t)at,
                 gpu->power_limit != NVML_UNKNOWN ? " of %d W" : " W", gpu->power_limit);
    return buffer;
}

static enum ctl_why find_why(int32_t pid)
{
    char line[4608];
    GS_CLOSE_FILE FILE *file = lockd_process_open(pid, "maps");

    if (file == NULL)
        return errno == ENOENT ? CTL_ENDED : CTL_HIDDEN;
    while (fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "/libgpushare.so") != NULL)
            return CTL_ELSEWHERE;
    }
    return ferror(file) != 0 ? CTL_HIDDEN : CTL_UNPREPARED;
}

static void find_name(struct ctl_outsider *outsider)
{
    GS_CLOSE_FILE FILE *file = lockd_process_open(outsider->pid, "comm");
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d", outsider->pid);
    outsider->uid = stat(path, &st) == 0 ? st.st_uid : CTL_NO_USER;
    if (file == NULL || fgets(outsider->name, sizeof outsider->name, file) == NULL)
        outsider->name[0] = '\0';
    outsider->name[strcspn(outsider->name, "\n")] = '\0';
    lockd_text_clean(outsider->name, sizeof outsider->name);
}

void ctl_gpus_look(struct nvml *nvml, struct ctl_answer *answer)
{
    const struct nvml_table *table = nvml_look(nvml);

    if (table == NULL || answer->gpus.gpus != NULL ||
        nvml_table_copy(&answer->gpus, table) != 0)
        return;
    answer->outsiders = calloc(answer->gpus.process_count + 1u, sizeof *answer->outsiders);
    for (uint32_t i = 0; answer->outsiders != NULL && i < answer->gpus.process_count; i++) {
        const struct nvml_process *process = &answer->gpus.processes[i];
        struct ctl_outsider *outsider = &answer->outsiders[answer->outsider_count];
        bool known = process->listed == 0;

        /* the daemon may know it on any device, also before its first context there */
        for (size_t k = 0; k < answer->client_count && !known; k++)
            known = answer->clients[k].pid == process->pid &&
                    (answer->clients[k].flags & GS_CLIENT_FOREIGN) == 0;
        if (known)
            continue;
        *outsider = (struct ctl_outsider){.gpu = process->gpu,
                                          .pid = process->pid,
                                          .why = find_why(process->pid),
                                          .busy = process->busy,
                                          .memory = process->memory};
        find_name(outsider);
        answer->outsider_count++;
    }
}

void ctl_gpus_look_once(struct ctl_answer *answer)
{
    struct nvml *nvml = nvml_open(NVML_ONCE);
    const char *remark;

    ctl_gpus_look(nvml, answer);
    remark = nvml_remark(nvml);
    if (remark != NULL)
        fprintf(stderr, "gpusharectl: %s\n", remark);
    nvml_close(nvml);
}
