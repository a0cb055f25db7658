/* SPDX-License-Identifier: Apache-2.0
 *
 * health.c: the thread waits in the driver for events, and asks each GPU for its memory now and
 * then: a GPU that is lost does not answer. Where the driver's management library cannot be
 * used (it is not there, or this process may not open the device), the device nodes tell.
 *
 * An XID that a program can cause says nothing of the GPU. After any other the GPU stays out of
 * use until the plugin starts again, since nothing tells that it was reset. A GPU that did not
 * answer is used again when it does.
 *
 * Threads: everything here but health_start() is the thread's own.
 */
#include "cluster/health.h"
#include "common/fd.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static const struct {
    const char *name;
    size_t place;
} functions[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init)},
    {"nvmlDeviceGetHandleByUUID", offsetof(struct nvml, device_by_uuid)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, device_by_index)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory)},
    {"nvmlEventSetCreate", offsetof(struct nvml, events_new)},
    {"nvmlDeviceRegisterEvents", offsetof(struct nvml, events_add)},
    {"nvmlEventSetWait_v2", offsetof(struct nvml, events_wait)},
    {"nvmlErrorString", offsetof(struct nvml, text)},
};

/* 0; -ENOENT, -EIO with the reason. It stays loaded. */
static int nvml_load(struct nvml *nvml, const char *file, struct gs_err *err)
{
    const char *name = file != NULL ? file : "libnvidia-ml.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int code;

    if (library == NULL)
        return gs_err_set(err, -ENOENT, "%s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);

        if (function == NULL)
            return gs_err_set(err, -EIO, "%s has no %s", name, functions[i].name);
        memcpy((char *)nvml + functions[i].place, &function, sizeof function);
    }
    code = nvml->init();
    return code == NVML_OK ? 0 : gs_err_set(err, -EIO, "%s: %s", name, nvml->text(code));
}

struct watched {
    nvml_device device; /* NULL: the driver does not know it */
    bool broken;        /* by an event: for good */
    bool healthy;       /* as it was last said */
};

struct health {
    const struct cards *cards;
    struct nvml nvml;
    nvml_events events;
    bool driver; /* the library works */
    int pipe;
    unsigned period_s;
    struct watched watched[CARDS_MOST];
};

static void say_news(struct health *health, unsigned card, bool healthy, const char *why)
{
    struct health_news news = {.card = card, .healthy = healthy};

    if (health->watched[card].healthy == healthy)
        return;
    health->watched[card].healthy = healthy;
    snprintf(news.why, sizeof news.why, "%s", why);
    while (write(health->pipe, &news, sizeof news) < 0 && errno == EINTR)
        continue;
}

/* --- what is asked --- */

/* The first device node that is missing, or NULL. */
static const char *find_missing_node(const json_t *edits)
{
    json_t *node;
    size_t i;

    json_array_foreach(json_object_get(edits, "deviceNodes"), i, node)
    {
        const json_t *host = json_object_get(node, "hostPath");
        const char *path =
            json_string_value(host != NULL ? host : json_object_get(node, "path"));

        if (path != NULL && access(path, F_OK) != 0 && errno == ENOENT)
            return path;
    }
    return NULL;
}

static void look_at_card(struct health *health, unsigned card)
{
    struct watched *watched = &health->watched[card];
    const char *missing = find_missing_node(health->cards->card[card].edits);
    unsigned long long memory[NVML_MEMORY_SIZE / 8];
    char why[96];
    int code = NVML_OK;

    if (watched->broken)
        return;
    if (missing != NULL) {
        snprintf(why, sizeof why, "%.60s is not there", missing);
        say_news(health, card, false, why);
        return;
    }
    if (watched->device != NULL)
        code = health->nvml.memory(watched->device, memory);
    if (code != NVML_OK)
        snprintf(why, sizeof why, "the driver: %.70s", health->nvml.text(code));
    say_news(health, card, code == NVML_OK, code != NVML_OK ? why : "");
}

/* --- events --- */

static void take_event(struct health *health, const struct nvml_event *event)
{
    /* Errors that a program causes itself, or that are a consequence of one (NVIDIA, "XID
     * errors"): illegal instruction or access, page fault, a channel that was reset, preempted or
     * stopped. */
    static const unsigned char harmless[] = {13, 31, 43, 45, 68, 109};
    char why[96];

    if (event->type == NVML_EVENT_XID && event->data <= UINT8_MAX &&
        memchr(harmless, (int)event->data, sizeof harmless) != NULL)
        return;
    if (event->type == NVML_EVENT_XID)
        snprintf(why, sizeof why, "XID error %llu", event->data);
    else
        snprintf(why, sizeof why, "a double-bit error of its memory");
    for (unsigned i = 0; i < health->cards->count; i++) {
        if (health->watched[i].device == NULL || health->watched[i].device != event->device)
            continue;
        health->watched[i].broken = true;
        say_news(health, i, false, why);
    }
}

static void watch_cards(struct health *health)
{
    if (health->nvml.events_new(&health->events) != NVML_OK)
        health->events = NULL;
    for (unsigned i = 0; i < health->cards->count; i++) {
        const struct card *card = &health->cards->card[i];
        struct watched *watched = &health->watched[i];
        const int code = card->has_uuid
                             ? health->nvml.device_by_uuid(card->name, &watched->device)
                             : health->nvml.device_by_index(
                                   (unsigned)strtoul(card->name, NULL, 10), &watched->device);

        if (code != NVML_OK)
            watched->device = NULL;
        else if (health->events != NULL) /* GPUs without events are asked only */
            health->nvml.events_add(watched->device, NVML_EVENT_XID | NVML_EVENT_ECC2,
                                    health->events);
    }
}

static void *run_health(void *context)
{
    struct health *health = context;

    if (health->driver)
        watch_cards(health);
    for (;;) {
        struct nvml_event event = {0};
        int code = NVML_TIMEOUT + 1;

        for (unsigned i = 0; i < health->cards->count; i++)
            look_at_card(health, i);
        if (health->driver && health->events != NULL)
            code = health->nvml.events_wait(health->events, &event, health->period_s * 1000);
        if (code == NVML_OK)
            take_event(health, &event);
        else if (code != NVML_TIMEOUT)
            sleep(health->period_s);
    }
    return NULL;
}

static int start_thread(struct health *health)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&thread, &attributes, run_health, health);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -code;
}

int health_start(const struct cards *cards, const char *library, unsigned period_s,
                 struct gs_err *err)
{
    static struct health health; /* a single instance for each process, as long as it lives */
    int ends[2];
    int code;

    health = (struct health){.cards = cards, .period_s = period_s};
    for (unsigned i = 0; i < CARDS_MOST; i++)
        health.watched[i].healthy = true;
    health.driver = nvml_load(&health.nvml, library, err) == 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    health.pipe = ends[1];
    code = start_thread(&health);
    if (code == 0)
        return ends[0];
    close(ends[0]);
    close(ends[1]);
    return code;
}
