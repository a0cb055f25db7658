/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma.c: owns what is known of devices that reach the card's memory by themselves. State: whether
 * such a device was seen; client thread only.
 */
#include "runtime/base/rdma.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>

static bool seen GS_ZERO_IN_CHILD;

static bool is_such_device(const char *path)
{
    static const char *const names[] = {"/dev/infiniband/uverbs", "/dev/gdrdrv",
                                        "/dev/nvidia-fs"};

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(path, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static bool look_at_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    bool found = false;

    while (folder != NULL && !found && (entry = readdir(folder)) != NULL) {
        char path[PATH_MAX];
        const ssize_t length = readlinkat(dirfd(folder), entry->d_name, path, sizeof path - 1);

        if (length > 0) {
            path[length] = '\0';
            found = is_such_device(path);
        }
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

bool gs_rdma_is_open(void)
{
    if (seen || !look_at_descriptors())
        return seen;
    seen = true;
    gs_log("a device for RDMA or GPUDirect Storage is open: no memory moves from now on");
    gs_daemon_say("its memory stays on the card: it has a device for RDMA or GPUDirect Storage "
                  "open, and the device would miss a move");
    return true;
}
