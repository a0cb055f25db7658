/* SPDX-License-Identifier: Apache-2.0
 *
 * pods.c: reads the names of folders. Kubelet's pod resources API names pods without their UID,
 * and a control group names the UID alone; the folder of a pod's logs has both. Neither a name
 * nor a namespace may have a '_' (RFC 1123), so the parts are certain. No state.
 */
#include "cluster/pods/pods.h"

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

bool pods_find(const char *folder, const char *uid, struct pods_name *name)
{
    DIR *logs = uid[0] != '\0' ? opendir(folder != NULL ? folder : PODS_LOGS) : NULL;
    const struct dirent *entry;
    bool found = false;

    if (logs == NULL)
        return false;
    while (!found && (entry = readdir(logs)) !=
                         NULL) // NOLINT(concurrency-mt-unsafe): a stream of its own
        found = take_entry(entry->d_name, uid, name);
    closedir(logs);
    return found;
}
