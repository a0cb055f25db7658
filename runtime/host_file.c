/* SPDX-License-Identifier: Apache-2.0
 *
 * host_file.c: owns the spill file: opened when it is first needed, nameless from the start, so
 * that it ends with the process; grown by fallocate, so that a full disk is found before
 * anything relies on it.
 *
 * State: descriptor, length, and free extents, under `lock` (rank GS_LOCK_HOST).
 */
#include "runtime/host_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/lock.h"
#include "runtime/log.h"

struct extent {
    struct extent *next;
    uint64_t offset, bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct extent *free_extents;
static uint64_t length;
static int file = -1;
static bool refused; /* no folder, or it cannot be written to */

static int open_in(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);

    if (fd < 0 && errno == EINVAL) /* a file system without direct I/O (tmpfs) */
        fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd;
}

/* Client thread only. */
static bool have_file(void)
{
    const char *folder;
    static bool said;

    if (file >= 0 || refused)
        return file >= 0;
    folder = secure_getenv("GPUSHARE_SPILL");
    if (folder == NULL || folder[0] == '\0') {
        refused = true;
        return false;
    }
    file = open_in(folder);
    if (file < 0) {
        refused = true;
        gs_say_once(&said,
                    "GPUSHARE_SPILL=%s: %s; memory that has no room in host memory stays on "
                    "the GPU",
                    folder, strerror(errno));
    }
    return file >= 0;
}

/* first fit among what was given back */
static bool reuse(uint64_t bytes, uint64_t *offset)
{
    bool found = false;

    gs_lock(&lock, GS_LOCK_HOST);
    for (struct extent **at = &free_extents, *extent; (extent = *at) != NULL && !found;
         at = &extent->next)
        if (extent->bytes >= bytes) {
            *offset = extent->offset;
            extent->offset += bytes;
            extent->bytes -= bytes;
            found = true;
            if (extent->bytes == 0) {
                *at = extent->next;
                free(extent);
                break;
            }
        }
    gs_unlock(&lock, GS_LOCK_HOST);
    return found;
}

bool gs_host_file_get(uint64_t bytes, uint64_t *offset)
{
    static bool said;
    int error;

    if (!have_file())
        return false;
    if (reuse(bytes, offset))
        return true;
    do
        error = posix_fallocate(file, (off_t)length, (off_t)bytes);
    while (error == EINTR);
    if (error != 0) {
        gs_say_once(&said, "GPUSHARE_SPILL: no room for %llu bytes more: %s",
                    (unsigned long long)bytes, strerror(error));
        return false;
    }
    *offset = length;
    length += bytes;
    return true;
}

void gs_host_file_put(uint64_t offset, uint64_t bytes)
{
    struct extent *extent = malloc(sizeof *extent);

    if (extent == NULL)
        return; /* that part of the file stays unused until the process ends */
    gs_lock(&lock, GS_LOCK_HOST);
    *extent = (struct extent){free_extents, offset, bytes};
    free_extents = extent;
    gs_unlock(&lock, GS_LOCK_HOST);
}

int gs_host_file_write(uint64_t offset, const void *memory, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t wrote =
            pwrite(file, (const char *)memory + done, bytes - done, (off_t)(offset + done));

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return wrote < 0 ? -errno : -EIO;
        done += (uint64_t)wrote;
    }
    return 0;
}

int gs_host_file_read(uint64_t offset, void *memory, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t got =
            pread(file, (char *)memory + done, bytes - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        done += (uint64_t)got;
    }
    return 0;
}

void gs_host_file_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    if (file >= 0)
        close(file); /* the parent's contents */
    file = -1;
    length = 0;
    free_extents = NULL;
    refused = false;
}
