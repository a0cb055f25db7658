/* SPDX-License-Identifier: Apache-2.0
 *
 * detach.c: takes a process into the background. No state.
 */
#include "lockd/start/detach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_kept_descriptor(const struct lockd_sockets *sockets, int fd)
{
    for (unsigned i = 0; i < sockets->count; i++)
        if (fd == sockets->spot[i].listener || fd == sockets->spot[i].lock_fd)
            return true;
    return fd <= STDERR_FILENO;
}

static void close_inherited(const struct lockd_sockets *sockets)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;

    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL) {
        const int fd = (int)strtol(entry->d_name, NULL, 10);

        if (entry->d_name[0] != '.' && fd != dirfd(folder) && !is_kept_descriptor(sockets, fd))
            close(fd);
    }
    closedir(folder);
}

int lockd_detach(const struct lockd_sockets *sockets, struct gs_err *err)
{
    const pid_t pid = fork();
    int null;

    if (pid < 0)
        return gs_err_errno(err, -errno, "fork");
    if (pid > 0)
        _exit(0);
    if (setsid() < 0 || chdir("/") != 0)
        return gs_err_errno(err, -errno, "setsid, chdir");
    close_inherited(sockets);
    unsetenv("NOTIFY_SOCKET"); /* of the service that started this process, perhaps: not ours */
    unsetenv("WATCHDOG_USEC");
    null = open("/dev/null", O_RDWR);
    if (null < 0)
        return gs_err_errno(err, -errno, "/dev/null");
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (null != fd && dup2(null, fd) < 0)
            return gs_err_errno(err, -errno, "dup2");
    }
    if (null > STDERR_FILENO)
        close(null);
    return 0;
}
