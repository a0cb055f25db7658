/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c: asks NVIDIA's management library how busy devices and programs are. The library is
 * opened when it is needed and never linked: gpusharectl runs on machines without it.
 *
 * Types and numbers are those of NVML's API reference (nvmlDeviceGetUtilizationRates,
 * nvmlDeviceGetProcessUtilization), which keeps them stable.
 */
#include "lockd/ctl/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NVML_SUCCESS   0
#define NVML_NOT_FOUND 6
#define NVML_TOO_SMALL 7
#define SAMPLES_MAX    4096u
#define WINDOW_US      1000000u /* what counts as now */
#define PERCENT_MAX    100u

struct nvml_utilization {
    unsigned gpu, memory; /* per cent of the last sample period in which they were busy */
};

struct nvml_sample { /* of one process */
    unsigned pid;
    unsigned long long time_us; /* since 1970 */
    unsigned gpu, memory, encoder, decoder;
};

typedef struct nvml_device *nvml_device_handle;

struct ctl_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *, nvml_device_handle *);
    int (*by_index)(unsigned, nvml_device_handle *);
    int (*uuid)(nvml_device_handle, char *, unsigned);
    int (*utilization)(nvml_device_handle, struct nvml_utilization *);
    int (*processes)(nvml_device_handle, struct nvml_sample *, unsigned *, unsigned long long);
};

/* Converts without a cast between object and function pointers (POSIX dlsym). */
static bool find_function(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

struct ctl_nvml *ctl_nvml_open(void)
{
    struct ctl_nvml *nvml = calloc(1, sizeof *nvml);

    if (nvml == NULL)
        return NULL;
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library != NULL && find_function(nvml->library, "nvmlInit_v2", &nvml->init) &&
        find_function(nvml->library, "nvmlShutdown", &nvml->shutdown) &&
        find_function(nvml->library, "nvmlDeviceGetHandleByUUID", &nvml->by_uuid) &&
        find_function(nvml->library, "nvmlDeviceGetUtilizationRates", &nvml->utilization) &&
        nvml->init() == NVML_SUCCESS) {
        find_function(nvml->library, "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index);
        find_function(nvml->library, "nvmlDeviceGetUUID", &nvml->uuid);
        /* older drivers lack it; then only devices are known */
        find_function(nvml->library, "nvmlDeviceGetProcessUtilization", &nvml->processes);
        return nvml;
    }
    if (nvml->library != NULL)
        dlclose(nvml->library);
    free(nvml);
    return NULL;
}

void ctl_nvml_close(struct ctl_nvml *nvml)
{
    if (nvml == NULL)
        return;
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

bool ctl_nvml_uuid(const struct ctl_nvml *nvml, unsigned index, char uuid[LOCKD_UUID_SIZE])
{
    nvml_device_handle device = NULL;

    return nvml != NULL && nvml->by_index != NULL && nvml->uuid != NULL &&
           nvml->by_index(index, &device) == NVML_SUCCESS &&
           nvml->uuid(device, uuid, LOCKD_UUID_SIZE) == NVML_SUCCESS;
}

/* The samples of a device's last second. *count: 0 with NULL: nothing ran. -1: NVML does not tell. */
static int read_samples(const struct ctl_nvml *nvml, nvml_device_handle device,
                        struct nvml_sample **samples, unsigned *count)
{
    struct timespec now;
    unsigned long long since;
    int code;

    *samples = NULL;
    *count = 0;
    if (nvml->processes == NULL)
        return -1;
    clock_gettime(CLOCK_REALTIME, &now);
    since = (unsigned long long)now.tv_sec * 1000000u +
            (unsigned long long)now.tv_nsec / 1000u - WINDOW_US;
    code = nvml->processes(device, NULL, count, since); /* how many there are */
    if (code == NVML_NOT_FOUND || (code == NVML_SUCCESS && *count == 0))
        return 0;
    if (code != NVML_TOO_SMALL && code != NVML_SUCCESS)
        return -1;
    *count = *count > SAMPLES_MAX ? SAMPLES_MAX : *count;
    *samples = calloc(*count, sizeof **samples);
    if (*samples == NULL)
        return -1;
    code = nvml->processes(device, *samples, count, since);
    *count = code == NVML_SUCCESS && *count <= SAMPLES_MAX ? *count : 0;
    return code == NVML_SUCCESS || code == NVML_NOT_FOUND ? 0 : -1;
}

/* The newest sample of a process; 0 without one, since idle processes have none. */
static int busy_of(const struct nvml_sample *samples, unsigned count, int32_t pid)
{
    const struct nvml_sample *newest = NULL;

    for (unsigned i = 0; samples != NULL && i < count; i++) {
        if (samples[i].pid == (unsigned)pid && samples[i].gpu <= PERCENT_MAX &&
            (newest == NULL || samples[i].time_us > newest->time_us))
            newest = &samples[i];
    }
    return newest != NULL ? (int)newest->gpu : 0;
}

static void look_at_programs(const struct ctl_nvml *nvml, nvml_device_handle handle,
                             const struct gs_wire_device *device, struct ctl_answer *answer)
{
    struct nvml_sample *samples;
    unsigned count;

    if (read_samples(nvml, handle, &samples, &count) != 0) {
        free(samples);
        return;
    }
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];

        if (client->condition != GS_CONDITION_NO_DEVICE && client->pid > 0 &&
            (client->flags & GS_CLIENT_FOREIGN) == 0 &&
            memcmp(client->uuid, device->uuid, sizeof device->uuid) == 0)
            answer->client_busy[i] = busy_of(samples, count, client->pid);
    }
    free(samples);
}

static int *make_unknown(size_t count)
{
    int *busy = malloc((count + 1) * sizeof *busy);

    for (size_t i = 0; busy != NULL && i <= count; i++)
        busy[i] = CTL_BUSY_UNKNOWN;
    return busy;
}

void ctl_nvml_look(const struct ctl_nvml *nvml, struct ctl_answer *answer)
{
    if (nvml == NULL || answer->device_busy != NULL || answer->client_busy != NULL)
        return;
    answer->device_busy = make_unknown(answer->device_count);
    answer->client_busy = make_unknown(answer->client_count);
    if (answer->device_busy == NULL || answer->client_busy == NULL)
        return;
    for (size_t i = 0; i < answer->device_count; i++) {
        const struct gs_wire_device *device = &answer->devices[i];
        struct nvml_utilization rates;
        nvml_device_handle handle = NULL;
        char uuid[LOCKD_UUID_SIZE];

        if (nvml->by_uuid(lockd_uuid_text(device->uuid, uuid), &handle) != NVML_SUCCESS)
            continue;
        if (nvml->utilization(handle, &rates) == NVML_SUCCESS && rates.gpu <= PERCENT_MAX)
            answer->device_busy[i] = (int)rates.gpu;
        look_at_programs(nvml, handle, device, answer);
    }
}
