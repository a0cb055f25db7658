/* SPDX-License-Identifier: Apache-2.0
 *
 * packet.h: packets of a SOCK_SEQPACKET socket, with the descriptors that travel with them
 * (SCM_RIGHTS, unix(7)). Any thread.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define GS_PACKET_FDS     16  /* that we send with one message */
#define GS_PACKET_FDS_MAX 253 /* that others can send (Linux, SCM_MAX_FD) */

struct gs_descriptors {
    int fd[GS_PACKET_FDS_MAX];
    unsigned count;
};

/* Sends the whole message; never blocks, and no SIGPIPE. with: NULL, or stays the caller's.
 * Returns its size, or -1 with errno. */
ssize_t gs_packet_send(int socket, const void *message, size_t size,
                       const struct gs_descriptors *with);

/* Never blocks. The received descriptors are in `with` (also if 0 is returned), close-on-exec,
 * at most so many: the kernel drops those for which there is no room here or in this process.
 * Returns the size of the message as it was sent, which may be more than `size`; 0 at the end,
 * or for an empty message; -1 with errno. */
ssize_t gs_packet_receive(int socket, void *message, size_t size, unsigned most,
                          struct gs_descriptors *with);

/* Closes them all; count is 0 then. */
void gs_descriptors_close(struct gs_descriptors *descriptors);
