/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_nvml.c: the management library of the simulated driver, as far as the device plugin asks
 * it. What happens to a GPU comes from the FIFO that SIM_NVML names, a line each: "xid UUID 79"
 * (an event), "lost UUID" (no answers any more), "back UUID".
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define MOST  64

struct device {
    char uuid[64];
    int watched, lost;
};

struct event {
    struct device *device;
    unsigned long long type, data;
    unsigned gpu, compute;
};

static struct device devices[MOST];
static int fifo = -1;

SHOWN int nvmlInit_v2(void);
SHOWN int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device);
SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device);
SHOWN int nvmlDeviceGetMemoryInfo(const struct device *device, unsigned long long *memory);
SHOWN int nvmlEventSetCreate(int *set);
SHOWN int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, int set);
SHOWN int nvmlEventSetWait_v2(int set, struct event *event, unsigned timeout_ms);
SHOWN const char *nvmlErrorString(int code);

int nvmlInit_v2(void)
{
    const char *path = getenv("SIM_NVML");

    if (path == NULL)
        return 9; /* driver not loaded */
    fifo = open(path, O_RDWR | O_CLOEXEC);
    return fifo >= 0 ? 0 : 9;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    for (int i = 0; i < MOST; i++) {
        if (devices[i].uuid[0] == '\0')
            snprintf(devices[i].uuid, sizeof devices[i].uuid, "%s", uuid);
        if (strcmp(devices[i].uuid, uuid) != 0)
            continue;
        *device = &devices[i];
        return 0;
    }
    return 6; /* not found */
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    char name[16];

    snprintf(name, sizeof name, "%u", index);
    return nvmlDeviceGetHandleByUUID(name, device);
}

int nvmlDeviceGetMemoryInfo(const struct device *device, unsigned long long *memory)
{
    memory[0] = memory[1] = 1ull << 34;
    memory[2] = 0;
    return device->lost ? 15 : 0;
}

int nvmlEventSetCreate(int *set)
{
    *set = 1;
    return 0;
}

int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, int set)
{
    (void)types;
    (void)set;
    device->watched = 1;
    return 0;
}

static int take_line(const char *line, struct event *event)
{
    char word[16], uuid[64];
    struct device *device;
    int length = 0;

    if (sscanf(line, "%15s %63s%n", word, uuid, &length) < 2 ||
        nvmlDeviceGetHandleByUUID(uuid, &device) != 0)
        return 10;
    if (strcmp(word, "xid") != 0) {
        device->lost = strcmp(word, "lost") == 0;
        return 10;
    }
    *event =
        (struct event){.device = device, .type = 8, .data = strtoull(line + length, NULL, 10)};
    return device->watched ? 0 : 10;
}

int nvmlEventSetWait_v2(int set, struct event *event, unsigned timeout_ms)
{
    struct pollfd ready = {.fd = fifo, .events = POLLIN};
    char line[128];
    size_t used = 0;

    (void)set;
    if (poll(&ready, 1, (int)timeout_ms) <= 0)
        return 10; /* timeout */
    while (used + 1 < sizeof line && read(fifo, line + used, 1) == 1 && line[used] != '\n')
        used++;
    line[used] = '\0';
    return take_line(line, event);
}

const char *nvmlErrorString(int code)
{
    return code == 15 ? "GPU is lost" : "some other error";
}
