/* SPDX-License-Identifier: Apache-2.0
 *
 * fd.c: descriptors 0, 1 and 2 of a program that was started without them. No state.
 */
#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>

int gs_fd_open_standard(int flags)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) < 0)
            return -errno;
    return 0;
}
