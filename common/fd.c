/* SPDX-License-Identifier: Apache-2.0
 *
 * fd.c: descriptors 0, 1 and 2 of a program that was started without them; reading. No state.
 */
#include "common/fd.h"

#include <fcntl.h>

int gs_fd_open_standard(int flags)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) < 0)
            return -errno;
    return 0;
}

ssize_t gs_fd_read(int fd, void *buffer, size_t size)
{
    size_t done = 0;
    ssize_t n;

    while (done < size && (n = read(fd, (char *)buffer + done, size - done)) != 0) {
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return -errno;
    }
    return (ssize_t)done;
}
