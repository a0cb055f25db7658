/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c: libnvidia-ml.so.1 of the simulated cards: their memory, the processes on them with what
 * each holds, prepared or not, and how busy they are, from the cards' own books (ledger.h). It
 * lies in a folder of its own, so that only programs that shall find it do. Invariants: looking
 * changes nothing. Threads: one.
 *
 *   SIMCUDA_BUSY=N    every card is busy N per cent, instead of what it does
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/fd.h"
#include "tests/simcuda/ledger.h"

#define SHOWN __attribute__((visibility("default")))

#define NVML_SUCCESS   0
#define NVML_BAD       2
#define NVML_NOT_FOUND 6
#define NVML_TOO_SMALL 7
#define SAMPLES        20 /* looks at what a card does, 1 ms apart */
#define COOL           36 /* degrees of an idle card; each card a little more than the one before */
#define WATTS_IDLE     62
#define WATTS_MOST     350
#define MIB            (1024ull * 1024u)

struct device {
    unsigned index;
    struct sim_properties properties;
    struct sim_client client[SIM_CLIENTS_MAX]; /* as they were when the GPU was asked for */
    uint64_t shared[SIM_CLIENTS_MAX];          /* bytes that can be shared, by maker */
    uint64_t used;
    unsigned busy[SIM_CLIENTS_MAX]; /* of SAMPLES */
    unsigned busy_card;
};

struct running {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct sample {
    unsigned pid;
    unsigned long long time_us;
    unsigned gpu, memory, encoder, decoder;
};

struct utilization {
    unsigned gpu, memory;
};

static struct device devices[SIM_CARDS_MAX];

SHOWN int nvmlInit_v2(void);
SHOWN int nvmlDeviceGetCount_v2(unsigned *count);
SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device);
SHOWN int nvmlDeviceGetUUID(const struct device *device, char *text, unsigned size);
SHOWN int nvmlDeviceGetName(const struct device *device, char *text, unsigned size);
SHOWN int nvmlDeviceGetMemoryInfo(const struct device *device, unsigned long long *memory);
SHOWN int nvmlDeviceGetUtilizationRates(const struct device *device, struct utilization *rates);
SHOWN int nvmlDeviceGetTemperature(const struct device *device, int sensor, unsigned *degrees);
SHOWN int nvmlDeviceGetPowerUsage(const struct device *device, unsigned *milliwatts);
SHOWN int nvmlDeviceGetEnforcedPowerLimit(const struct device *device, unsigned *milliwatts);
SHOWN int nvmlDeviceGetComputeRunningProcesses_v3(const struct device *device, unsigned *count,
                                                  struct running *running);
SHOWN int nvmlDeviceGetProcessUtilization(const struct device *device, struct sample *samples,
                                          unsigned *count, unsigned long long since_us);

int nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

/* The properties of the cards: those of the first one, or what it would be made with. */
static struct sim_properties properties_now(void)
{
    struct sim_properties properties = {
        .memory = 1024 * MIB, .driver_version = 13000, .cards = 1};
    struct sim_card *card;
    struct gs_err err;
    bool set;

    if (sim_card_look(0, &card, &err) == 0) {
        properties = card->properties;
        sim_card_unmap(card);
    } else if (sim_properties_read(&properties, &set, &err) != 0) {
        properties.cards = 0;
    }
    return properties;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = properties_now().cards;
    return NVML_SUCCESS;
}

