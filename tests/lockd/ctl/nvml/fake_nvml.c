/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvml.c: a libnvidia-ml.so.1 for tests of gpusharectl. FAKE_NVML says what it answers:
 * "DEVICE:BUSY[,PID:BUSY...]": a device's UUID ("*": any), per cent of it, then of processes on
 * it. Without the variable there is no driver. FAKE_NVML_OLD: a driver that tells nothing of processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NVML_SUCCESS       0
#define NVML_NOT_SUPPORTED 3
#define NVML_NOT_FOUND     6
#define NVML_TOO_SMALL     7
#define NVML_NO_DRIVER     9

struct utilization {
    unsigned gpu, memory;
};

struct sample {
    unsigned pid;
    unsigned long long time_us;
    unsigned gpu, memory, encoder, decoder;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
/* UUID:BUSY,PID:BUSY,... */
static const char *told(void)
{
    const char *text = getenv("FAKE_NVML");

    return text != NULL ? text : "";
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates);
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long since_us);

static char card; /* its address is the handle of the one device */

int nvmlInit_v2(void)
{
    return getenv("FAKE_NVML") != NULL ? NVML_SUCCESS : NVML_NO_DRIVER;
}

int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    const char *text = told();

    if (strncmp(text, "*:", 2) != 0 &&
        (strncmp(text, uuid, strlen(uuid)) != 0 || text[strlen(uuid)] != ':'))
        return NVML_NOT_FOUND;
    *device = &card;
    return NVML_SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates)
{
    const char *at = strchr(told(), ':');

    if (device != &card || at == NULL)
        return NVML_NOT_FOUND;
    rates->gpu = (unsigned)strtoul(at + 1, NULL, 10);
    rates->memory = 1;
    return NVML_SUCCESS;
}

/* As the driver: each process with several samples, the newest not the last; none of idle ones. */
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long since_us)
{
    const char *at = told();
    unsigned wanted = 0, place = *count;

    if (getenv("FAKE_NVML_OLD") != NULL)
        return NVML_NOT_SUPPORTED;
    if (device != &card || since_us > (unsigned long long)time(NULL) * 1000000u)
        return NVML_NOT_FOUND;
    for (const char *each = at; (each = strchr(each, ',')) != NULL; each++)
        wanted += 2;
    *count = wanted;
    if (wanted == 0)
        return NVML_NOT_FOUND;
    if (samples == NULL || place < wanted)
        return NVML_TOO_SMALL;
    for (wanted = 0; (at = strchr(at, ',')) != NULL; at++) {
        char *end;
        const unsigned pid = (unsigned)strtoul(at + 1, &end, 10),
                       busy = *end == ':' ? (unsigned)strtoul(end + 1, NULL, 10) : 0;

        samples[wanted++] = (struct sample){pid, since_us + 20, busy, 0, 0, 0};
        samples[wanted++] = (struct sample){pid, since_us + 10, 99, 0, 0, 0};
    }
    return NVML_SUCCESS;
}
