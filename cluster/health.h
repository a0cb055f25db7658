/* SPDX-License-Identifier: Apache-2.0
 *
 * health.h: a thread that watches whether the GPUs work: by the driver's answers, by its events
 * (XID errors), and by their device nodes.
 */
#pragma once

#include "cluster/cards.h"
#include "common/err.h"

/* The functions of NVIDIA's management library that are used here, looked up at run time:
 * names, types and numbers of NVIDIA's nvml.h (NVML API reference). */

#define NVML_OK          0
#define NVML_TIMEOUT     10
#define NVML_EVENT_ECC2  0x2ull /* a double-bit error of memory */
#define NVML_EVENT_XID   0x8ull /* a critical error; the data is its number */
#define NVML_MEMORY_SIZE 64     /* more than any version's structure has */

typedef struct nvml_device *nvml_device;
typedef struct nvml_events *nvml_events;

struct nvml_event {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    int (*init)(void);
    int (*device_by_uuid)(const char *uuid, nvml_device *device);
    int (*device_by_index)(unsigned index, nvml_device *device);
    int (*memory)(nvml_device device, void *memory); /* total, free, used */
    int (*events_new)(nvml_events *events);
    int (*events_add)(nvml_device device, unsigned long long types, nvml_events events);
    int (*events_wait)(nvml_events events, struct nvml_event *event, unsigned timeout_ms);
    const char *(*text)(int code);
};

/* Loads and starts it. file: NULL for the loader's libnvidia-ml.so.1. 0; -ENOENT, -EIO with the
 * reason. It stays loaded. */
int nvml_load(struct nvml *nvml, const char *file, struct gs_err *err);

/* One change, as it is read from the thread's pipe. */
struct health_news {
    unsigned card;
    bool healthy;
    char why[96];
};

/* Starts the thread, which looks every period_s seconds and at each event. library: as
 * nvml_load(); cards must stay; only their names and edits are read. The end of a pipe to read
 * struct health_news from, non-blocking; or -errno. It runs as long as the process. */
int health_start(const struct cards *cards, const char *library, unsigned period_s,
                 struct gs_err *err);
