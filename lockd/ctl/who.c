/* SPDX-License-Identifier: Apache-2.0
 *
 * who.c: whose a program is. Owns a small cache of users' names, since a directory service may take long to answer
 * and `top` and `serve` ask again and again. One thread.
 */
#include "lockd/ctl/ctl.h"
#include "lockd/base/text.h"

#include <pwd.h>
#include <stdio.h>
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
