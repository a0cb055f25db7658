/* SPDX-License-Identifier: Apache-2.0
 *
 * service.c: registers with kubelet, unpacks what kubelet asks, and packs the answer. A watcher is a
 * call of ListAndWatch, which lasts as long as kubelet's connection.
 */
#include "cluster/service.h"
#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "pod_resources.pb-c.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* One call of Registration/Register on a connection of its own. A failure is tried again after a
 * pause that doubles up to half a minute; so is a registration that kubelet accepts without
 * watching, or without watching for long. */

#define PAUSE_LEAST 100000000u     /* ns: a socket has a name before it is served */
#define PAUSE_MOST  30000000000ull /* ns */
#define PATIENCE    10000000000ull /* ns for the answer */
#define SETTLED     60000000000ull /* ns of a watch that makes up for what failed before it */

void registration_init(struct registration *registration)
{
    *registration = (struct registration){.peer.fd = -1, .pause = PAUSE_LEAST};
}

static void try_later(struct registration *registration)
{
    registration->again_at = lockd_now() + registration->pause;
    registration->pause =
        registration->pause < PAUSE_MOST / 2 ? registration->pause * 2 : PAUSE_MOST;
}

void registration_restart(struct plugin *plugin)
{
    grpc_peer_deinit(&plugin->registration.peer);
    registration_init(&plugin->registration);
}

/* Kubelet no longer watches: registers again, after a call that is under way. */
static void registration_lost(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;

    registration->lost = registration->peer.link != NULL;
    if (registration->lost)
        return;
    if (lockd_now() - registration->told_at > SETTLED)
        registration->pause = PAUSE_LEAST;
    registration->done = false;
    try_later(registration);
}

/* It has answered; when it should watch at the latest. */
static void take_consent(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;

    registration->told_at = lockd_now();
    registration->done = !registration->lost;
    if (registration->lost)
        try_later(registration);
    else if (lockd_list_empty(&plugin->watchers))
        registration->again_at = registration->told_at + plugin->set.watch_within;
    else
        registration->again_at = UINT64_MAX;
    registration->lost = false;
}

static void take_answer(void *context, enum grpc_status status, const char *text,
                        const uint8_t *message, size_t size)
{
    struct plugin *plugin = context;
    struct registration *registration = &plugin->registration;

    (void)message, (void)size;
    if (plugin->draining || registration->peer.link == NULL)
        return; /* the connection was given up by us */
    if (status != GRPC_OK) {
        lockd_log(LOCKD_LOG_WARNING, "kubelet did not accept %s: %s (%d); trying again",
                  plugin->set.resource, text, (int)status);
        try_later(registration);
        return;
    }
    lockd_log(LOCKD_LOG_INFO, "kubelet knows %s: %u devices on %u GPUs", plugin->set.resource,
              plugin->cards.count * plugin->cards.each, plugin->cards.count);
    take_consent(plugin);
    plugin->rival.ask_at = lockd_now();
}

static int ask_kubelet(struct plugin *plugin)
{
    char endpoint[] = PLUGIN_ENDPOINT, version[] = "v1beta1", resource[256];
    V1beta1__Options options = V1BETA1__OPTIONS__INIT;
    V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;
    uint8_t bytes[512];

    snprintf(resource, sizeof resource, "%s", plugin->set.resource);
    options.preferred_allocation = true;
    request.version = version;
    request.endpoint = endpoint;
    request.resource = resource;
    request.options = &options;
    if (v1beta1__register_request__get_packed_size(&request) > sizeof bytes)
        return -ENAMETOOLONG;
    return grpc_link_ask(plugin->registration.peer.link, "/v1beta1.Registration/Register",
                         bytes, v1beta1__register_request__pack(&request, bytes), take_answer,
                         plugin);
}

