/* SPDX-License-Identifier: Apache-2.0
 *
 * host_file.c: owns the spill file. It is opened when memory first moves to the host, has no
 * name, so that it ends with the process, and grows by fallocate, so that a full disk is noticed
 * before anything relies on the space.
 *
 * A file system in memory (tmpfs) is accepted as well. Its contents count as memory, so it gets
 * no more than memory would.
 *
 * State: descriptor and buffer (client thread only); length and free extents, under `lock` (rank
 * GS_LOCK_HOST). Invariants: extents are disjoint, in the order of their offsets, not adjacent,
 * and none ends at length (then the file is shortened instead).
 */
#include "runtime/range/host_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "runtime/range/host_memory.h"

struct extent {
    struct extent *next;
    uint64_t offset, bytes;
};

static pthread_mutex_t lock GS_ZERO_IN_CHILD;
static struct extent *free_extents GS_ZERO_IN_CHILD;
static uint64_t length GS_ZERO_IN_CHILD;
static struct gs_own_fd file GS_ZERO_IN_CHILD; /* the parent's contents */
static char *buffer GS_ZERO_IN_CHILD; /* GS_HOST_FILE_PIECE bytes; exists while the file does */
static bool asked GS_ZERO_IN_CHILD;   /* the folder was asked for */
/* its file system keeps everything in memory (tmpfs), where it counts in the cgroup of the process
 * that wrote it */
static bool in_memory;

static int open_with(const char *folder, int flags)
{
    char path[PATH_MAX];
    int fd = open(folder, O_TMPFILE | O_RDWR | flags, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    /* for file systems without O_TMPFILE: the file has a name for a moment */
    if (snprintf(path, sizeof path, "%s/gpushare-spill-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, flags);
    if (fd >= 0)
        unlink(path);
    return fd;
}

static int open_in(const char *folder)
{
    int fd = open_with(folder, O_CLOEXEC | O_DIRECT);

    if (fd < 0 && errno == EINVAL) /* a file system without direct I/O (tmpfs) */
        fd = open_with(folder, O_CLOEXEC);
    return fd;
}

void gs_host_file_begin(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const char *folder;
    struct statfs system;
    static bool said;
    int fd;

    if (asked)
        return;
    asked = true;
    folder = secure_getenv("GPUSHARE_SPILL");
    if (folder == NULL || folder[0] == '\0')
        return;
    fd = open_in(folder);
    if (fd < 0) {
        gs_say_once(&said,
                    "GPUSHARE_SPILL=%s: %s; name a writable folder (until then, memory that "
                    "does not fit in host memory stays on the GPU)",
                    folder, strerror(errno));
        return;
    }
    buffer = gs_host_map(GS_HOST_FILE_PIECE, -1); /* now: later there may be no memory for it */
    if (buffer != NULL) {
        in_memory = fstatfs(fd, &system) == 0 &&
                    (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
        gs_own_fd_set(&file, fd);
        return;
    }
    gs_say_once(&said,
                "GPUSHARE_SPILL=%s is not used: no memory for its buffer of %llu bytes; "
                "start the program with a higher memory limit",
                folder, (unsigned long long)GS_HOST_FILE_PIECE);
    close(fd);
}

char *gs_host_file_buffer(void)
{
    return buffer;
}

/* first fit among the released extents */
static bool reuse_extent(uint64_t bytes, uint64_t *offset)
{
    struct extent *extent, **at = &free_extents;

    while (*at != NULL && (*at)->bytes < bytes)
        at = &(*at)->next;
    extent = *at;
    if (extent == NULL)
        return false;
    *offset = extent->offset;
    extent->offset += bytes;
    extent->bytes -= bytes;
    if (extent->bytes == 0) {
        *at = extent->next;
        free(extent);
    }
    return true;
}

/* adds bytes at the end. 0, or an errno */
static int extend_file(uint64_t bytes, uint64_t *offset)
{
    int error = 0;

    if (in_memory && gs_host_left() < bytes + GS_HOST_FLOOR)
        return ENOSPC; /* the kernel would give it, and kill a process of this cgroup for it */
    while (fallocate(gs_own_fd(&file), 0, (off_t)length, (off_t)bytes) != 0 &&
           (error = errno) == EINTR)
        error = 0;
    if (error == EOPNOTSUPP) /* writing will grow it, and notice a full disk */
        error = 0;
    if (error != 0)
        return error;
    *offset = length;
    length += bytes;
    return 0;
}

bool gs_host_file_get(uint64_t bytes, uint64_t *offset)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    static bool said;
    int error = 0;

    if (gs_own_fd(&file) < 0)
        return false;
    gs_lock(&lock, GS_LOCK_HOST);
    if (!reuse_extent(bytes, offset))
        error = extend_file(bytes, offset);
    gs_unlock(&lock, GS_LOCK_HOST);
    if (error != 0)
        gs_say_once(&said,
                    "GPUSHARE_SPILL: no room for another %llu bytes: %s; memory that does "
                    "not fit in host memory stays on the GPU",
                    (unsigned long long)bytes, strerror(error));
    return error == 0;
}

void gs_host_file_put(uint64_t offset, uint64_t bytes)
{
    struct extent *extent = malloc(sizeof *extent), *before = NULL, *after,
                  **at = &free_extents;

    if (extent == NULL)
        return; /* that part of the file stays unused until the process ends */
    GS_HOLD(&lock, GS_LOCK_HOST);
    for (after = free_extents; after != NULL && after->offset < offset; after = after->next)
        before = after;
    *extent = (struct extent){after, offset, bytes};
    if (before != NULL)
        before->next = extent;
    else
        free_extents = extent;
    if (after != NULL && offset + bytes == after->offset) {
        extent->bytes += after->bytes;
        extent->next = after->next;
        free(after);
    }
    if (before != NULL && before->offset + before->bytes == offset) {
        before->bytes += extent->bytes;
        before->next = extent->next;
        free(extent);
    }
    /* cuts off an extent at the end of the file, so that the disk has its room again */
    while (*at != NULL && (*at)->next != NULL)
        at = &(*at)->next;
    extent = *at;
    if (extent == NULL || extent->offset + extent->bytes != length ||
        ftruncate(gs_own_fd(&file), (off_t)extent->offset) != 0)
        return;
    length = extent->offset;
    *at = NULL;
    free(extent);
}

int gs_host_file_move(uint64_t offset, void *memory, uint64_t bytes, bool write)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    for (uint64_t done = 0; done < bytes;) {
        const off_t at = (off_t)(offset + done);
        const ssize_t moved =
            write ? pwrite(gs_own_fd(&file), (char *)memory + done, bytes - done, at)
                  : pread(gs_own_fd(&file), (char *)memory + done, bytes - done, at);

        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? -errno : -EIO;
        done += (uint64_t)moved;
    }
    return 0;
}

void gs_host_file_after_fork(void)
{
    gs_own_fd_close(&file);
}
