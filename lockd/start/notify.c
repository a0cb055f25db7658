/* SPDX-License-Identifier: Apache-2.0
 *
 * notify.c: sd_notify(3) without systemd's library. No state.
 */
#include "lockd/start/notify.h"

#include "common/fd.h"
#include "lockd/base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

void lockd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    GS_CLOSE_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length;

    if (fd < 0 || path == NULL || (path[0] != '/' && path[0] != '@'))
        return;
    length = strlen(path);
    if (length >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
               (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        lockd_log(LOCKD_LOG_WARNING, "NOTIFY_SOCKET %s: %s was lost: %s", path, state,
                  errno == EAGAIN ? "nobody reads it" : strerror(errno));
}
