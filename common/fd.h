/* SPDX-License-Identifier: Apache-2.0
 *
 * fd.h: cleanup attributes for what is opened and freed in one function.
 */
#ifndef GS_COMMON_FD_H
#define GS_COMMON_FD_H

#include <stdlib.h>
#include <unistd.h>

static inline void gs_fd_closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void gs_freep(void *pointer)
{
    free(*(void **)pointer);
}

#define GS_CLOSE_FD __attribute__((cleanup(gs_fd_closep)))
#define GS_FREE     __attribute__((cleanup(gs_freep)))

#endif