static void look_at(struct device *device, const struct sim_card *card)
{
    memcpy(device->client, card->client, sizeof device->client);
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (device->client[i].pid != 0 && kill(device->client[i].pid, 0) != 0 && errno == ESRCH)
            device->client[i] = (struct sim_client){0}; /* it died, and is not removed yet */
    }
    device->used = sim_shared_used(card, NULL);
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++)
        device->used += device->client[i].used;
    for (unsigned i = 0; i < card->shared_limit && i < SIM_SHARED_MAX; i++) {
        const uint32_t maker = card->shared[i].maker;

        if (maker > 0 && maker <= SIM_CLIENTS_MAX)
            device->shared[maker - 1] += card->shared[i].bytes;
    }
    for (unsigned round = 0; round < SAMPLES; round++) {
        bool busy = false;

        for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
            const bool works = card->client[i].pid != 0 &&
                               __atomic_load_n(&card->client[i].working, __ATOMIC_RELAXED) != 0;

            device->busy[i] += works;
            busy |= works;
        }
        device->busy_card += busy;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    struct sim_card *card;
    struct gs_err err;

    if (index >= SIM_CARDS_MAX)
        return NVML_BAD;
    *device = &devices[index];
    **device = (struct device){.index = index, .properties = properties_now()};
    GS_CLOSE_FD int held = sim_card_hold(&err);
    if (held >= 0 && sim_card_look(index, &card, &err) == 0) {
        look_at(*device, card);
        sim_card_unmap(card);
    }
    return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(const struct device *device, char *text, unsigned size)
{
    uint8_t uuid[16];
    char whole[48] = "GPU";

    sim_card_uuid(device->index, uuid);
    for (unsigned i = 0; i < sizeof uuid; i++)
        sprintf(whole + strlen(whole), "%s%02x",
                i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "", uuid[i]);
    return snprintf(text, size, "%s", whole) < (int)size ? NVML_SUCCESS : NVML_TOO_SMALL;
}

int nvmlDeviceGetName(const struct device *device, char *text, unsigned size)
{
    (void)device;
    snprintf(text, size, "Simulated GPU");
    return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo(const struct device *device, unsigned long long *memory)
{
    memory[0] = device->properties.memory;
    memory[2] = device->used;
    memory[1] = device->used < memory[0] ? memory[0] - device->used : 0;
    return NVML_SUCCESS;
}

static unsigned busy_percent(const struct device *device)
{
    const char *told = getenv("SIMCUDA_BUSY");

    return told != NULL ? (unsigned)strtoul(told, NULL, 10) : device->busy_card * 100 / SAMPLES;
}

int nvmlDeviceGetUtilizationRates(const struct device *device, struct utilization *rates)
{
    *rates = (struct utilization){.gpu = busy_percent(device)};
    return NVML_SUCCESS;
}

int nvmlDeviceGetTemperature(const struct device *device, int sensor, unsigned *degrees)
{
    (void)sensor;
    *degrees = COOL + 2 * device->index + busy_percent(device) / 4;
    return NVML_SUCCESS;
}

int nvmlDeviceGetPowerUsage(const struct device *device, unsigned *milliwatts)
{
    *milliwatts = 1000 * (WATTS_IDLE + device->index + 2 * busy_percent(device));
    return NVML_SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(const struct device *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 1000 * WATTS_MOST;
    return NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const struct device *device, unsigned *count,
                                            struct running *running)
{
    const unsigned room = *count;

    *count = 0;
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (device->client[i].pid == 0)
            continue;
        if (*count < room)
            running[*count] =
                (struct running){.pid = (unsigned)device->client[i].pid,
                                 .memory = device->client[i].used + device->shared[i]};
        ++*count;
    }
    return *count > room ? NVML_TOO_SMALL : NVML_SUCCESS;
}

/* As the driver: no samples of idle processes. */
int nvmlDeviceGetProcessUtilization(const struct device *device, struct sample *samples,
                                    unsigned *count, unsigned long long since_us)
{
    unsigned wanted = 0;

    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (device->client[i].pid == 0 || device->busy[i] == 0)
            continue;
        if (samples != NULL && wanted < *count)
            samples[wanted] = (struct sample){(unsigned)device->client[i].pid,
                                              since_us + 1,
                                              device->busy[i] * 100 / SAMPLES,
                                              0,
                                              0,
                                              0};
        wanted++;
    }
    const bool all = samples != NULL && wanted <= *count;
    *count = wanted;
    return wanted == 0 ? NVML_NOT_FOUND : all ? NVML_SUCCESS : NVML_TOO_SMALL;
}
