/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin.c: the life of the plugin: it waits for kubelet's folder, its connections, the news of
 * the GPUs' health and signals. One thread; the health of the GPUs has another.
 */
#include "cluster/plugin.h"
#include "cluster/service.h"
#include "common/fd.h"
#include "lockd/base/clock.h"
#include "lockd/base/log.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>

/* The health of the GPUs has a thread of its own. It waits in the driver for events, and asks
 * each GPU for its memory now and then: a GPU that is lost does not answer. Where the driver's
 * management library cannot be used (it is not there, or this process may not open the device),
 * the device nodes tell. An XID that a program can cause says nothing of the GPU. After any
 * other the GPU stays out of use until the plugin starts again, since nothing tells that it was
 * reset. A GPU that did not answer is used again when it does. All up to health_start() is the
 * thread's own. */

/* One change, as it is read from the thread's pipe. */
struct health_news {
    unsigned card;
    bool healthy;
    char why[96];
};

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

static void note_event(struct health *health, const struct nvml_event *event)
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
            note_event(health, &event);
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

/* Starts the thread, which looks every period_s seconds and at each event. library:
 * NVIDIA's; NULL: the loader's libnvidia-ml.so.1. cards must stay; only their names and edits are
 * read. The end of a pipe to read struct health_news from, non-blocking; or -errno. err says why the
 * library cannot be used. It runs as long as the process. */
