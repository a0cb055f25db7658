/* SPDX-License-Identifier: Apache-2.0
 *
 * packet.c: sendmsg(2) and recvmsg(2) with one SCM_RIGHTS part at most. No state.
 */
#include "common/packet.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(GS_PACKET_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

ssize_t gs_packet_send(int socket, const void *message, size_t size,
                       const struct gs_descriptors *with)
{
    struct iovec part = {(void *)(size_t)message, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    union control control = {{0}};

    if (with != NULL && with->count != 0) {
        const size_t bytes = with->count * sizeof with->fd[0];
        struct cmsghdr *rights;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(bytes);
        rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(rights), with->fd, bytes);
    }
    return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t gs_packet_receive(int socket, void *message, size_t size, unsigned most,
                          struct gs_descriptors *with)
{
    struct iovec part = {message, size};
    union control control = {{0}};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = most != 0 ? control.bytes : NULL,
                            .msg_controllen = most != 0 ? CMSG_LEN(most * sizeof(int)) : 0};
    const ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);

    with->count = 0;
    if (got < 0)
        return got;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&header); at != NULL; at = CMSG_NXTHDR(&header, at))
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            with->count = (unsigned)((at->cmsg_len - CMSG_LEN(0)) / sizeof with->fd[0]);
            memcpy(with->fd, CMSG_DATA(at), with->count * sizeof with->fd[0]);
        }
    return got;
}

void gs_descriptors_close(struct gs_descriptors *descriptors)
{
    while (descriptors->count != 0)
        close(descriptors->fd[--descriptors->count]);
}