static void begin_registration(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;
    char path[GS_PATH_SIZE];
    int code;

    snprintf(path, sizeof path, "%s/" PLUGIN_KUBELET, plugin->set.folder);
    code = grpc_peer_connect(&registration->peer, path);
    code = code ?: ask_kubelet(plugin);
    if (code == 0) {
        registration->missing = false;
        registration->again_at = lockd_now() + PATIENCE;
        return;
    }
    grpc_peer_deinit(&registration->peer);
    if (!registration->missing)
        lockd_log(LOCKD_LOG_INFO, "%s: %s; waiting for kubelet", path, strerror(-code));
    registration->missing = true;
    try_later(registration);
}

void registration_run(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;

    if (registration->done && registration->peer.link == NULL &&
        lockd_now() >= registration->again_at) {
        lockd_log(LOCKD_LOG_WARNING, "kubelet does not watch the devices; registering again");
        registration->done = false;
        try_later(registration);
    }
    if (registration->peer.link == NULL) {
        if (!registration->done && lockd_now() >= registration->again_at)
            begin_registration(plugin);
        if (registration->peer.link == NULL)
            return;
    }
    if (!registration->done && lockd_now() >= registration->again_at) {
        lockd_log(LOCKD_LOG_WARNING, "kubelet does not answer; trying again");
        grpc_peer_deinit(&registration->peer);
        try_later(registration);
        return;
    }
    if (grpc_peer_converse(&registration->peer, PLUGIN_KUBELET) == 0 &&
        grpc_link_calls(registration->peer.link) != 0)
        return;
    grpc_link_free(registration->peer.link); /* a call without an answer ends here */
    registration->peer.link = NULL;
    grpc_peer_deinit(&registration->peer);
}

/* Asks kubelet's pod resources API (GetAllocatableResources) for the devices of all plugins
 * and compares them with ours. Nothing depends on the answer; it is said in the log. */

#define SETTLE 10000000000ull /* ns until kubelet has the devices of a plugin that has come */

void rival_init(struct rival *rival)
{
    *rival = (struct rival){.peer.fd = -1, .ask_at = UINT64_MAX};
}

void rival_see(struct plugin *plugin, const char *name)
{
    if (strncmp(name, "nvidia", 6) != 0)
        return;
    lockd_log(LOCKD_LOG_WARNING,
              "NVIDIA's device plugin seems to run here too (%s/%s): pods that ask for its "
              "resource do not take turns with those that ask for %s",
              plugin->set.folder, name, plugin->set.resource);
    plugin->rival.ask_at = lockd_now() + SETTLE;
}

static void compare_id(struct plugin *plugin, const char *resource, const char *id)
{
    for (unsigned i = 0; i < plugin->cards.count; i++) {
        if (plugin->rival.told[i] || !cards_is_named(&plugin->cards.card[i], id))
            continue;
        plugin->rival.told[i] = true;
        lockd_log(LOCKD_LOG_WARNING,
                  "GPU %s is also given out as %s: pods of both would use it at the same time; "
                  "take it from the other plugin, or this node from gpushare",
                  plugin->cards.card[i].name, resource);
    }
}

static void take_devices(void *context, enum grpc_status status, const char *text,
                         const uint8_t *message, size_t size)
{
    struct plugin *plugin = context;
    V1__AllocatableResponse *response;

    if (status != GRPC_OK) {
        lockd_log(LOCKD_LOG_DEBUG, "%s: %s (%d)", plugin->set.pod_resources, text, (int)status);
        return;
    }
    response = v1__allocatable_response__unpack(NULL, size, message);
    if (response == NULL) {
        lockd_log(LOCKD_LOG_WARNING, "%s: the answer is not what the API says",
                  plugin->set.pod_resources);
        return;
    }
    for (size_t i = 0; i < response->n_devices; i++)
        for (size_t k = 0; k < response->devices[i]->n_ids; k++)
            if (strcmp(response->devices[i]->resource, plugin->set.resource) != 0)
                compare_id(plugin, response->devices[i]->resource,
                           response->devices[i]->ids[k]);
    v1__allocatable_response__free_unpacked(response, NULL);
}