static int health_start(const struct cards *cards, const char *library, unsigned period_s,
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

#define DRAIN_MOST  5000000000ull /* ns for what is being answered when SIGTERM comes */
#define FOLDER_WAIT 1000000000ull /* ns between two looks for a folder that is gone, or tries */
#define MADE_WAIT   100000000u    /* ns until a socket that was just made is made again */

/* --- kubelet's folder --- */

/* The right to serve in this folder, which one plugin has: two would remove each other's socket
 * without end. It lasts as long as the descriptor. */
static int own_folder(struct plugin *plugin, struct gs_err *err)
{
    if (plugin->owned >= 0)
        close(plugin->owned);
    plugin->owned = open(plugin->set.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (plugin->owned < 0)
        return gs_err_errno(err, -errno, "%.300s", plugin->set.folder);
    if (flock(plugin->owned, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return gs_err_set(err, -EBUSY, "another gpushare-device-plugin serves %.300s",
                          plugin->set.folder);
    return 0; /* a file system without locks */
}

static int watch_folder(struct plugin *plugin, struct gs_err *err)
{
    if (plugin->folder >= 0)
        close(plugin->folder);
    plugin->folder = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (plugin->folder < 0)
        return gs_err_errno(err, -errno, "inotify");
    if (inotify_add_watch(plugin->folder, plugin->set.folder,
                          IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF |
                              IN_MOVE_SELF | IN_ONLYDIR) < 0)
        return gs_err_errno(err, -errno, "%.300s", plugin->set.folder);
    return 0;
}

/* Makes the socket where it is gone, and tells kubelet, which may have looked for the old one. Both
 * wait while the socket was just made or cannot be made. -errno: the folder is gone, or its path is
 * too long, or this process may not write there. */
static int serve_again(struct plugin *plugin, struct gs_err *err)
{
    struct gs_err why = {0};
    int code = -EAGAIN;

    registration_restart(plugin);
    if (listen_is_there(plugin))
        return 0;
    if (lockd_now() >= plugin->listen_at) {
        code = listen_open(plugin, &why);
        if (code == 0 && plugin->listen_at != 0)
            lockd_log(LOCKD_LOG_INFO,
                      "the plugin's socket was removed or replaced; it is made again");
        plugin->listen_at = lockd_now() + (code == 0 ? MADE_WAIT : FOLDER_WAIT);
        if (code == -ENOENT || code == -ENOTDIR || code == -ENAMETOOLONG || code == -EACCES)
            return gs_err_set(err, code, "%s", why.text);
        if (code != 0 && code != plugin->listen_said)
            lockd_log(LOCKD_LOG_WARNING, "%s; trying again", why.text);
        plugin->listen_said = code;
    }
    if (code != 0)
        plugin->registration.again_at = plugin->listen_at;
    return 0;
}

static int take_event(struct plugin *plugin, const struct inotify_event *event,
                      struct gs_err *err)
{
    const bool came = (event->mask & (IN_CREATE | IN_MOVED_TO)) != 0;

    if ((event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) != 0)
        return gs_err_set(err, -ENOENT, "%.300s was removed", plugin->set.folder);
    if ((event->mask & IN_Q_OVERFLOW) != 0) { /* kubelet's start may be among what is lost */
        lockd_log(LOCKD_LOG_WARNING, "%s: events were lost", plugin->set.folder);
        return serve_again(plugin, err);
    }
    if (event->len == 0)
        return 0;
    if (came)
        rival_see(plugin, event->name);
    if (came && strcmp(event->name, PLUGIN_KUBELET) == 0) {
        lockd_log(LOCKD_LOG_INFO, "kubelet has started");
        return serve_again(plugin, err);
    }
    return 0; /* the plugin's own socket is looked at in each round */
}

static int read_folder(struct plugin *plugin, struct gs_err *err)
{
    char bytes[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t size = read(plugin->folder, bytes, sizeof bytes);
    int code = 0;

    for (ssize_t at = 0; at < size && code == 0;) {
        const struct inotify_event *event = (const void *)(bytes + at);

        code = take_event(plugin, event, err);
        at += (ssize_t)(sizeof *event + event->len);
    }
    return code;
}

/* --- the rest of what is waited for --- */

static void read_news(struct plugin *plugin)
{
    struct health_news news;
    bool changed = false;

    while (read(plugin->news, &news, sizeof news) == (ssize_t)sizeof news) {
        struct card *card = &plugin->cards.card[news.card];

        card->healthy = news.healthy;
        snprintf(card->why, sizeof card->why, "%s", news.why);
        changed = true;
        if (news.healthy)
            lockd_log(LOCKD_LOG_INFO, "GPU %s works again", card->name);
        else
            lockd_log(LOCKD_LOG_ERROR, "GPU %s is not healthy: %s", card->name, card->why);
    }
    if (changed)
        service_tell(plugin);
}

enum { AT_SIGNALS, AT_FOLDER, AT_NEWS, AT_LISTENER, AT_REGISTRATION, AT_RIVAL, AT_PEERS };

#define PLACES (AT_PEERS + PLUGIN_PEERS)

/* One round. 0; 1: a signal says to end; -errno. */
static int run_once(struct plugin *plugin, uint64_t until, struct gs_err *err)
{
    struct pollfd polls[PLACES];
    int code = 0;

    /* a signal stays readable, and says nothing new while the plugin ends */
    const int own[] = {plugin->draining ? -1 : plugin->signals, plugin->folder, plugin->news,
                       plugin->listener};

    for (unsigned i = 0; i < AT_REGISTRATION; i++)
        polls[i] = (struct pollfd){.fd = own[i], .events = POLLIN};
    polls[AT_REGISTRATION] =
        (struct pollfd){.fd = plugin->registration.peer.fd,
                        .events = grpc_peer_events(&plugin->registration.peer)};
    polls[AT_RIVAL] = (struct pollfd){.fd = plugin->rival.peer.fd,
                                      .events = grpc_peer_events(&plugin->rival.peer)};
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        polls[AT_PEERS + i] = (struct pollfd){.fd = plugin->peers[i].fd,
                                              .events = grpc_peer_events(&plugin->peers[i])};
    if (poll(polls, PLACES, lockd_ms_until(until)) < 0 && errno != EINTR)
        return gs_err_errno(err, -errno, "poll");
    if (polls[AT_NEWS].revents != 0)
        read_news(plugin);
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        if (plugin->peers[i].link != NULL)
            listen_run(&plugin->peers[i]);
    if (polls[AT_SIGNALS].revents != 0)
        return 1;
    if (plugin->draining)
        return 0;
    if (polls[AT_LISTENER].revents != 0)
        listen_accept(plugin);
    if (polls[AT_FOLDER].revents != 0)
        code = read_folder(plugin, err);
    if (code == 0 && listen_is_there(plugin))
        registration_run(plugin);
    else if (code == 0)
        code = serve_again(plugin, err);
    if (code == 0)
        rival_run(plugin);
    return code;
}

/* --- beginning and end --- */

static bool has_peers(const struct plugin *plugin)
{
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        if (plugin->peers[i].link != NULL)
            return true;
    return false;
}

/* Answers what was asked, tells kubelet that the devices go, and takes nothing new. */
static void drain_calls(struct plugin *plugin)
{
    const uint64_t until = lockd_now() + DRAIN_MOST;
    struct gs_err err = {0};

    lockd_log(LOCKD_LOG_INFO, "ending; running pods keep their GPUs");
    plugin->draining = true;
    listen_close(plugin);
    grpc_peer_deinit(&plugin->registration.peer);
    grpc_peer_deinit(&plugin->rival.peer);
    service_end_watches(plugin);
    for (unsigned i = 0; i < PLUGIN_PEERS; i++) {
        if (plugin->peers[i].link == NULL)
            continue;
        grpc_link_drain(plugin->peers[i].link);
        listen_run(&plugin->peers[i]);
    }
    while (has_peers(plugin) && lockd_now() < until)
        if (run_once(plugin, until, &err) != 0)
            break;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* The folder is there when kubelet is; a node on which it comes later is waited for, and so is
 * a plugin that has not ended yet. 0; 1: a signal says to end. */
static int wait_for_folder(struct plugin *plugin, struct gs_err *err)
{
    int said = 0;

    for (;;) {
        struct pollfd signals = {.fd = plugin->signals, .events = POLLIN};
        struct gs_err why = {0};
        int code = own_folder(plugin, &why);

        code = code ?: watch_folder(plugin, &why);
        if (code == 0)
            return 0;
        if (code == -EACCES)
            return gs_err_set(err, code, "%s", why.text);
        if (said != code)
            lockd_log(LOCKD_LOG_WARNING, "%s; %s", why.text,
                      code == -EBUSY                        ? "waiting until it ends"
                      : code == -ENOENT || code == -ENOTDIR ? "waiting for it"
                                                            : "trying again");
        said = code;
        if (poll(&signals, 1, (int)(FOLDER_WAIT / 1000000)) > 0)
            return 1;
    }
}

static int serve_kubelet(struct plugin *plugin, struct gs_err *err)
{
    int code = wait_for_folder(plugin, err);

    while (code == 0) {
        struct gs_err why = {0};

        code = run_once(
            plugin, lockd_lesser(plugin->rival.ask_at, plugin->registration.again_at), &why);
        if (code == -ENOENT || code == -ENOTDIR) { /* the folder is gone, and kubelet with it */
            lockd_log(LOCKD_LOG_WARNING, "%s", why.text);
            listen_close(plugin);
            code = wait_for_folder(plugin, err);
        } else if (code < 0) {
            gs_err_set(err, code, "%s", why.text);
        }
    }
    if (code == 1)
        drain_calls(plugin);
    return code == 1 ? 0 : code;
}

int plugin_run(const struct plugin_settings *set, struct cards *cards, struct gs_err *err)
{
    static struct plugin plugin; /* a single instance for each process */
    struct gs_err why = {0};
    int code;

    plugin = (struct plugin){.set = *set,
                             .cards = *cards,
                             .signals = open_signals(),
                             .folder = -1,
                             .owned = -1,
                             .listener = -1};
    registration_init(&plugin.registration);
    rival_init(&plugin.rival);
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        plugin.peers[i].fd = -1;
    plugin.news = health_start(&plugin.cards, set->library, (unsigned)set->period_s, &why);
    if (plugin.signals < 0 || plugin.news < 0)
        return gs_err_set(err, -EMFILE, "no descriptors or threads are left");
    if (why.code != 0)
        lockd_log(LOCKD_LOG_WARNING, "%s: only the device nodes tell whether a GPU is healthy",
                  why.text);
    for (unsigned i = 0; i < plugin.cards.count; i++)
        lockd_log(LOCKD_LOG_INFO, "GPU %s: %u devices", plugin.cards.card[i].name,
                  plugin.cards.each);
    if (set->answer == ALLOCATE_MOUNTS && edits_have(&plugin.cards, "hooks"))
        lockd_log(LOCKD_LOG_WARNING,
                  "the specification has hooks, which mounts cannot express: write it with "
                  "gpusharectl cdi generate --nvidia none");
    if (set->answer == ALLOCATE_MOUNTS && edits_have(&plugin.cards, "additionalGids"))
        lockd_log(LOCKD_LOG_INFO, "pods that are not root need the socket's group in "
                                  "securityContext.supplementalGroups");
    code = serve_kubelet(&plugin, err);
    listen_close(&plugin);
    return code;
}
