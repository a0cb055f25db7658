/* SPDX-License-Identifier: Apache-2.0
 *
 * own_fd.c: descriptors that the program may close (own_fd.h). No state.
 */
#include "runtime/base/own_fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "runtime/base/base.h"

#define FROM     1024 /* smaller numbers are left to the program: select() accepts no others */
#define STANDARD 3    /* a program may have closed its standard output */

int gs_own_fd_floor(void)
{
    GS_KEEP_ERRNO;
    struct rlimit limit;
    int from = STANDARD;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        const rlim_t below = limit.rlim_cur - limit.rlim_cur / GS_OWN_FD_SHARE;

        from = below < FROM ? (int)below : FROM;
    }
    return from < STANDARD ? STANDARD : from;
}

void gs_own_fd_prepare(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const int saved = errno, fd = eventfd(0, EFD_CLOEXEC);
    const int higher = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, gs_own_fd_floor()) : -1;

    if (higher >= 0)
        close(higher);
    if (fd >= 0)
        close(fd);
    errno = saved;
}

static bool is_same(int fd, const struct stat *what)
{
    struct stat now;

    return fstat(fd, &now) == 0 && now.st_dev == what->st_dev && now.st_ino == what->st_ino &&
           now.st_rdev == what->st_rdev;
}

int gs_own_fd_higher(int fd, int from, struct stat *what)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    int higher;

    if (fstat(fd, what) != 0)
        return -1;
    higher = fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (higher >= 0 && !is_same(higher, what)) {
        close(higher);
        higher = -1;
    }
    if (higher >= 0 && is_same(fd, what))
        close(fd);
    return higher;
}

void gs_own_fd_set(struct gs_own_fd *own, int fd)
{
    GS_KEEP_ERRNO;
    struct stat what = {.st_ino = 0};
    const int higher = gs_own_fd_higher(fd, gs_own_fd_floor(), &what);

    if (higher >= 0)
        fd = higher;
    else if (!is_same(fd, &what))
        fd = -1; /* the program has closed it already */
    atomic_store_explicit(&own->device, what.st_dev, memory_order_relaxed);
    atomic_store_explicit(&own->inode, what.st_ino, memory_order_relaxed);
    /* release, pairs with gs_own_fd(): a thread that sees a number together with another one's
     * file finds that they do not match, and uses neither */
    atomic_store_explicit(&own->number, fd + 1, memory_order_release);
}

int gs_own_fd(const struct gs_own_fd *own)
{
    const int saved = errno, fd = atomic_load_explicit(&own->number, memory_order_acquire) - 1;
    struct stat now;
    bool ours;

    if (fd < 0)
        return -1;
    ours = fstat(fd, &now) == 0 &&
           now.st_dev == atomic_load_explicit(&own->device, memory_order_relaxed) &&
           now.st_ino == atomic_load_explicit(&own->inode, memory_order_relaxed);
    errno = saved;
    return ours ? fd : -1;
}

void gs_own_fd_close(struct gs_own_fd *own)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const int saved = errno, fd = gs_own_fd(own);

    if (fd >= 0)
        close(fd);
    atomic_store_explicit(&own->number, 0, memory_order_release);
    errno = saved;
}
