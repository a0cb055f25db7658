/* SPDX-License-Identifier: Apache-2.0
 *
 * registration.c: one call of Registration/Register on a connection of its own. A failure is
 * tried again after a pause that doubles up to half a minute; so is a registration that kubelet
 * accepts without watching, or without watching for long.
 */
#include "cluster/registration.h"
#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "pod_resources.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

void registration_lost(struct plugin *plugin)
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

void registration_watched(struct plugin *plugin)
{
    if (plugin->registration.done)
        plugin->registration.again_at = UINT64_MAX;
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
