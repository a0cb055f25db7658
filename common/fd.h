/* SPDX-License-Identifier: Apache-2.0
 *
 * fd.h: cleanup attributes for what is opened, freed and kept in one function; the standard
 * descriptors.
 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void gs_fd_closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void gs_file_closep(FILE **file)
{
    if (*file != NULL)
        fclose(*file);
}

static inline void gs_errno_restore(const int *before)
{
    errno = *before;
}

static inline void gs_freep(void *pointer)
{
    free(*(void **)pointer);
}

#define GS_CLOSE_FD   __attribute__((cleanup(gs_fd_closep)))
#define GS_CLOSE_FILE __attribute__((cleanup(gs_file_closep)))
#define GS_FREE       __attribute__((cleanup(gs_freep)))

/* errno is at the end of the block as it is here. */
#define GS_KEEP_ERRNO                                                                          \
    __attribute__((cleanup(gs_errno_restore), unused)) const int errno_before = errno

/* Opens /dev/null in place of 0, 1 and 2 if they are closed, so that no socket or file of ours
 * gets such a number and is printed to. flags: O_RDWR, or O_RDONLY, with which printing fails as
 * it should. 0 or -errno. */
int gs_fd_open_standard(int flags);

/* Reads so many bytes, or up to the end of the file. The number of bytes, or -errno. */
ssize_t gs_fd_read(int fd, void *buffer, size_t size);
