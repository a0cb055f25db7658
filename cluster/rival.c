/* SPDX-License-Identifier: Apache-2.0
 *
 * rival.c: asks kubelet's pod resources API (GetAllocatableResources) for the devices of all
 * plugins and compares them with ours. Nothing depends on the answer; it is said in the log.
 */
#include "cluster/rival.h"
#include "lockd/ctl/ask.h"

#include <string.h>

#include "lockd/base/log.h"
#include "lockd/ctl/ctl.h"
#include "pod_resources.pb-c.h"

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
    plugin->rival.ask_at = ctl_now() + SETTLE;
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

static void take_answer(void *context, enum grpc_status status, const char *text,
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
                             "", 0, take_answer, plugin);
    if (code == 0)
        return;
    lockd_log(LOCKD_LOG_DEBUG, "%s: %s", plugin->set.pod_resources, strerror(-code));
    grpc_peer_deinit(&rival->peer);
}

void rival_run(struct plugin *plugin)
{
    struct rival *rival = &plugin->rival;

    if (rival->peer.link == NULL && ctl_now() >= rival->ask_at)
        begin_question(plugin);
    if (rival->peer.link == NULL)
        return;
    if (grpc_peer_converse(&rival->peer, "the pod resources API") == 0 &&
        grpc_link_calls(rival->peer.link) != 0)
        return;
    grpc_peer_deinit(&rival->peer);
}
