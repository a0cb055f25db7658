/* SPDX-License-Identifier: Apache-2.0
 *
 * pods.c: reads the names of folders. Kubelet's pod resources API names pods without their UID,
 * and a control group names the UID alone; the folder of a pod's logs has both. The
 * same goes for containers and the links to their logs. Neither a name nor a namespace may have a
 * '_' (RFC 1123), so the parts are certain. No state.
 */
#include "common/pods.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* NAMESPACE_NAME_UID. */
static bool take_entry(const char *entry, const char *uid, struct pods_name *name)
{
    const char *first = strchr(entry, '_'), *last = strrchr(entry, '_');

    if (first == NULL || first == last || first == entry || last == first + 1 ||
        strcmp(last + 1, uid) != 0 ||
        memchr(first + 1, '_', (size_t)(last - first - 1)) != NULL)
        return false;
    snprintf(name->space, sizeof name->space, "%.*s", (int)(first - entry), entry);
    snprintf(name->name, sizeof name->name, "%.*s", (int)(last - first - 1), first + 1);
    return true;
}

/* POD_NAMESPACE_CONTAINER-ID.log. */
static bool take_link(const char *entry, const char *id, char *name, size_t size)
{
    const char *first = strchr(entry, '_'),
               *second = first != NULL ? strchr(first + 1, '_') : NULL;
    const size_t length = strlen(entry), tail = strlen(id) + sizeof "-.log" - 1;
    const char *end; /* of the container's name */

    if (second == NULL || first == entry || second == first + 1 || length <= tail)
        return false;
    end = entry + length - tail;
    if (end <= second + 1 || *end != '-' || strncmp(end + 1, id, strlen(id)) != 0 ||
        strcmp(entry + length - 4, ".log") != 0 ||
        memchr(second + 1, '_', (size_t)(end - second - 1)) != NULL)
        return false;
    snprintf(name, size, "%.*s", (int)(end - second - 1), second + 1);
    return true;
}

/* The next entry of a folder; NULL: there is none. */
static const char *next_entry(DIR *folder)
{
    const struct dirent *entry =
        readdir(folder); // NOLINT(concurrency-mt-unsafe): a stream of its own

    return entry != NULL ? entry->d_name : NULL;
}

bool pods_find(const char *folder, const char *uid, struct pods_name *name)
{
    DIR *logs = uid[0] != '\0' ? opendir(folder != NULL ? folder : PODS_LOGS) : NULL;
    const char *entry;
    bool found = false;

    if (logs == NULL)
        return false;
    while (!found && (entry = next_entry(logs)) != NULL)
        found = take_entry(entry, uid, name);
    closedir(logs);
    return found;
}

bool pods_container_find(const char *folder, const char *id, char *name, size_t size)
{
    DIR *links = id[0] != '\0' ? opendir(folder != NULL ? folder : PODS_LINKS) : NULL;
    const char *entry;
    bool found = false;

    name[0] = '\0';
    if (links == NULL)
        return false;
    while (!found && (entry = next_entry(links)) != NULL)
        found = take_link(entry, id, name, size);
    closedir(links);
    return found;
}