static void begin_question(struct plugin *plugin)
{
    struct rival *rival = &plugin->rival;
    int code = grpc_peer_connect(&rival->peer, plugin->set.pod_resources);

    rival->ask_at = UINT64_MAX;
    if (code == 0)
        code = grpc_link_ask(rival->peer.link, "/v1.PodResourcesLister/GetAllocatableResources",
                             "", 0, take_devices, plugin);
    if (code == 0)
        return;
    lockd_log(LOCKD_LOG_DEBUG, "%s: %s", plugin->set.pod_resources, strerror(-code));
    grpc_peer_deinit(&rival->peer);
}

void rival_run(struct plugin *plugin)
{
    struct rival *rival = &plugin->rival;

    if (rival->peer.link == NULL && lockd_now() >= rival->ask_at)
        begin_question(plugin);
    if (rival->peer.link == NULL)
        return;
    if (grpc_peer_converse(&rival->peer, "the pod resources API") == 0 &&
        grpc_link_calls(rival->peer.link) != 0)
        return;
    grpc_peer_deinit(&rival->peer);
}

#define LOAD_SLOW  500000000ull   /* ns: a daemon that answers nothing for so long hangs */
#define LOAD_PAUSE 30000000000ull /* ns until it is asked again */

struct watcher {
    struct lockd_list in_plugin;
    struct grpc_call *call;
    struct plugin *plugin;
};

/* Packs a message as the whole answer. */
static int send_message(struct grpc_call *call, const ProtobufCMessage *message)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(size + 1);
    int code = -ENOMEM;

    if (bytes != NULL) {
        protobuf_c_message_pack(message, bytes);
        code = grpc_call_send(call, bytes, size);
    }
    free(bytes);
    return code;
}

