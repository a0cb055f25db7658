/* SPDX-License-Identifier: Apache-2.0
 *
 * who.c: the user, container and pod of a program, as names. Owns a small cache of users' names,
 * since a directory service may answer slowly and `top` and `serve` ask repeatedly. One thread.
 */
#include "lockd/base/text.h"
#include "lockd/ctl/who.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USERS 64

const char *ctl_user_name(uint32_t uid, char *buffer, size_t size)
{
    static struct {
        bool known;
        uint32_t uid;
        char name[64];
    } users[USERS], *user;

    user = &users[uid % USERS];
    if (!user->known || user->uid != uid) {
        const struct passwd *entry = getpwuid(uid);

        if (entry != NULL)
            snprintf(user->name, sizeof user->name, "%s", entry->pw_name);
        else
            snprintf(user->name, sizeof user->name, "%u", uid);
        lockd_text_clean(user->name, sizeof user->name);
        user->uid = uid;
        user->known = true;
    }
    snprintf(buffer, size, "%s", user->name);
    return buffer;
}

const char *ctl_container_text(const struct gs_wire_client *client, char *buffer)
{
    const size_t length = strlen(client->container);
    const bool is_id = length == 64 && strspn(client->container, "0123456789abcdef") == length;

    snprintf(buffer, CTL_CONTAINER_SIZE, "%.*s", is_id ? 12 : CTL_CONTAINER_SIZE - 1,
             client->container);
    return buffer;
}

static void find_names(const struct gs_wire_client *client, struct ctl_pod *pod)
{
    struct pods_name name = {0};

    if (pods_find(NULL, client->pod, &name)) {
        memcpy(pod->name, name.name, sizeof pod->name);
        memcpy(pod->space, name.space, sizeof pod->space);
    }
    pods_container_find(NULL, client->container, pod->container, sizeof pod->container);
    lockd_text_clean(pod->name, sizeof pod->name);
    lockd_text_clean(pod->space, sizeof pod->space);
    lockd_text_clean(pod->container, sizeof pod->container);
}

void ctl_pods_look(struct ctl_answer *answer)
{
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];
        size_t same = 0;

        if (client->pod[0] == '\0')
            continue;
        if (answer->client_pods == NULL)
            answer->client_pods = calloc(answer->client_count, sizeof *answer->client_pods);
        if (answer->client_pods == NULL)
            return;
        while (same < i && (strcmp(answer->clients[same].pod, client->pod) != 0 ||
                            strcmp(answer->clients[same].container, client->container) != 0))
            same++;
        if (same < i)
            answer->client_pods[i] = answer->client_pods[same];
        else
            find_names(client, &answer->client_pods[i]);
    }
}

const struct ctl_pod *ctl_client_pod(const struct ctl_answer *answer, size_t index)
{
    static const struct ctl_pod none;

    return answer->client_pods != NULL ? &answer->client_pods[index] : &none;
}