static void answer_message(struct grpc_call *call, const ProtobufCMessage *message)
{
    const int code = send_message(call, message);

    grpc_call_end(call, code == 0 ? GRPC_OK : GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

/* The answer, or the refusal with the error's text. */
static void finish_call(struct grpc_call *call, const char *method,
                        const ProtobufCMessage *answer, int code, const struct gs_err *err)
{
    const enum grpc_status status = code == -ENOENT   ? GRPC_NOT_FOUND
                                    : code == -EINVAL ? GRPC_INVALID_ARGUMENT
                                    : code == -EIO    ? GRPC_FAILED_PRECONDITION
                                                      : GRPC_RESOURCE_EXHAUSTED;
    const char *why = err->code != 0 ? err->text : "out of memory";

    if (code == 0) {
        answer_message(call, answer);
        return;
    }
    lockd_log(LOCKD_LOG_WARNING, "%s refused: %s", method, why);
    grpc_call_end(call, status, why);
}

static int refuse_bytes(struct gs_err *err)
{
    return gs_err_set(err, -EINVAL,
                      "the message is not what the device plugin API v1beta1 says");
}

/* --- the methods --- */

static void run_options(void *context, struct grpc_call *call, const uint8_t *message,
                        size_t size)
{
    V1beta1__Options options = V1BETA1__OPTIONS__INIT;

    (void)context, (void)message, (void)size;
    options.preferred_allocation = true;
    answer_message(call, &options.base);
}

static void run_pre_start(void *context, struct grpc_call *call, const uint8_t *message,
                          size_t size)
{
    V1beta1__Empty nothing = V1BETA1__EMPTY__INIT;

    (void)context, (void)message, (void)size;
    answer_message(call, &nothing.base);
}

static void run_allocate(void *context, struct grpc_call *call, const uint8_t *message,
                         size_t size)
{
    struct plugin *plugin = context;
    V1beta1__AllocateRequest *request = v1beta1__allocate_request__unpack(NULL, size, message);
    V1beta1__AllocateResponse response = V1BETA1__ALLOCATE_RESPONSE__INIT;
    struct pool pool = {0};
    struct gs_err err = {0};
    const int code = request == NULL ? refuse_bytes(&err)
                                     : allocate_fill(&plugin->cards,
                                                     (enum allocate_answer)plugin->set.answer,
                                                     request, &pool, &response, &err);

    finish_call(call, "Allocate", &response.base, code, &err);
    pool_deinit(&pool);
    v1beta1__allocate_request__free_unpacked(request, NULL);
}

/* A daemon that hangs costs kubelet one wait, not a wait for each question. */
static void ask_load(struct plugin *plugin, struct load *load)
{
    const uint64_t begin = lockd_now();
    struct gs_err why = {0};

    if (plugin->set.lockd.count == 0 || begin < plugin->load_again_at)
        return;
    load_ask(load, &plugin->cards, &plugin->set.lockd, &why);
    if (why.code == 0)
        return;
    lockd_log(LOCKD_LOG_DEBUG, "the load of the GPUs is not known: %s", why.text);
    if (lockd_now() - begin > LOAD_SLOW)
        plugin->load_again_at = lockd_now() + LOAD_PAUSE;
}

static void run_preferred(void *context, struct grpc_call *call, const uint8_t *message,
                          size_t size)
{
    struct plugin *plugin = context;
    V1beta1__PreferredRequest *request =
        v1beta1__preferred_request__unpack(NULL, size, message);
    V1beta1__PreferredResponse response = V1BETA1__PREFERRED_RESPONSE__INIT;
    struct pool pool = {0};
    struct gs_err err = {0};
    struct load load = {0};
    int code;

    if (request == NULL) {
        code = refuse_bytes(&err);
    } else {
        ask_load(plugin, &load);
        code = allocate_prefer(&plugin->cards, &load, request, &pool, &response, &err);
    }
    finish_call(call, "GetPreferredAllocation", &response.base, code, &err);
    pool_deinit(&pool);
    v1beta1__preferred_request__free_unpacked(request, NULL);
}

/* --- watchers --- */

static void tell_watcher(struct watcher *watcher)
{
    V1beta1__DeviceList list = V1BETA1__DEVICE_LIST__INIT;
    struct pool pool = {0};
    int code = allocate_list(&watcher->plugin->cards, &pool, &list);

    code = code ?: send_message(watcher->call, &list.base);
    if (code != 0) {
        lockd_log(LOCKD_LOG_WARNING, "a list of devices was not sent: %s",
                  code == -ENOBUFS ? "kubelet does not read" : "out of memory");
        grpc_call_end(watcher->call, GRPC_RESOURCE_EXHAUSTED, "the list was not read in time");
    }
    pool_deinit(&pool);
}

static void end_watcher(void *context)
{
    struct watcher *watcher = context;
    struct plugin *plugin = watcher->plugin;

    lockd_list_remove(&watcher->in_plugin);
    free(watcher);
    if (!lockd_list_empty(&plugin->watchers) || plugin->draining)
        return;
    lockd_log(LOCKD_LOG_INFO, "kubelet no longer watches; registering again");
    registration_lost(plugin);
}

static void run_watch(void *context, struct grpc_call *call, const uint8_t *message,
                      size_t size)
{
    struct plugin *plugin = context;
    struct watcher *watcher = calloc(1, sizeof *watcher);

    (void)message, (void)size;
    if (watcher == NULL || plugin->draining) {
        free(watcher);
        grpc_call_end(call, GRPC_UNAVAILABLE, "the plugin ends");
        return;
    }
    watcher->call = call;
    watcher->plugin = plugin;
    lockd_list_append(&plugin->watchers, &watcher->in_plugin);
    grpc_call_watch(call, end_watcher, watcher);
    /* Kubelet watches: it need not be told again. */
    if (plugin->registration.done)
        plugin->registration.again_at = UINT64_MAX;
    tell_watcher(watcher);
}

void service_tell(struct plugin *plugin)
{
    lockd_each (struct watcher, watcher, &plugin->watchers, in_plugin)
        tell_watcher(watcher);
}

void service_end_watches(struct plugin *plugin)
{
    lockd_each (struct watcher, watcher, &plugin->watchers, in_plugin)
        grpc_call_end(watcher->call, GRPC_OK, NULL);
}

#define SERVICE "/v1beta1.DevicePlugin/"

const struct grpc_method service_methods[] = {
    {SERVICE "GetDevicePluginOptions", run_options},   {SERVICE "ListAndWatch", run_watch},
    {SERVICE "GetPreferredAllocation", run_preferred}, {SERVICE "Allocate", run_allocate},
    {SERVICE "PreStartContainer", run_pre_start},      {NULL, NULL},
};

/* The socket file is recognised by its inode, and gets its name when it can be used: what had the
 * name before is replaced in one step. */

#define BACKLOG    8
#define FIRST_NAME "gpushare.new" /* no longer than PLUGIN_ENDPOINT, which must fit, too */

static int own_path(const struct plugin *plugin, const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(address->sun_path, sizeof address->sun_path, "%s/%s", plugin->set.folder,
                    name) < (int)sizeof address->sun_path
               ? 0
               : -ENAMETOOLONG;
}

bool listen_is_there(const struct plugin *plugin)
{
    struct sockaddr_un address;
    struct stat st;

    return plugin->listener >= 0 && own_path(plugin, PLUGIN_ENDPOINT, &address) == 0 &&
           lstat(address.sun_path, &st) == 0 && st.st_ino == plugin->listener_inode;
}

void listen_close(struct plugin *plugin)
{
    struct sockaddr_un address;

    if (listen_is_there(plugin) && own_path(plugin, PLUGIN_ENDPOINT, &address) == 0)
        unlink(address.sun_path);
    if (plugin->listener >= 0)
        close(plugin->listener);
    plugin->listener = -1;
}

int listen_open(struct plugin *plugin, struct gs_err *err)
{
    struct sockaddr_un address, first;
    struct stat st;
    int code = own_path(plugin, PLUGIN_ENDPOINT, &address);

    code = code ?: own_path(plugin, FIRST_NAME, &first);
    if (code != 0)
        return gs_err_set(err, code, "%.300s: the path is too long for a socket",
                          plugin->set.folder);
    listen_close(plugin);
    plugin->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (plugin->listener < 0)
        return gs_err_errno(err, -errno, "socket");
    remove(first.sun_path);
    if (bind(plugin->listener, (struct sockaddr *)&first, sizeof first) == 0 &&
        listen(plugin->listener, BACKLOG) == 0 && lstat(first.sun_path, &st) == 0 &&
        rename(first.sun_path, address.sun_path) == 0) {
        plugin->listener_inode = st.st_ino;
        return 0;
    }
    code = errno == EISDIR
               ? gs_err_set(err, -EISDIR, "%s is a directory: remove it", address.sun_path)
               : gs_err_errno(err, -errno, "%s, to be renamed to " PLUGIN_ENDPOINT,
                              first.sun_path);
    remove(first.sun_path);
    close(plugin->listener);
    plugin->listener = -1;
    return code;
}

/* A free place; else that of the oldest connection without a call, which kubelet's watch is
 * not; else PLUGIN_PEERS. */
static unsigned find_place(const struct plugin *plugin)
{
    unsigned found = PLUGIN_PEERS;

    for (unsigned i = 0; i < PLUGIN_PEERS; i++) {
        if (plugin->peers[i].link == NULL)
            return i;
        if (grpc_link_calls(plugin->peers[i].link) == 0 &&
            (found == PLUGIN_PEERS || plugin->accepted[i] < plugin->accepted[found]))
            found = i;
    }
    return found;
}

void listen_accept(struct plugin *plugin)
{
    for (;;) {
        const int fd = accept4(plugin->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        unsigned i;

        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0)
            return;
        i = find_place(plugin);
        if (i == PLUGIN_PEERS) {
            lockd_log(LOCKD_LOG_WARNING, "a connection was refused: there are %d", i);
            close(fd);
            continue;
        }
        grpc_peer_deinit(&plugin->peers[i]);
        plugin->accepted[i] = ++plugin->accepts;
        if (grpc_peer_init(&plugin->peers[i], fd, grpc_link_new(service_methods, plugin)) != 0)
            lockd_log(LOCKD_LOG_WARNING, "a connection was refused: out of memory");
        else
            plugin->peers[i].lingers = true;
    }
}

void listen_run(struct grpc_peer *peer)
{
    if (grpc_peer_converse(peer, "a connection of kubelet") == 0)
        return;
    grpc_peer_deinit(peer);
    malloc_trim(0); /* the memory of one connection is not kept for the next */
}
